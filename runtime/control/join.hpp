/// The messages by which a node joins a cluster with a token: the bodies of the door's join request
/// and of its answer.
///
///     transport->join(token, encode(JoinAsk{description}), deadline);      // the node
///     Result<JoinAsk> ask = decode_join_ask(request.request);             // control
///     transport->answer_join(request.id, encode(JoinAnswer{cluster, node}));
///
/// The node then connects with its own key and registers. The door bounds a message to 64 KiB;
/// kMaxJoinText bounds each text.
#pragma once

#include "troupe/runtime/control/membership.hpp"

namespace troupe::control {

inline constexpr std::size_t kMaxJoinText = 256;
inline constexpr std::size_t kMaxJoinRows = 64;  ///< labels, and named resources

struct JoinAsk {
  NodeDescription node;  ///< public_key: 64 hex digits
};
struct JoinAnswer {
  ClusterId cluster;
  NodeId control;  ///< control's id as a peer; the token has its key and door
};

Blob encode(const JoinAsk& ask);
Blob encode(const JoinAnswer& answer);
/// Errors: invalid_argument; the message says what is missing, too long or malformed.
Result<JoinAsk> decode_join_ask(BlobView bytes);
Result<JoinAnswer> decode_join_answer(BlobView bytes);

}  // namespace troupe::control
