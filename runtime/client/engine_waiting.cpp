/// Waiting for values: get, wait and coroutines. A worker that waits gives its CPU back.
#include "troupe/runtime/base/back_off.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/client/wait_path.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// How long a wait that is over waits for the agent's reason.
constexpr Duration kReasonComes = 200ms;

}  // namespace

namespace {

Error no_result_after(Duration timeout) {
  return Error(Code::timed_out, "no result after " + pause_text(timeout), Outcome::unknown);
}

}  // namespace

/// Returns the error of a wait whose timeout has passed, with the reason for the delay where that
/// is known. A timeout of zero is a look, not a wait, and gets no reason. The outcome is
/// `unknown` because the call goes on. Precondition: a handle keeps the entry.
Error ClientEngine::overdue(Guard& lock, const Entry& entry, Duration timeout) {
  Error plain = no_result_after(timeout);
  std::optional<ActorCalls::Delay> delay;
  if (timeout > Duration::zero())
    for (const Entry* at = &entry; at != nullptr && !delay; at = next_of(*at))
      delay = calls_.actors().delay_of(*at);
  ErrorInfo info = plain.info();
  if (!delay) {
    if (timeout <= Duration::zero()) return plain;
    if (const std::string why = why_waits(lock, entry); !why.empty()) info.message += ": " + why;
    return Error(std::move(info));
  }
  if (delay->silent) {
    info.code = Code::actor_unavailable;
    info.message +=
        ": the actor's node says nothing and is not known to be dead; the call may "
        "have run, and goes on when the node is back";
    return Error(std::move(info));
  }
  const Duration left = delay->retry_at - steady_now();
  info.message += ": " + delay->last_end->message +
                  (left > Duration::zero() ? "; next attempt in " + pause_text(left)
                                           : "; its next life is being made");
  info.cause = delay->last_end->cause;
  return Error(std::move(info));
}

/// Returns why the entry has no value yet, in one sentence; empty: unknown. Asks the agent, and
/// waits kReasonComes for its answer at most.
std::string ClientEngine::why_waits(Guard& lock, const Entry& entry) {
  const WaitPath path =
      wait_path(entry, calls_.tasks(), calls_.actors(), [this](ProcessIndex worker, const Task& t) {
        return calls_.may_come_back(worker, t.sequence);
      });
  if (!path.question) return path.text;
  wire::Explain question = *path.question;
  const std::uint64_t request = question.request = questions_.ask<wire::Explained>();
  tell(question);
  try {
    waits_.block_until(
        lock, [&] { return questions_.is_answered(request); }, steady_now() + kReasonComes);
  } catch (const Error&) {  // the agent is gone, or the job was stopped: the next call says so
  }
  const auto answer = questions_.take<wire::Explained>(request);
  return path.text + " " + (answer && !answer->why.empty() ? answer->why : path.otherwise);
}

Result<detail::Value> ClientEngine::try_get(const detail::ObjectHandle& object, Duration timeout) {
  if (!object)
    return Error(Code::invalid_argument,
                 "get of an empty Ref: it was moved from or never assigned");
  if (in_fork()) return ProcessMark::error_in_fork();
  Entry& entry = entry_of(object);
  if (is_foreign(entry)) return Values::of_another_session();
  const auto is_final = [&entry](const Result<detail::Value>& value) {
    return value || value.error().code() != Code::object_lost ||
           entry.kind == wire::Value::Kind::error;
  };
  if (is_here(entry))  // mostly, and then the clock is not read
    if (auto value = materialise(object, timeout); is_final(value)) return value;
  // A wait without a deadline needs no clock.
  Time now = timeout != detail::kNoTimeout ? steady_now() : Time{};
  const Time deadline = deadline_after(now, timeout);
  for (;;) {
    const std::uint64_t seen = recovery_.recoveries();
    auto value = open_once(object, deadline, timeout, std::exchange(now, Time{}));
    if (is_final(value)) return value;
    Error error = value.error();
    Guard lock = gate_.guard();
    const bool again = seen != recovery_.recoveries() || recovery_.recover(entry, error);
    if (again) values_.need(entry, true);
    gate_.unlock_and_collect(lock);
    if (!again) return error;
    // A recovered value may be lost again.
    if (timeout != detail::kNoTimeout && steady_now() >= deadline) return no_result_after(timeout);
  }
}

/// Returns whether the entry waits for an unfinished call to the actor whose methods run on this
/// thread.
bool ClientEngine::is_own_call(const Entry& entry) const {
  if (!calls_.sender().loopback().on_actor_thread()) return false;
  for (const Entry* at = &entry; at != nullptr; at = next_of(*at))
    if (!at->ready.load(std::memory_order_relaxed) &&
        calls_.actors().owes(calls_.sender().loopback().actor(), *at))
      return true;
  return false;
}

/// As try_get(), but does not recover a lost value. `now`: the time, if the caller knows it.
/// noinline keeps it out of try_get(), whose fast path needs nothing of it.
[[gnu::noinline]] Result<detail::Value> ClientEngine::open_once(const detail::ObjectHandle& object,
                                                                Time deadline, Duration timeout,
                                                                Time now) {
  Entry& entry = entry_of(object);
  if (!is_here(entry)) {
    Guard lock = gate_.guard();
    values_.need(entry, true);
    const bool in_place = deadline == Time::max() && waits_.may_run_awaited();
    bool ended = false;
    try {
      if (is_own_call(entry)) raise(Loopback::waits_for_itself());
      const WaitingThreads::Here here(waits_.threads(), {&object, 1}, 1);
      if (in_place)
        ended = waits_.run_awaited(lock, entry);
      else
        ended = waits_.block_until(
            lock, [&entry] { return is_here(entry) || fetch_failed(entry); }, deadline, now);
    } catch (const Error& error) {
      return error;
    }
    const std::shared_ptr<const ErrorInfo> failure =
        !is_here(entry) && fetch_failed(entry) ? *origin_of(entry).fetch_error : nullptr;
    const std::optional<Error> late =
        ended ? std::nullopt : std::optional(overdue(lock, entry, timeout));
    gate_.unlock_and_collect(lock);
    if (ended && failure) return Error(*failure);
    if (late) return *late;
  }
  return materialise(object, timeout);
}

detail::Value ClientEngine::get(const detail::ObjectHandle& object, Duration timeout) {
  return try_get(object, timeout).value();
}

bool ClientEngine::is_ready(const detail::ObjectHandle& object) {
  if (!object) return true;
  gate_.mark().expect_own();
  Entry& entry = entry_of(object);
  if (entry.ready.load(std::memory_order_acquire) || is_foreign(entry)) return true;
  Guard lock = gate_.guard();
  values_.need(entry, false);
  io_loop_->assist();  // does nothing while another thread leads: that would sleep on what we took
  const bool ready = entry.ready.load(std::memory_order_relaxed);
  gate_.unlock_and_collect(lock);
  return ready;
}

std::vector<std::size_t> ClientEngine::wait(std::span<const detail::ObjectHandle> objects,
                                            std::size_t count, Duration timeout) {
  struct Slot {
    std::vector<std::size_t>* order;
    std::size_t index;
    bool fired = false;
  };
  count = std::min(count, objects.size());
  std::vector<std::size_t> order;
  std::vector<Slot> slots(objects.size());
  Guard lock = gate_.guard();
  for (std::size_t i = 0; i < objects.size(); ++i) {
    slots[i] = {&order, i};
    if (!objects[i] || entry_of(objects[i]).ready.load(std::memory_order_acquire) ||
        is_foreign(entry_of(objects[i]))) {
      slots[i].fired = true;
      order.push_back(i);
    }
  }
  const std::size_t at_once = order.size();
  if (at_once < count) {
    const auto fire = [](Calls&, void* who, Entry&) {
      auto* slot = static_cast<Slot*>(who);
      slot->fired = true;
      slot->order->push_back(slot->index);
    };
    for (std::size_t i = 0; i < objects.size(); ++i) {
      if (slots[i].fired) continue;
      Entry& entry = entry_of(objects[i]);
      entry.waiters.edit().push_back({fire, &slots[i]});
      values_.need(entry, false);
    }
    struct Unregister {
      std::span<const detail::ObjectHandle> objects;
      std::vector<Slot>& slots;
      ~Unregister() {
        for (std::size_t i = 0; i < objects.size(); ++i)
          if (!slots[i].fired)
            std::erase_if(entry_of(objects[i]).waiters.edit(),
                          [&](const Waiter& w) { return w.who == &slots[i]; });
      }
    } unregister{objects, slots};
    if (timeout == detail::kNoTimeout && calls_.sender().loopback().on_actor_thread()) {
      std::size_t possible = at_once;
      for (std::size_t i = 0; i < objects.size(); ++i)
        possible += !slots[i].fired && !is_own_call(entry_of(objects[i]));
      if (possible < count) raise(Loopback::waits_for_itself());
    }
    const WaitingThreads::Here here(waits_.threads(), objects, count);
    waits_.block_until(
        lock, [&] { return order.size() >= count; }, deadline_after(steady_now(), timeout));
  }
  if (order.size() > count) order.resize(count);
  gate_.unlock_and_collect(lock);
  return order;
}

void ClientEngine::when_ready(const detail::ObjectHandle& object, std::function<void()> fire) {
  Entry& entry = entry_of(object);
  if (!is_here(entry) && !is_foreign(entry)) {
    Guard lock = gate_.guard();
    if (!is_here(entry)) {
      resumes_.add(object, std::move(fire), true);
      gate_.unlock_and_collect(lock);
      return;
    }
    gate_.unlock_and_collect(lock);
  }
  fire();
}

void ClientEngine::post(std::function<void()> work) {
  Guard lock = gate_.guard();
  callers_.work().resume(std::move(work));
  io_loop_->notify();
  gate_.unlock_and_collect(lock);
}

void ClientEngine::notify_when_ready(const detail::ObjectHandle& object,
                                     std::function<void()> told) {
  Entry& entry = entry_of(object);
  if (!is_here(entry) && !is_foreign(entry)) {
    Guard lock = gate_.guard();
    if (!is_here(entry) && !agent_.is_lost() && !waits_.is_over()) {
      resumes_.add(object, std::move(told), false);
      gate_.unlock_and_collect(lock);
      return;
    }
    gate_.unlock_and_collect(lock);
  }
  told();
}

Result<detail::Value> ClientEngine::peek(const detail::ObjectHandle& object) {
  Entry& entry = entry_of(object);
  if (is_foreign(entry)) return Values::of_another_session();
  if (is_here(entry)) {
    auto value = materialise(object, detail::kNoTimeout);
    if (value || value.error().code() != Code::object_lost) return value;
    return try_get(object, detail::kNoTimeout);
  }
  {
    const Guard lock = gate_.guard();
    if (const auto& why = *origin_of(entry).fetch_error; fetch_failed(entry) && why)
      return Error(*why);
  }
  return try_get(object, detail::kNoTimeout);
}

}  // namespace troupe::client
