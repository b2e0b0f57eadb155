#include "troupe/runtime/net/internal/pending_joins.hpp"

#include <utility>

namespace troupe::net::internal {

const char* PendingJoins::refusal(const PublicKey& key, Role role, Time now) {
  std::erase_if(joins_, [&](const auto& one) { return one.second.by <= now; });
  if (role != Role::join) return "a member needs no token to join";
  if (joins_.size() >= kMost) return "too many nodes join at once";
  for (const auto& [id, join] : joins_)
    if (join.key == key) return "this token is in use";
  return nullptr;
}

std::uint64_t PendingJoins::add(const Blob& routing_id, const PublicKey& key, Time now) {
  joins_[++last_] = {routing_id, key, now + kAnswerWithin};
  return last_;
}

std::optional<PendingJoins::Join> PendingJoins::take(std::uint64_t id) {
  auto found = joins_.extract(id);
  if (!found) return std::nullopt;
  return std::move(found.mapped());
}

}  // namespace troupe::net::internal
