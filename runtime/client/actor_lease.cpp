#include "troupe/runtime/client/actor_lease_timer.hpp"

#include <algorithm>

namespace troupe::client {

ActorLease actor_lease_at(std::int64_t word, Time now) noexcept {
  if (word == kServesAlways) return {true, Time::max(), Time::max()};
  const Time until{Duration(word)};
  if (until <= now) return {false, now, now + ActorLease::kShortest};
  return {true, until, now + std::max<Duration>((until - now) / 2, ActorLease::kShortest)};
}

}  // namespace troupe::client
