/// What an agent reads of its environment, once, when it starts.
///
///     const AgentOptions environment = read_options(Environment());
///
/// runtime/docs/environment.md says what each variable is for.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/units.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

struct AgentOptions {
  /// TROUPE_SPILL: used in turn. No folder: nothing is spilled. Nothing: as default_spill_folders().
  std::optional<std::vector<std::string>> spill_folders;
  /// TROUPE_SPILL_SHARED: folders that every node of the cluster sees. None: no copies there.
  std::vector<std::string> shared_folders;
  /// TROUPE_SPILL_BYTES: the most that this node has on disk, and of copies; 0: what the folders'
  /// file systems have, less a twentieth of each.
  Bytes spill_bytes{};
  /// TROUPE_SPILL_PATIENCE_MS: how long those who lack memory wait while nothing comes free, at
  /// most objectstore::SpillerOptions::at_most.
  Duration spill_patience{};
  /// TROUPE_NODE_MEMORY: the most that all workers of the node have of their own; 0: what the
  /// machine and this process's control group have.
  Bytes node_memory{};
  /// TROUPE_JOB_BYTES: the most that one job has of objects on this node, in memory and on disk; 0:
  /// no limit.
  Bytes job_bytes{};
  /// TROUPE_LINEAGE: as wire::lineage_limit().
  Bytes lineage{};
};

/// Throws InvalidArgument, one sentence that names the variable, for a text that is of no use.
AgentOptions read_options(const Environment& environment);

/// Throw InvalidArgument: the folders of TROUPE_SPILL, or TROUPE_SPILL_SHARED, are of no use.
[[noreturn]] void refuse_spill_folders(const Error& why);
[[noreturn]] void refuse_shared_folders(const Error& why);

/// The folders to try without TROUPE_SPILL, one after the other: the first that can be used is.
std::vector<std::vector<std::string>> default_spill_folders();

}  // namespace troupe::agent
