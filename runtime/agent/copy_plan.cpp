#include "troupe/runtime/agent/copy_plan.hpp"

#include <algorithm>

namespace troupe::agent {

void CopyPlan::wanted(ObjectId id, Time now) {
  const auto [at, fresh] = objects_.try_emplace(id);
  Object& object = at->second;
  if (!fresh) {
    if (object.over) object.wanted_again = now;
    return;
  }
  object.due = now + options_.after;
  queue_.emplace(object.due, id);
}

bool CopyPlan::over(ObjectId id) {
  const auto found = objects_.find(id);
  if (found == objects_.end()) return false;
  Object& object = found->second;
  if (object.state == State::writing) {
    object.over = true;
    object.wanted_again.reset();
    return true;
  }
  const bool has_copy = object.state == State::written;
  queue_.erase({object.due, id});
  objects_.erase(found);
  return has_copy;
}

std::optional<ObjectId> CopyPlan::next(Time now) {
  if (queue_.empty() || queue_.begin()->first > now || now < paused_until_ || !may_write())
    return std::nullopt;
  return queue_.begin()->second;
}

void CopyPlan::began(ObjectId id, std::uint64_t bytes) {
  Object& object = objects_.at(id);
  queue_.erase({object.due, id});
  object.state = State::writing;
  object.bytes = bytes;
  writing_bytes_ += bytes;
}

void CopyPlan::skipped(ObjectId id) {
  queue_.erase({objects_.at(id).due, id});
  objects_.erase(id);
}

void CopyPlan::refused(Time now) {
  if (now < paused_until_) return;  // count one refusal for all writes that were under way
  pause_ = std::clamp(2 * pause_, options_.retry, options_.longest_pause);
  paused_until_ = now + pause_;
}

void CopyPlan::ended(ObjectId id, Time now, bool well) {
  if (well) {
    paused_until_ = {};
    pause_ = {};
  }
  Object& object = objects_.at(id);
  writing_bytes_ -= object.bytes;
  if (object.over) {
    const auto again = object.wanted_again;
    objects_.erase(id);
    if (again) wanted(id, *again);
    return;
  }
  object.state = well ? State::written : State::waiting;
  if (well) return;
  object.due = now + options_.retry;
  queue_.emplace(object.due, id);
}

Time CopyPlan::next_deadline() const {
  return queue_.empty() || !may_write() ? Time::max()
                                        : std::max(queue_.begin()->first, paused_until_);
}

}  // namespace troupe::agent
