#include "troupe/runtime/client/second_attempts.hpp"

namespace troupe::client {

Time SecondAttempts::due(std::string_view function, Time since) const {
  const auto usual = usual_.find(function);
  if (usual == usual_.end() || !usual->second.known()) return Time::max();
  return since + usual->second.too_long();
}

void SecondAttempts::pair(Task& slow, Task& second) {
  pairs_.emplace_back(&slow, &second);
  ++begun_;
}

Task* SecondAttempts::other(const Task& task) const noexcept {
  for (const auto& [first, second] : pairs_)
    if (first == &task || second == &task) return first == &task ? second : first;
  return nullptr;
}

Task* SecondAttempts::part(const Task& task) noexcept {
  Task* const found = other(task);
  if (found == nullptr) return nullptr;
  std::erase_if(pairs_,
                [&task](const auto& pair) { return pair.first == &task || pair.second == &task; });
  return found;
}

}  // namespace troupe::client
