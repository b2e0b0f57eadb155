#include "troupe/runtime/client/work_queue.hpp"

#include <map>

namespace troupe::client {

bool WorkQueue::judge_refused() {
  Calls calls, late;
  calls.swap(refused_);
  bool any = false;
  for (auto& call : calls) {
    if (out_.is_refused(call->from))
      late.push_back(std::move(call));
    else
      any |= take(std::move(call), false);
  }
  hand_back(late);
  return any;
}

void WorkQueue::hand_back(Calls& calls) {
  std::map<ProcessIndex, std::pair<std::uint64_t, std::uint64_t>> ranges;  // caller → first, last
  Calls kept;
  for (auto& incoming : calls) {
    const wire::Call& call = incoming->call;
    if (call.actor_low != 0) {
      kept.push_back(std::move(incoming));
      continue;
    }
    auto [at, fresh] = ranges.try_emplace(incoming->from, call.sequence, call.sequence);
    if (!fresh) at->second.second = call.sequence;
    out_.drop_refs(call);
  }
  calls.swap(kept);
  for (const auto& [caller, range] : ranges)
    out_.hand_back(caller, {range.first, range.second - range.first + 1});
}

void WorkQueue::drop_calls_of(ProcessIndex caller) {
  for (Calls* calls : {&calls_, &refused_})
    std::erase_if(*calls, [&](const std::shared_ptr<Incoming>& call) {
      if (call->from != caller) return false;
      out_.drop_refs(call->call);
      return true;
    });
}

void WorkQueue::next(std::shared_ptr<Incoming>& call, std::optional<ActorStart>& actor,
                     std::function<void()>& coroutine) {
  is_serving_ = true;
  if (!resumable_.empty()) {
    coroutine = std::move(resumable_.front());
    resumable_.pop_front();
  } else if (!starts_.empty()) {
    actor = std::move(starts_.front());
    starts_.pop_front();
  } else {
    call = std::move(calls_.front());
    calls_.pop_front();
  }
}

void WorkQueue::block() {
  hand_back_unstarted();
  if (blocked_++ == 0) out_.tell_blocked(true);
}

void WorkQueue::unblock() {
  if (--blocked_ == 0) out_.tell_blocked(false);
}

void WorkQueue::clear() {
  while (!resumable_.empty()) {
    const std::function<void()> dropped = std::move(resumable_.front());
    resumable_.pop_front();
  }
  calls_.clear();
  refused_.clear();
  starts_.clear();
}

}  // namespace troupe::client
