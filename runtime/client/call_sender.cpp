#include "troupe/runtime/client/call_sender.hpp"

#include "troupe/runtime/wire/peer.hpp"

#include <memory>
#include <utility>

namespace troupe::client {

/// Sends the call as a plain one, if it is plain. True: the call is in the peer's ring, or waits
/// for room there.
bool CallSender::send_plain(Peer& peer, const detail::Call& call, std::uint64_t actor_low,
                            std::uint32_t attempt, std::uint32_t results) {
  const BlobView head = plain_.encode(call, {peer.sent + 1, actor_low, attempt, results});
  if (head.empty()) return false;
  TROUPE_ASSERT(head.size() + call.bytes.size() <= ring::kMaxFrame,
                "the inline arguments of a call are bounded");
  peer.channel.send(head, call.bytes);
  return true;
}

template <class Record>
std::uint64_t CallSender::send_ahead(ProcessIndex worker, const detail::Call& call,
                                     std::uint64_t actor_low, std::size_t results) {
  Peer* peer = worker != 0 ? peers_.of(worker) : nullptr;
  if (peer == nullptr || peer->channel.waiting() > 0 || results > 1) return 0;
  static_assert(spare_size(sizeof(Record)) != spare_size(sizeof(Entry)), "they share no spares");
  Record::ensure_spare();
  Entry::ensure_spare();
  if (!send_plain(*peer, call, actor_low, 1, static_cast<std::uint32_t>(results))) return 0;
  return ++peer->sent;
}
template std::uint64_t CallSender::send_ahead<Task>(ProcessIndex, const detail::Call&,
                                                    std::uint64_t, std::size_t);
template std::uint64_t CallSender::send_ahead<ActorCall>(ProcessIndex, const detail::Call&,
                                                         std::uint64_t, std::size_t);

bool CallSender::send_call(ProcessIndex worker, const detail::Call& call, std::uint64_t actor_low,
                           std::uint32_t attempt, std::uint32_t results, std::uint64_t& sequence,
                           bool& plain) {
  Peer* peer = peers_.of(worker);
  TROUPE_ASSERT(peer != nullptr, "a call goes to a worker with a channel");
  if (peer->channel.waiting() > 0) return false;
  plain = send_plain(*peer, call, actor_low, attempt, results);
  if (plain) {
    sequence = ++peer->sent;
    return true;
  }
  Receiver receiver = peer->receiver();
  receiver.recovers = actor_low != 0;
  wire::Call message = encoder_.encode(call, receiver);
  message.sequence = peer->sent + 1;
  message.actor_low = actor_low;
  message.attempt = attempt;
  message.results = results;
  out_.settle_agent_queue();
  const BlobView head = encoder_.writer().encode(wire::CallMessage(std::move(message)));
  // The counts for the receiver are taken already (RUN-4). So the frame waits behind a full ring;
  // building it again would count twice.
  peer->channel.send(head, encoder_.payload());
  sequence = ++peer->sent;
  return true;
}

bool CallSender::send(ProcessIndex worker, Task& task) {
  bool plain = false;
  const bool sent =
      send_call(worker, task.call, 0, task.attempt, static_cast<std::uint32_t>(task.results.size()),
                task.sequence, plain);
  task.light = plain && task.results.size() == 1 && task.request == nullptr;
  return sent;
}

bool CallSender::send(ProcessIndex worker, ActorCall& call) {
  bool plain = false;
  const bool sent =
      send_call(worker, call.call, call.actor.low, 1,
                static_cast<std::uint32_t>(call.results.size()), call.sequence, plain);
  call.light = plain && call.results.size() == 1;
  return sent;
}

void CallSender::deliver_here(ActorCall& call) {
  auto incoming = std::allocate_shared<Incoming>(FreeListAllocator<Incoming>());
  incoming->call = encoder_.encode(call.call, {.holder = self_.process, .recovers = true});
  incoming->from = self_.process;
  incoming->payload = encoder_.payload();
  incoming->call.sequence = call.sequence = loopback_.next();
  incoming->call.actor_low = call.actor.low;
  incoming->call.attempt = 1;
  incoming->call.results = static_cast<std::uint32_t>(call.results.size());
  call.light = false;
  work_.take(std::move(incoming), false);
}

void CallSender::recall(ProcessIndex worker) {
  if (Peer* peer = peers_.of(worker))
    peer->channel.send(encoder_.writer().encode(wire::CallMessage(wire::Recall{})));
}

bool CallSender::may_come_back(ProcessIndex worker, std::uint64_t sequence) const {
  const Peer* peer = peers_.of(worker);
  if (peer == nullptr || peer->remote) return false;
  const bool is_own = worker == self_.process;
  return (is_own ? peer->started : peer->channel.peer_progress().started) < sequence;
}

}  // namespace troupe::client
