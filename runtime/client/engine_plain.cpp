/// The fast path for plain calls, whose arguments travel inline without refs, and for their
/// replies. All other calls take the general path (engine.cpp, engine_messages.cpp); both end in
/// the same functions. All under the lock.
#include "troupe/runtime/client/engine.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {
namespace {

/// A thread that only sends calls assist() once in so many calls. With 256 calls in flight at a
/// worker, that is often enough to keep it busy.
constexpr std::uint32_t kSendsPerLook = 16;

}  // namespace

/// Ends a task or a call to an actor after its last reply. `light`: nothing can observe when its
/// record is freed, because it holds at most one small value that only its handles know. Such a
/// record is freed later, by drop_spent().
void ClientEngine::end(ProcessIndex worker, bool task, std::uint64_t sequence, Duration ran,
                       Time now, bool light) {
  if (task) {
    auto ended = tasks_.ended(worker, sequence, ran, now);
    if (light)
      spent_task_ = std::move(ended);
    else
      recovery_.remember(std::move(ended));
  } else {
    auto ended = actors_.ended(worker, sequence);
    ended->lifetime = {};
    if (light) spent_call_ = std::move(ended);
  }
}

/// The fast part of on_reply(), for the reply to a light call whose result only its handles and
/// waiters know. False: the reply needs on_reply().
[[gnu::flatten]] bool ClientEngine::take_light(Peer& peer, const wire::PlainReply& reply,
                                               BlobView payload, Time now) {
  if (!reply.has_value || reply.index != 0) return false;
  Task* task = tasks_.in_flight(peer.process, reply.sequence);
  ActorCall* call = task == nullptr ? actors_.in_flight(peer.process, reply.sequence) : nullptr;
  const bool light =
      task != nullptr ? task->light && task->spec == nullptr : call != nullptr && call->light;
  if (!light) return false;
  // The thread that drops the last handle of a ready result frees it: keep our handle until the
  // call has ended.
  const detail::ObjectHandle& handle = (task != nullptr ? task->results : call->results).front();
  Entry& result = entry_of(handle);
  if (result.kind != wire::Value::Kind::pending || result.promoted || result.rebuilding ||
      result.source || result.recompute_target.load(std::memory_order_relaxed) != nullptr)
    return false;
  auto stored = std::allocate_shared<Stored>(FreeListAllocator<Stored>());
  stored->bytes = payload.subspan(reply.value.offset, reply.value.size);
  result.kind = wire::Value::Kind::inline_bytes;
  result.value = std::move(stored);
  result.ready.store(true, std::memory_order_release);
  values_.wake(result);
  end(peer.process, task != nullptr, reply.sequence, Duration(reply.ran_ns), now, is_alone(result));
  return true;
}

/// Handles a frame with a plain call or plain reply. False: it is another message, or broken.
bool ClientEngine::take_plain(Peer& peer, BlobView frame, Time now) {
  BlobView payload;
  if (wire::PlainReply reply; wire::read_plain(frame, reply, payload)) {
    if (!take_light(peer, reply, payload, now))
      on_reply(peer.process, sender_.plain().general(reply), payload, now);
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
    if (peer->channel.post(sender_.plain().encode(reply), value))
      peers_.wake_for_reply(*peer, work_.has_calls() && io_loop_->shares_cpu());
  } else if (to == self_.process) {
    on_reply(self_.process, sender_.plain().general(reply), value, steady_now());
  }
  unlock_and_collect(lock);
}

/// Called after a send. The call is recorded by now, so an error here must not count as the
/// call's: noexcept. (A reply for which there is no memory ends the process, as in the I/O
/// thread.)
void ClientEngine::look_around() noexcept {
  if (++sent_since_look_ < kSendsPerLook) return;
  sent_since_look_ = 0;
  io_loop_->assist();
}

}  // namespace troupe::client
