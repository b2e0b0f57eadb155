/// The two ways into a node of a cluster from its own machine: the socket of the launcher that has
/// started it, and the local socket to which drivers and observers connect. A private node has
/// neither.
///
///     doors.open(config.socket_name, config.together);
///     doors.set_launcher(std::move(socket));
///     doors.wait_for(set, now);                                    // each pass
///     for (Fd& visitor : doors.visitors(set)) …;  if (doors.is_over(set)) …
///     doors.tell_launcher(nodes, address);                         // each time nodes are heard of
///
/// Invariants: DOOR-1 The launcher is told once that the node serves, when the node knows as many
/// nodes as start together. DOOR-2 The node is over when the launcher's socket is closed, whatever
/// else it brings. DOOR-3 At most kMostVisitors enter in one pass, and none while the local socket
/// rests (os::LocalListener).
#pragma once

#include "troupe/runtime/agent/poll_set.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/os/local_listener.hpp"
#include "troupe/runtime/os/local_socket.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

class Doors {
 public:
  static constexpr std::size_t kMostVisitors = 256;

  /// Opens the local socket. `together`: of how many nodes the launcher wants to hear. Errors: as
  /// os::LocalListener::listen().
  Result<void> open(const std::string& socket_name, std::size_t together);
  void set_launcher(Fd socket) { launcher_ = os::LocalSocket(std::move(socket)); }
  /// Tells the launcher that this node serves at the address, once it knows so many nodes.
  void tell_launcher(std::size_t nodes, const std::string& address);

  // --- the loop
  void wait_for(PollSet& set, Time now);
  /// Returns the connections that have come. The others come in the next pass.
  std::vector<Fd> visitors(const PollSet& set);
  /// Returns whether the launcher is gone. What it sends is dropped.
  bool is_over(const PollSet& set);
  /// Returns when wait_for() has something new to wait for.
  Time next_deadline(Time now) const;

 private:
  os::LocalSocket launcher_;
  std::optional<os::LocalListener> local_;
  std::size_t together_ = 1;
  bool told_ = false;
  std::size_t launcher_at_ = 0, local_at_ = 0;  ///< in the set of the last wait_for()
};

}  // namespace troupe::agent
