/// The folder STATE, in which clusters keep logs that outlive them, and the folder of one cluster
/// inside it.
///
///     const std::string state = open_state_folder(flag, Environment()).value();
///     ClusterFolder folder = ClusterFolder::open(state, cluster).value();
///     prune_state(state);                  // others, of clusters that have ended
#pragma once

#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe::os {

inline constexpr std::size_t kKeptClusters = 10;              ///< that have ended
inline constexpr std::uint64_t kKeptBytes = 2ull << 30;       ///< of their files
inline constexpr std::uint64_t kLogBytesOfHost = 1ull << 30;  ///< of the nodes of one cluster

/// Returns STATE with its folders made, mode 0700: `given` if it is not empty, else
/// $XDG_STATE_HOME/troupe, ~/.local/state/troupe, or /var/tmp/troupe-UID when there is no home that
/// can be written. Errors: InvalidArgument if it belongs to another user, is open to others, is a
/// link or no folder; OutOfDisk if it cannot be made.
Result<std::string> open_state_folder(const std::string& given, const Environment& environment);

/// STATE/CLUSTER. Its lock says that the cluster is in use. Hosts that share STATE lock it together.
class ClusterFolder {
 public:
  ClusterFolder() = default;
  /// Makes and locks the folder. Errors: OutOfDisk.
  static Result<ClusterFolder> open(const std::string& state, ClusterId cluster);
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  Fd lock_;
};

/// Removes folders of clusters that have ended, the oldest first, until at most kKeptClusters and
/// kKeptBytes of them are left. A folder in use stays. Errors are ignored: what cannot be removed
/// stays.
void prune_state(const std::string& state);

/// Returns the most bytes that the logs of each of `nodes` nodes may take: their share of
/// kLogBytesOfHost, or of a tenth of what is free.
std::uint64_t log_bytes_of_node(const std::string& state, std::uint32_t nodes);

}  // namespace troupe::os
