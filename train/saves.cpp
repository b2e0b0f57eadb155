#include "troupe/train/internal/saves.hpp"

#include "troupe/runtime/base/buggify.hpp"

#include <utility>

namespace troupe::train::internal {

std::optional<Saves::Ended> Saves::heard(int rank, const FolderEvent& event) {
  if (event.kind == FolderEvent::Kind::left_out)
    return Ended{
        .step = event.step, .error = event.error, .left_out = true, .files = {}, .document = {}};
  Open& open = open_[event.step];
  open.so_far.step = event.step;
  if (open.so_far.error.empty() && !event.error.empty())
    open.so_far.error = "worker " + std::to_string(rank) + ": " + event.error;
  if (open.ranks.insert(rank).second)
    open.so_far.files.insert(open.so_far.files.end(), event.files.begin(), event.files.end());
  if (!event.document.empty()) open.so_far.document = event.document;
  if (static_cast<int>(open.ranks.size()) < ranks_ && !TROUPE_MUTANT("gang.early_commit"))
    return std::nullopt;
  Ended ended = std::move(open.so_far);
  open_.erase(event.step);
  return ended;
}

}  // namespace troupe::train::internal
