#include "troupe/runtime/agent/options.hpp"

#include "troupe/objectstore/spiller.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

namespace troupe::agent {
namespace {

constexpr const char* kSpill = "TROUPE_SPILL";
constexpr const char* kShared = "TROUPE_SPILL_SHARED";
constexpr std::int64_t kHour = 3'600'000;  // in milliseconds

std::string folders_beside(const Error& why) {
  return "give folders that can be used (" + why.message() + ")";
}

}  // namespace

AgentOptions read_options(const Environment& environment) {
  AgentOptions options;
  if (environment.text(kSpill)) options.spill_folders = environment.list(kSpill);
  options.shared_folders = environment.list(kShared);
  options.spill_bytes = environment.size("TROUPE_SPILL_BYTES").value_or(Bytes{});
  const objectstore::SpillerOptions usual;
  options.spill_patience = usual.patience;
  if (const auto wait = environment.number("TROUPE_SPILL_PATIENCE_MS", 0, kHour, "milliseconds"))
    options.spill_patience = std::min<Duration>(std::chrono::milliseconds(*wait), usual.at_most);
  options.node_memory = environment.size("TROUPE_NODE_MEMORY").value_or(Bytes{});
  options.job_bytes = environment.size("TROUPE_JOB_BYTES").value_or(Bytes{});
  options.lineage = wire::lineage_limit(environment);
  return options;
}

void refuse_spill_folders(const Error& why) {
  Environment().refuse(kSpill, folders_beside(why));
}

void refuse_shared_folders(const Error& why) {
  Environment().refuse(kShared, folders_beside(why));
}

std::vector<std::vector<std::string>> default_spill_folders() {
  std::error_code none;
  // /var/tmp comes first: it is on a disk, while the other may be in memory.
  return {{"/var/tmp"}, {std::filesystem::temp_directory_path(none).string()}};
}

}  // namespace troupe::agent
