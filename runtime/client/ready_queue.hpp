/// The tasks that wait for a lease, in the order of sending; any of them can be taken out. Serves
/// TaskManager.
///
///     ReadyQueue<Task, &Task::sequence> ready;
///     ready.push_back(task);                         // task.sequence says where it is
///     if (ready.holds(task)) ready.erase(task);      // O(1), amortised
///     for (; !ready.empty(); ready.pop_front()) send(*ready.front());
///
/// A task that is taken out leaves a hole of 8 bytes. Holes at either end are removed at once.
/// There are never more than kHoles holes beyond the number of tasks.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>

namespace troupe::client {

/// kPlace belongs to the queue while the T is in it, and may have any value otherwise.
template <class T, std::uint64_t T::* kPlace>
class ReadyQueue {
 public:
  static constexpr std::size_t kHoles = 64;

  bool empty() const noexcept { return count_ == 0; }
  std::size_t size() const noexcept { return count_; }
  /// Precondition: not empty.
  T* front() const noexcept { return at_.front(); }
  /// Returns the task that is sent after `others` others; nullptr: there is none, or a hole.
  T* behind(std::size_t others) const noexcept {
    return others < next_ - first_ ? at_[others] : nullptr;
  }
  /// Precondition: the task is not in the queue; also of push_front().
  void push_back(T& task) {
    at_.push_back(&task);
    task.*kPlace = next_++;
    ++count_;
  }
  void push_front(T& task) {
    at_.push_front(&task);
    task.*kPlace = --first_;
    ++count_;
  }
  /// Precondition: not empty.
  void pop_front() {
    at_.pop_front();
    ++first_;
    --count_;
    if (count_ != next_ - first_) trim();
  }
  bool holds(const T& task) const noexcept {
    const std::uint64_t i = task.*kPlace - first_;  // a place before the first wraps around
    return i < next_ - first_ && at_[i] == &task;
  }
  /// Precondition: holds(task).
  void erase(T& task) {
    TROUPE_ASSERT(holds(task), "a task that is not ready is taken out");
    at_[task.*kPlace - first_] = nullptr;
    --count_;
    trim();
    if (at_.size() > 2 * count_ + kHoles) close_holes();
  }

 private:
  void trim() {
    while (!at_.empty() && at_.front() == nullptr) {
      at_.pop_front();
      ++first_;
    }
    while (!at_.empty() && at_.back() == nullptr) {
      at_.pop_back();
      --next_;
    }
  }
  void close_holes() {
    std::size_t to = 0;
    for (T* task : at_) {
      if (task == nullptr) continue;
      task->*kPlace = first_ + to;
      at_[to++] = task;
    }
    at_.resize(to);
    next_ = first_ + to;
  }

  std::deque<T*> at_;                             ///< neither end is a hole
  std::uint64_t first_ = std::uint64_t{1} << 62;  ///< place of the first
  std::uint64_t next_ = first_;                   ///< place of the next push_back()
  std::size_t count_ = 0;
};

}  // namespace troupe::client
