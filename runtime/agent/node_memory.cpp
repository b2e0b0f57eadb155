/// The folders in which a node has objects on disk.
#include "troupe/runtime/agent/node.hpp"

#include <utility>
#include <vector>

namespace troupe::agent {
void Node::open_spiller() {
  const bool named = environment_.spill_folders.has_value();
  std::vector<std::vector<std::string>> choices;
  if (!named)
    choices = default_spill_folders();
  else if (!environment_.spill_folders->empty())
    choices = {*environment_.spill_folders};
  for (auto& folders : choices) {
    objectstore::SpillOptions options;
    options.folders = std::move(folders);
    options.quota = environment_.spill_bytes;
    auto files = objectstore::SpillFiles::open(std::move(options));
    if (!files && named)  // a folder that the user named must be usable
      refuse_spill_folders(files.error());
    if (!files) continue;
    extents_.open(*std::move(files));
    break;
  }
  references_.ask_of_bytes(
      [this](const wire::Location& location) { return extents_.is_readable(location); });
}

void Node::open_copies() {
  objectstore::SharedOptions options;
  options.folders = environment_.shared_folders;
  if (options.folders.empty()) return;
  options.cluster = config_.cluster;
  options.node = id_;
  options.quota = environment_.spill_bytes;
  folder_copies_.open(std::move(options));
}

// --- the loop

void Node::look_at_spills(Time now) {
  const objectstore::Spiller* spiller = extents_.spiller();
  if ((spiller == nullptr && !folder_copies_.is_open()) || !events_.is_spill_due(now)) return;
  SpillNews::Seen seen;
  if (spiller != nullptr) {
    const objectstore::SpillerStats stats = spiller->stats();
    seen = {stats.spilled, stats.spilled_bytes, stats.disk.quarantined};
  }
  if (folder_copies_.is_open()) seen.copy_errors = folder_copies_.stats().errors;
  events_.spilled(seen);
}

}  // namespace troupe::agent
