/// The joins that were asked for at a door and wait for the owner's answer. A plain state machine;
/// Transport feeds it what arrives at the door.
///
///     if (const char* why = joins.refusal(key, role, now)) return refuse(why);
///     const std::uint64_t id = joins.add(routing_id, key, now);   // ask the owner
///     if (auto join = joins.take(id)) answer(join->routing_id);   // the owner has answered
///
/// Their number is bounded. One key has one join at a time, and each join waits 30 s at most.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/runtime/net/keys.hpp"
#include "troupe/runtime/net/transport.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace troupe::net::internal {

class PendingJoins {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr Duration kAnswerWithin = std::chrono::seconds(30);

  struct Join {
    Blob routing_id;  ///< of the caller at the door
    PublicKey key;
    Time by;
  };

  /// Returns why a holder of this key may not join now, for people; null when it may. Forgets the
  /// joins whose time is over.
  const char* refusal(const PublicKey& key, Role role, Time now);
  /// Returns the new join's id, never 0. Precondition: refusal() has returned null.
  std::uint64_t add(const Blob& routing_id, const PublicKey& key, Time now);
  /// Removes and returns a join; nullopt when there is none.
  std::optional<Join> take(std::uint64_t id);

 private:
  std::map<std::uint64_t, Join> joins_;
  std::uint64_t last_ = 0;
};

}  // namespace troupe::net::internal
