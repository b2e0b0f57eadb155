#include "troupe/runtime/client/in_place.hpp"

#include "troupe/runtime/client/tasks.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {

bool may_run_in_place(const Task& task) noexcept {
  const detail::Callable* callable = task.call.callable;
  if (callable == nullptr || callable->kind != detail::CallableKind::function ||
      callable->is_coroutine)
    return false;
  if (task.attempt != 1 || task.killed != 0 || task.may_have_run || task.had_second_attempt ||
      task.spec != nullptr || task.fate != Task::Fate::open)
    return false;
  // A second attempt runs beside the first, on another worker.
  return task.request == nullptr || !(task.request->isolated || task.request->second_attempt);
}

bool covers(const wire::ResourceDemand& lease, const wire::ResourceDemand& task, NodeId here) {
  constexpr std::int64_t kOneCpu = 10'000;
  if (lease.cpus < kOneCpu || lease.gpus != 0 || task.gpus != 0) return false;
  if (task.cpus > lease.cpus || task.memory_bytes > lease.memory_bytes) return false;
  switch (static_cast<detail::Request::Placement>(task.placement)) {
    case detail::Request::Placement::any:
    case detail::Request::Placement::pack: break;
    case detail::Request::Placement::spread: return false;
    case detail::Request::Placement::node:
      if (task.node != here) return false;
      break;
  }
  for (const auto& label : task.labels)
    if (std::find(lease.labels.begin(), lease.labels.end(), label) == lease.labels.end())
      return false;
  return std::all_of(task.resources.begin(), task.resources.end(), [&lease](const auto& wanted) {
    return std::any_of(lease.resources.begin(), lease.resources.end(), [&wanted](const auto& has) {
      return has.first == wanted.first && has.second >= wanted.second;
    });
  });
}

// --- Claim

void Claim::take(Task& task) noexcept {
  TROUPE_ASSERT(task_ == nullptr, "a process awaits one task at a time by running it");
  *this = {};
  task_ = &task;
}

bool Claim::returns(Task& task) noexcept {
  if (task_ != &task) return false;
  if (!may_run_in_place(task)) {  // it has begun elsewhere meanwhile
    *this = {};
    return false;
  }
  return returned_ = true;
}

Task* Claim::take_returned() noexcept {
  if (!returned_) return nullptr;
  returned_ = false;
  return std::exchange(task_, nullptr);
}

Task* Claim::to_recall() noexcept {
  if (task_ == nullptr || returned_ || std::exchange(recalled_, true)) return nullptr;
  return task_;
}

Task* Claim::leave() noexcept {
  Task* task = returned_ ? task_ : nullptr;
  *this = {};
  return task;
}

// --- StackRoom

bool StackRoom::is_enough(std::uintptr_t frame) const noexcept {
  constexpr std::size_t kLeast = 256 << 10;
  if (frame < low_ || frame - low_ >= size_) return false;
  return frame - low_ >= std::max(kLeast, size_ / 8);
}

}  // namespace troupe::client
