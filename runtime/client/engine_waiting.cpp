/// Waiting for values: get, wait and coroutines. A worker that waits gives its CPU back.
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/client/wait_reasons.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace troupe::client {

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
    if (auto value = value_bytes_.open(object, timeout); is_final(value)) return value;
  // A wait without a deadline needs no clock.
  Time now = timeout != detail::kNoTimeout ? steady_now() : Time{};
  const Time deadline = deadline_after(now, timeout);
  for (;;) {
    const std::uint64_t seen = waits_.recoveries();
    auto value = open_once(object, deadline, timeout, std::exchange(now, Time{}));
    if (is_final(value)) return value;
    Error error = value.error();
    Guard lock = gate_.guard();
    const bool again = seen != waits_.recoveries() || recovery_.recover(entry, error);
    if (again) values_.need(entry, true);
    gate_.unlock_and_collect(lock);
    if (!again) return error;
    // A recovered value may be lost again.
    if (timeout != detail::kNoTimeout && steady_now() >= deadline)
      return WaitReasons::no_result_after(timeout);
  }
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
      if (calls_.is_own(entry)) raise(Loopback::waits_for_itself());
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
        ended ? std::nullopt
              : std::optional(
                    WaitReasons(*this, calls_, questions_, waits_).overdue(lock, entry, timeout));
    gate_.unlock_and_collect(lock);
    if (ended && failure) return Error(*failure);
    if (late) return *late;
  }
  return value_bytes_.open(object, timeout);
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
        possible += !slots[i].fired && !calls_.is_own(entry_of(objects[i]));
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
    auto value = value_bytes_.open(object, detail::kNoTimeout);
    if (value || value.error().code() != Code::object_lost) return value;
    return try_get(object, detail::kNoTimeout);
  }
  Guard lock = gate_.guard();
  std::optional<Error> failed;
  if (const auto& why = *origin_of(entry).fetch_error; fetch_failed(entry) && why)
    failed.emplace(*why);
  gate_.unlock_and_collect(lock);
  if (failed) return *failed;
  return try_get(object, detail::kNoTimeout);
}

}  // namespace troupe::client
