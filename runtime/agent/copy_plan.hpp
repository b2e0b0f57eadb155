/// Which objects of this node get a copy in the shared spill folders, and when: a plain state
/// machine.
///
///     plan.wanted(object, now);                // another node holds it, and its value is known
///     while (auto object = plan.next(now)) {   // its turn; is it still held elsewhere?
///       plan.began(*object, bytes);            // or plan.skipped(*object)
///     }                                        // ... plan.ended(*object, now, true) when written
///     if (plan.over(object)) drop_copy(object);
///
/// An object has its turn when another node has wanted it for `after`: what is fetched and let go
/// at once costs no disk. Those wait in turn, so a disk that is too slow copies fewer, and those
/// that live longest. What could not be written is tried again after `retry`; when the folders
/// take nothing, nothing has its turn for as long, twice as long each time, until one is written.
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
  std::uint64_t at_once{64u << 20};  ///< bytes that are written at a time, but for the last one
  std::size_t most{1 << 16};         ///< copies of a node: each is a file
};

class CopyPlan {
 public:
  explicit CopyPlan(CopyPlanOptions options = {}) : options_(options) {}

  /// What waits or has a copy stays as it is.
  void wanted(ObjectId object, Time now);
  /// The object is gone, or has another value. True: its copy is to go, written or not.
  bool over(ObjectId object);
  std::optional<ObjectId> next(Time now);
  void began(ObjectId object, std::uint64_t bytes);
  void skipped(ObjectId object);
  /// What is being written is not wanted any more.
  bool is_over(ObjectId object) const { return objects_.at(object).over; }
  /// What began() is over; `well`: there is a copy now.
  void ended(ObjectId object, Time now, bool well);
  /// The folders take nothing now.
  void refused(Time now);
  /// When next() has something; max: not before something ends.
  Time next_deadline() const;
  std::size_t waiting() const noexcept { return queue_.size(); }
  std::size_t size() const noexcept { return objects_.size(); }

 private:
  enum class State : std::uint8_t { waiting, writing, written };
  struct Object {
    State state = State::waiting;
    Time due{};
    std::uint64_t bytes = 0;           ///< that are being written
    bool over = false;                 ///< meanwhile
    std::optional<Time> wanted_again;  ///< after that
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
