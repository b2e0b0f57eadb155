#include "troupe/runtime/client/callers.hpp"

namespace troupe::client {

bool Callers::take_plain(const Peers::Peer& peer, BlobView frame) {
  BlobView payload;
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
  queue(peer, std::move(incoming));
  return true;
}

void Callers::take(const Peers::Peer& peer, wire::Call&& call, BlobView payload) {
  auto incoming = std::allocate_shared<Incoming>(FreeListAllocator<Incoming>());
  incoming->from = peer.process;
  incoming->call = std::move(call);
  incoming->payload = payload;
  queue(peer, std::move(incoming));
}

void Callers::reply(ProcessIndex to, std::uint64_t sequence, std::uint32_t index, bool last,
                    Duration ran, const OutgoingValue& value) {
  if (last) work_.answered();
  Peers::Peer* peer = peers_.of(to);
  if (peer == nullptr && to != self_.process) {  // the caller is gone: no owner
    values_.drop_own(value);
    return;
  }
  payload_.clear();
  wire::Reply message;
  message.sequence = sequence;
  message.index = index;
  message.last = last;
  message.ran_ns = static_cast<std::uint64_t>(ran.count());
  message.value = values_.outgoing(
      value, peer != nullptr ? peer->receiver() : Receiver{.holder = self_.process}, payload_);
  message.lost_argument = value.lost.number;
  message.lost = value.lost.object;
  if (peer == nullptr) return calls_.take_reply(to, message, payload_, steady_now());
  out_.settle_agent_queue();
  if (last) peer->channel.count_completed(++peer->completed);
  peer->channel.send(writer_.encode(wire::CallMessage(std::move(message))), payload_);
}

void Callers::leave_silent_holder(const wire::LeaseReclaim& question) {
  Peers::Peer* holder = peers_.find(question.holder);
  const bool runs =
      work_.is_busy() || work_.is_blocked() || work_.is_ending() || peers_.has_unanswered();
  // A holder that is this process answers for itself.
  if (holder == nullptr || question.holder == self_.process || runs) return;
  holder->refused = true;
  out_.tell(wire::LeaseReturned{question.lease}, {});
}

void Callers::hand_back(ProcessIndex caller, const wire::HandBack& calls) {
  if (Peers::Peer* peer = peers_.of(caller))
    peer->channel.send(writer_.encode(wire::CallMessage(calls)));
}

bool Callers::is_refused(ProcessIndex caller) {
  const Peers::Peer* peer = peers_.of(caller);
  return peer == nullptr || peer->refused;
}

void Callers::tell_blocked(bool is_blocked) {
  if (is_blocked)
    out_.tell(wire::Blocked{}, {});
  else
    out_.tell(wire::Unblocked{}, {});
}

}  // namespace troupe::client
