/// What a core of control returns for one input: writes and events. The queue here keeps one rule
/// for all cores: an event that depends on a write leaves control after the write is durable.
///
///     Output<MembershipEvent> out = membership.on_register(message, now);
///     send(out.at_once);
///     queue.add(std::move(out));                      // writes and after_sync
///     auto group = queue.begin();                     // every batch that waits, in order
///     store.commit(group).value();                    // on the disk's thread; one fsync
///     queue.finish();
///     while (auto event = queue.pop()) send(*event);  // only now
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/control/store.hpp"

#include <deque>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::control {

/// Events in `at_once` may leave now. Events in `after_sync` may leave once `writes` and all
/// earlier writes of this control are durable. They wait for earlier writes even when `writes` is
/// empty, since they may show the effect of one.
template <class Event>
struct Output {
  Batch writes;
  std::vector<Event> at_once;
  std::vector<Event> after_sync;

  void append(Output other) {
    writes.append(std::move(other.writes));
    std::move(other.at_once.begin(), other.at_once.end(), std::back_inserter(at_once));
    std::move(other.after_sync.begin(), other.after_sync.end(), std::back_inserter(after_sync));
  }
};

/// Groups the writes of many steps into one commit while another is on its way to the disk. The
/// events of a step come out after its own commit and in the order of the steps.
template <class Event>
class CommitQueue {
 public:
  /// Queues `writes` and `after_sync`; the caller carries out `at_once`. The events of a step
  /// without writes wait only for the commits before it. When no commit is waiting or under way,
  /// pop() returns them at once.
  void add(Output<Event> out) {
    if (!out.writes.empty()) waiting_.push_back(std::move(out.writes));
    const std::uint64_t needed = waiting_.empty() ? last_ : last_ + 1;
    for (auto& event : out.after_sync) events_.push_back({needed, std::move(event)});
  }
  bool has_work() const noexcept { return !busy_ && !waiting_.empty(); }
  bool busy() const noexcept { return busy_; }

  /// Returns the batches for one commit, which is under way until finish(). Precondition:
  /// has_work().
  const std::vector<Batch>& begin() {
    TROUPE_ASSERT(has_work(), "a commit is begun with nothing to write or while one is under way");
    busy_ = true;
    group_ = std::exchange(waiting_, {});
    ++last_;
    return group_;
  }
  /// Call when the commit is durable.
  void finish() {
    busy_ = false;
    group_.clear();
  }
  /// Returns the next event whose commit is durable. It returns one event at a time, so that a step
  /// taken while an event is carried out queues behind the older events.
  std::optional<Event> pop() {
    const std::uint64_t durable = busy_ ? last_ - 1 : last_;
    if (events_.empty() || events_.front().first > durable) return std::nullopt;
    std::optional<Event> event(std::move(events_.front().second));
    events_.pop_front();
    return event;
  }

 private:
  std::vector<Batch> waiting_, group_;
  std::deque<std::pair<std::uint64_t, Event>> events_;  ///< with the commit that each waits for
  std::uint64_t last_ = 0;  ///< number of the commit that was begun last
  bool busy_ = false;
};

}  // namespace troupe::control
