/// Says why a lease request or an actor waits, in one sentence for a person. Reads what the lease
/// table, the actor host and the remote table of one node know, and changes nothing.
///
///     WaitReasons(leases, actors, remote).of_lease(process, key);
///         // "at node-0: needs 1 GPU, no node has more than 0"
#pragma once

#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/remote.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <string>

namespace troupe::agent {

class WaitReasons {
 public:
  WaitReasons(const scheduling::LeaseTable& leases, const ActorHost& actors,
              const RemoteTable& remote)
      : leases_(leases), actors_(actors), remote_(remote) {}

  /// Returns why no lease of this key comes; empty: the process has no open request of this key.
  std::string of_lease(ProcessIndex process, LeaseKey key) const;
  /// Returns why the actor does not live yet; empty: this node does not know.
  std::string of_actor(ActorId actor) const;

 private:
  std::string at_node(NodeId node, const std::string& why) const;

  const scheduling::LeaseTable& leases_;
  const ActorHost& actors_;
  const RemoteTable& remote_;
};

}  // namespace troupe::agent
