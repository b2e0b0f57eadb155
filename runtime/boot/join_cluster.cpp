#include "troupe/runtime/boot/join_cluster.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/control/join.hpp"
#include "troupe/runtime/net/transport.hpp"

#include <poll.h>
#include <algorithm>

namespace troupe::boot {
namespace {

/// Waits for the first JoinReply. The transport produces one itself at `until` at the latest, so
/// this function waits a little longer.
Result<Blob> reply_of(net::Transport& transport, Time until) {
  std::vector<net::TransportEvent> events;
  for (;;) {
    const Time now = steady_now();
    transport.poll(now, events);
    for (auto& event : events)
      if (auto* reply = std::get_if<net::JoinReply>(&event)) return std::move(reply->answer);
    events.clear();
    if (now > until + std::chrono::seconds(1))
      return Error(Code::timed_out, "control did not answer in time");
    const Duration left = std::clamp<Duration>(transport.next_deadline() - steady_now(),
                                               Duration(0), std::chrono::milliseconds(100));
    pollfd entry{transport.fd(), POLLIN, 0};
    const auto whole = std::chrono::ceil<std::chrono::milliseconds>(left);
    (void)::poll(&entry, 1, static_cast<int>(whole.count()));
  }
}

}  // namespace

Result<JoinedCluster> join_cluster(const net::JoinToken& token, NodeId node,
                                   const std::string& name, const net::PublicKey& key,
                                   Duration limit) {
  auto keys = net::CurveKeys::generate();  // of this transport only, which admits no peer
  if (!keys) return keys.error();
  net::TransportOptions options;
  options.keys = std::move(*keys);
  options.build_id = TROUPE_VERSION_TEXT;
  auto transport = net::Transport::open(std::move(options));
  if (!transport) return transport.error();
  control::JoinAsk ask;
  ask.node.id = node;
  ask.node.name = name;
  ask.node.public_key = key.str();
  const Time until = steady_now() + limit;
  (*transport)->join(token, control::encode(ask), until);
  const auto reply = reply_of(**transport, until);
  if (!reply)
    return Error(reply.error().code(),
                 "the cluster at " + token.door + " cannot be joined: " + reply.error().message());
  const auto answer = control::decode_join_answer(*reply);
  if (!answer) return answer.error();
  return JoinedCluster{answer->cluster, {answer->control, token.head, token.door}};
}

}  // namespace troupe::boot
