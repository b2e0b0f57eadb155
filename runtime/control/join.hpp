/// What a node and control say to each other when the node joins with a token: the body of the
/// door's join request and of its answer.
///
///     transport->join(token, encode(JoinAsk{description}), deadline);      // the node
///     Result<JoinAsk> ask = decode_join_ask(request.request);             // control
///     transport->answer_join(request.id, encode(JoinAnswer{cluster, node}));
///
/// The node then connects with its own key and registers. Everything is bounded by the door's
/// 64 KiB; texts by kMaxJoinText.
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
  NodeId control;  ///< as a peer; its key and door are the token's
};

Blob encode(const JoinAsk& ask);
Blob encode(const JoinAnswer& answer);
/// Errors: invalid_argument, naming the field that is missing, too long or not what it should be.
Result<JoinAsk> decode_join_ask(BlobView bytes);
Result<JoinAnswer> decode_join_answer(BlobView bytes);

}  // namespace troupe::control
