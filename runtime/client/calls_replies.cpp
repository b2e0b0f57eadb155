/// What arrives for the calls of this process: replies, leases, actors' lives.
#include "troupe/runtime/client/calls.hpp"
#include "troupe/runtime/client/failed_tell.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// The delay of a look at tasks that may have lost their place at a worker.
constexpr Duration kSoon = 1ms;

/// Returns whether a record that ended is light, as end() defines it.
template <class Ended>
bool is_light(const Ended& ended) noexcept {
  return ended.light && is_alone(entry_of(ended.results.front()));
}

}  // namespace

/// Ends a task or a call to an actor after its last reply. `light`: nothing can observe when its
/// record is freed, because it holds at most one small value that only its handles know. Such a
/// record is freed later, by drop_spent().
void Calls::end(ProcessIndex worker, bool task, std::uint64_t sequence, Duration ran, Time now,
                bool light) {
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

/// The fast part of take_reply(), for the reply to a light call whose result only its handles and
/// waiters know. False: the reply needs take_reply().
[[gnu::flatten]] bool Calls::take_light(Peers::Peer& peer, const wire::PlainReply& reply,
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

void Calls::take_reply(ProcessIndex worker, const wire::Reply& reply, BlobView payload, Time now) {
  std::span<const detail::ObjectHandle> results;
  // The agent must get the KeptCall of a call before the Fulfil of its result: this process may
  // end between the two messages.
  detail::ObjectHandle unsaid;
  Task* task = tasks_.in_flight(worker, reply.sequence);
  ActorCall* call = task == nullptr ? actors_.in_flight(worker, reply.sequence) : nullptr;
  if (task != nullptr) {
    if (reply.value.kind == wire::Value::Kind::error && tasks_.yields(worker, reply.sequence, now))
      return;
    if (reply.value.kind == wire::Value::Kind::error && task->request) {
      const auto& types = task->request->retry_on;
      if (std::find(types.begin(), types.end(), reply.value.error->type) != types.end() &&
          tasks_.retry(worker, reply.sequence, now))
        return;
    }
    results = task->results;
  } else if (call != nullptr) {
    results = call->results;
  } else {
    values_.discard(reply.value);
    return;  // a reply of a late attempt
  }
  if (reply.value.kind == wire::Value::Kind::error) {
    Error error(*reply.value.error);
    if (task != nullptr) error = with_its_name(error, *task);
    if (task != nullptr && task->fate == Task::Fate::open && reply.lost_argument != 0 &&
        error.code() == Code::object_lost && recovery_.recover_argument(*task, reply, error)) {
      const std::uint32_t waiting = watch_arguments(*task);
      tasks_.postponed(worker, reply.sequence, waiting, now);
      wake_by(now + kSoon);
      return;
    }
    if (task != nullptr) error = TaskManager::of_all_attempts(*task, error);
    if (task != nullptr && task->spec != nullptr) error = Recovery::cannot_run_again(*task, error);
    for (const auto& result : results) values_.settle_error(entry_of(result), error);
    if (results.empty() && call != nullptr) log_failed_tell(*call, error);
  } else if (reply.index < results.size() &&
             !entry_of(results[reply.index]).ready.load(std::memory_order_relaxed)) {
    Entry& result = entry_of(results[reply.index]);
    const bool may_be_kept = task != nullptr && reply.last &&
                             (reply.value.kind == wire::Value::Kind::shared ||
                              reply.value.kind == wire::Value::Kind::forwarded);
    if (may_be_kept && std::exchange(result.fulfil, false)) unsaid = results[reply.index];
    values_.settle(result, reply.value, payload);
  } else {
    values_.discard(reply.value);  // an earlier attempt gave this result already
  }
  if (call != nullptr && reply.value.kind != wire::Value::Kind::inline_bytes)
    for (const auto& result : results) entry_of(result).made = Entry::Made::actor;
  if (!reply.last) return;
  const bool light = task != nullptr ? task->spec == nullptr && is_light(*task) : is_light(*call);
  end(worker, task != nullptr, reply.sequence, Duration(reply.ran_ns), now, light);
  if (unsaid) values_.tell_fulfilled(entry_of(unsaid));
}

void Calls::ended_here(Task& task, std::span<OutgoingValue> values) {
  const auto failed = std::find_if(values.begin(), values.end(), [](const OutgoingValue& value) {
    return value.kind == wire::Value::Kind::error;
  });
  if (failed != values.end() && task.request) {
    const auto& types = task.request->retry_on;
    if (std::find(types.begin(), types.end(), failed->error->type) != types.end() &&
        tasks_.retry_here(task, steady_now())) {
      for (const OutgoingValue& value : values) values_.drop_own(value);
      wake_by(steady_now() + kSoon);
      return;
    }
  }
  if (failed != values.end() && task.request && !task.request->name.empty())
    for (OutgoingValue& value : values)
      if (value.error) value.error = with_its_name(Error(*value.error), task).shared_info();
  // The agent must get the KeptCall of a call before the Fulfil of its results: this process may
  // end between the two messages.
  std::vector<detail::ObjectHandle> unsaid;
  for (std::size_t i = 0; i < task.results.size(); ++i) {
    Entry& result = entry_of(task.results[i]);
    if (result.ready.load(std::memory_order_relaxed)) {
      values_.drop_own(values[i]);
      continue;
    }
    const bool may_be_kept = values[i].kind == wire::Value::Kind::shared ||
                             values[i].kind == wire::Value::Kind::forwarded;
    if (may_be_kept && std::exchange(result.fulfil, false)) unsaid.push_back(task.results[i]);
    values_.settle_own(result, std::move(values[i]));
  }
  recovery_.remember(tasks_.ended_here(task));
  for (const detail::ObjectHandle& handle : unsaid) values_.tell_fulfilled(entry_of(handle));
}

void Calls::hand_back(ProcessIndex worker, const wire::HandBack& calls, Time now) {
  tasks_.handed_back(worker, calls.first, calls.count, now);
  wake_by(now + kSoon);
}

void Calls::grant(const wire::LeaseGranted& granted, Time now) {
  // No task wants it any more.
  if (!classes_.knows(granted.key)) return return_lease(granted.lease);
  if (peers_.of(granted.worker) == nullptr) {
    peers_.wait(granted);
    return;
  }
  tasks_.granted(granted.key, granted.lease, granted.worker, now);
  wake_by(now + kSoon);
}

void Calls::reclaim(LeaseId lease, Time now) {
  peers_.reclaim(lease);
  tasks_.reclaim(lease, now);
}

void Calls::update(const wire::ActorUpdate& update) {
  if (update.state == wire::ActorState::alive && update.worker != self_.process &&
      peers_.of(update.worker) == nullptr) {
    peers_.wait(update);  // the channel is on its way over the socket
    return;
  }
  actors_.update(update);
}

void Calls::go_on(Time now) {
  for (const auto& pending : peers_.take_grants()) {
    grant(pending.grant, now);
    if (pending.reclaimed) reclaim(pending.grant.lease, now);
  }
  for (const auto& update : peers_.take_updates()) this->update(update);
}

void Calls::refuse_unreachable(const Error& error) {
  tasks_.refuse_unleased(error);
  for (const auto& pending : peers_.take_grants()) return_lease(pending.grant.lease);
  for (const wire::ActorUpdate& update : peers_.updates()) actors_.fail_queued(update.actor, error);
}

Time Calls::tick(Time now) {
  if (now < next_tick_) return next_tick_;
  next_tick_ = tasks_.tick(now);
  if (now >= next_look_)
    next_look_ = actors_.let_go_of_unwanted(now) ? now + ActorCalls::kUnwantedLook : Time::max();
  wake_by(next_look_);
  return next_tick_;
}

}  // namespace troupe::client
