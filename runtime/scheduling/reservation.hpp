/// When a request that has waited long holds younger ones back, so that what it needs can gather.
/// A plain state machine, used by LeaseTable.
///
///     if (reservation.may_hold(key, now))
///       if (auto length = how_soon(request)) reservation.hold(key, *length, now);
///     reservation.met(key, now);                        // its lease was granted
///
/// One request at a time holds others back, for the length that was asked for. After a window in
/// vain none begins for nine times as long, whoever asks. So at most a tenth of the time is lost.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/scheduling/waiting_requests.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace troupe::scheduling {

class Reservation {
 public:
  /// Returns whether the request's window is open, or whether one is due.
  bool may_hold(const RequestKey& key, Time now) const {
    return now < until_ ? key == key_ : now >= next_;
  }
  /// Opens the request's window unless it is open. Precondition: may_hold().
  void hold(const RequestKey& key, Duration length, Time now) {
    if (now < until_) return;
    key_ = key;
    until_ = now + length;
    next_ = until_ + kPause * length;
  }
  /// The request was granted a lease: if its window was open, the next one may begin at once.
  void met(const RequestKey& key, Time now) {
    if (now < until_ && key == key_) until_ = next_ = now;
  }
  /// Returns when the open window ends.
  Time until() const noexcept { return until_; }

 private:
  static constexpr int kPause = 9;
  RequestKey key_;
  Time until_{}, next_{};
};

/// How long leases of a request last after they were asked back, as far as it is known. A long
/// time counts at once, and is forgotten little by little.
class RunTimes {
 public:
  void add(const RequestKey& key, Duration time) {
    if (known_.size() >= kMost && !known_.contains(key)) known_.clear();
    Duration& known = known_[key];
    known = std::max(time, known - known / 4);
  }
  std::optional<Duration> find(const RequestKey& key) const {
    const auto at = known_.find(key);
    if (at == known_.end()) return std::nullopt;
    return at->second;
  }
  /// Forgets the requests of an owner that is gone.
  void forget(ProcessIndex owner) {
    std::erase_if(known_, [owner](const auto& entry) { return entry.first.first == owner; });
  }

 private:
  static constexpr std::size_t kMost = 4096;
  std::map<RequestKey, Duration> known_;
};

}  // namespace troupe::scheduling
