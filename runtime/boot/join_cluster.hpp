/// Joins a node of a host that control does not know yet to a cluster, with one join token.
/// LocalCluster calls it before it starts the node's agent.
///
///     auto token = net::decode_join_token(text).value();
///     JoinedCluster joined = join_cluster(token, node, name, key, 10s).value();
///     // from now on the node connects to joined.control.door with its own key
#pragma once

#include "troupe/runtime/os/launch.hpp"

namespace troupe::boot {

struct JoinedCluster {
  ClusterId cluster;
  os::ControlEndpoint control;
};

/// Asks the token's control to admit the node. Blocks, at most `limit`. Errors: Unavailable (no
/// control answers at the door, or its key is not the one in the token), TimedOut, InvalidArgument
/// (refused, with control's reason: the token was used, or the id is taken).
Result<JoinedCluster> join_cluster(const net::JoinToken& token, NodeId node,
                                   const std::string& name, const net::PublicKey& key,
                                   Duration limit);

}  // namespace troupe::boot
