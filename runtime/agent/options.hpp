/// The settings that an agent reads from its environment, once, when it starts.
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
  /// TROUPE_SPILL: folders that are used in turn. An empty list: nothing is spilled. No list: see
  /// default_spill_folders().
  std::optional<std::vector<std::string>> spill_folders;
  /// TROUPE_SPILL_SHARED: folders that every node of the cluster sees. None: no copies there.
  std::vector<std::string> shared_folders;
  /// TROUPE_SPILL_BYTES: the most bytes that this node has on disk, and the most of its copies in
  /// shared folders; 0: what the folders' file systems have, less a twentieth of each.
  Bytes spill_bytes{};
  /// TROUPE_SPILL_PATIENCE_MS: how long a process that lacks memory waits while none comes free, at
  /// most objectstore::SpillerOptions::at_most.
  Duration spill_patience{};
  /// TROUPE_NODE_MEMORY: the most private memory of all workers of the node together; 0: what the
  /// machine and this process's control group have.
  Bytes node_memory{};
  /// TROUPE_JOB_BYTES: the most bytes of one job's objects on this node, in memory and on disk; 0:
  /// no limit.
  Bytes job_bytes{};
  /// TROUPE_LINEAGE: see wire::lineage_limit().
  Bytes lineage{};
};

/// Reads all settings. Throws InvalidArgument, with one sentence that names the variable, for a
/// value that cannot be used.
AgentOptions read_options(const Environment& environment);

/// Throw InvalidArgument: the folders of TROUPE_SPILL, or of TROUPE_SPILL_SHARED, cannot be used.
[[noreturn]] void refuse_spill_folders(const Error& why);
[[noreturn]] void refuse_shared_folders(const Error& why);

/// Returns the choices without TROUPE_SPILL, the best first. The first that can be opened is used.
std::vector<std::vector<std::string>> default_spill_folders();

}  // namespace troupe::agent
