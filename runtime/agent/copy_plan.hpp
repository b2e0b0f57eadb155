/// Decides which objects of this node get a copy in the shared spill folders, and when. A plain
/// state machine.
///
///     plan.wanted(object, now);                // another node holds it, and its value is known
///     while (auto object = plan.next(now)) {   // its turn; is it still held elsewhere?
///       plan.began(*object, bytes);            // or plan.skipped(*object)
///     }                                        // ... plan.ended(*object, now, true) when written
///     if (plan.over(object)) drop_copy(object);
///
/// An object is due when another node has wanted it for `after`, so that an object which is
/// fetched and released at once costs no disk. Due objects wait in order, so a slow disk copies
/// fewer objects, and those that live longest. An object that could not be written is tried again
/// after `retry`. When the folders refuse writes, no object is due for `retry`, and for twice as
/// long after each further refusal, up to `longest_pause`, until one is written.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace troupe::agent {

struct CopyPlanOptions {
  Duration after{std::chrono::milliseconds(100)};
  Duration retry{std::chrono::seconds(1)};
  Duration longest_pause{std::chrono::seconds(30)};
  std::uint64_t at_once{64u << 20};  ///< no write begins while this many bytes are being written
  std::size_t most{1 << 16};         ///< copies of a node; each is a file
};

class CopyPlan {
 public:
  explicit CopyPlan(CopyPlanOptions options = {}) : options_(options) {}

  /// Asks for a copy. Has no effect on an object that waits or has a copy.
  void wanted(ObjectId object, Time now);
  /// Ends the wish: the object is gone, or has another value. Returns true when the caller must
  /// delete the copy, written or being written.
  bool over(ObjectId object);
  /// The next object that is due and may be written now; began() or skipped() must follow.
  std::optional<ObjectId> next(Time now);
  /// Reports that the object is being written: `bytes` count against `at_once` until ended().
  void began(ObjectId object, std::uint64_t bytes);
  /// Drops the wish, since nobody elsewhere holds the object now. wanted() may follow.
  void skipped(ObjectId object);
  /// Whether over() was called while the object is being written. Precondition: began().
  bool is_over(ObjectId object) const { return objects_.at(object).over; }
  /// Ends the writing of began(); `well`: there is a copy now.
  void ended(ObjectId object, Time now, bool well);
  /// Reports that the folders refuse writes now.
  void refused(Time now);
  /// When next() may return an object; Time::max(): not before ended() or wanted().
  Time next_deadline() const;
  std::size_t waiting() const noexcept { return queue_.size(); }
  std::size_t size() const noexcept { return objects_.size(); }

 private:
  enum class State : std::uint8_t { waiting, writing, written };
  struct Object {
    State state = State::waiting;
    Time due{};
    std::uint64_t bytes = 0;           ///< of the copy that is being written
    bool over = false;                 ///< over() was called while it is being written
    std::optional<Time> wanted_again;  ///< wanted() was called after that
  };
  bool may_write() const noexcept {
    return writing_bytes_ < options_.at_once && objects_.size() - queue_.size() < options_.most;
  }

  CopyPlanOptions options_;
  std::map<ObjectId, Object> objects_;
  std::set<std::pair<Time, ObjectId>> queue_;
  std::uint64_t writing_bytes_ = 0;
  Time paused_until_{};
  Duration pause_{};
};

}  // namespace troupe::agent
