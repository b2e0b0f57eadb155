/// Finds out whether a process listens at a node's door, by a TCP connection that is closed at
/// once. Server runs it for Membership's Probe.
///
///     prober.start(probe, now);
///     for (pollfd& entry : …) ; prober.poll(now, answers);        // on_probe for each
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/control/membership.hpp"

#include <poll.h>
#include <map>
#include <string>
#include <vector>

namespace troupe::control::internal {

struct ProbeAnswer {
  NodeId node;
  Epoch epoch = 0;
  bool gone = false;  ///< its host refused the connection
};

/// Not thread-safe; nothing blocks. One probe per node at a time.
class Prober {
 public:
  explicit Prober(Duration timeout) : timeout_(timeout) {}
  void start(const Probe& probe, Time now);
  /// Appends the sockets to poll.
  void add_to(std::vector<pollfd>& entries) const;
  Time next_deadline() const;
  /// Appends the answers of probes that have ended, also of those that have timed out.
  void poll(Time now, std::vector<ProbeAnswer>& answers);

 private:
  struct Running {
    Epoch epoch = 0;
    Fd socket;
    Time until{};
    bool ended = false, gone = false;
  };
  Duration timeout_;
  std::map<NodeId, Running> running_;
};

}  // namespace troupe::control::internal
