/// The fast path for plain calls, whose arguments travel inline without refs, and for their
/// replies. All other calls take the general path (engine.cpp, engine_messages.cpp); both end in
/// the same functions. All under the lock.
#include "troupe/runtime/client/engine.hpp"

#include <utility>

namespace troupe::client {

/// Handles a frame with a plain call or plain reply. False: it is another message, or broken.
bool ClientEngine::take_plain(Peer& peer, BlobView frame, Time now) {
  BlobView payload;
  if (wire::PlainReply reply; wire::read_plain(frame, reply, payload)) {
    calls_.take_plain(peer, reply, payload, now);
    return true;
  }
  wire::PlainCall plain;
  if (!wire::read_plain(frame, plain, payload)) return false;
  auto incoming = std::allocate_shared<Incoming>(FreeListAllocator<Incoming>());
  incoming->from = peer.process;
  incoming->count = plain.count;
  incoming->ranges = plain.arguments;
  wire::Call& call = incoming->call;
  call.sequence = plain.sequence;
  call.function = plain.function;
  call.actor_low = plain.actor_low;
  call.attempt = plain.attempt;
  call.results = plain.results;
  incoming->payload = payload;
  take_call(peer, std::move(incoming));
  return true;
}

void ClientEngine::reply_plain(ProcessIndex to, const wire::PlainReply& reply, BlobView value) {
  Guard lock = guard();
  work_.answered();
  if (Peer* peer = peers_.of(to)) {
    peer->channel.count_completed(++peer->completed);
    if (peer->channel.post(calls_.sender().plain().encode(reply), value))
      peers_.wake_for_reply(*peer, work_.has_calls() && io_loop_->shares_cpu());
  } else if (to == self_.process) {
    calls_.take_reply(self_.process, calls_.sender().plain().general(reply), value, steady_now());
  }
  unlock_and_collect(lock);
}

}  // namespace troupe::client
