// Helpers of the tests of schedules.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/train/pipeline/schedule.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::train::pipeline_test {

inline constexpr ScheduleKind kGpipe = ScheduleKind::gpipe;
inline constexpr ScheduleKind k1f1b = ScheduleKind::one_forward_one_backward;
inline constexpr ScheduleKind kInterleaved = ScheduleKind::interleaved;

/// Returns the message of the call's InvalidArgument; "none" when it throws nothing.
template <class F>
std::string refusal_of(F&& call) {
  try {
    std::forward<F>(call)();
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "none";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Returns the schedule without its transfers.
inline Schedule computations_of(Schedule schedule) {
  for (auto& actions : schedule)
    std::erase_if(actions, [](const Action& action) { return is_transfer(action.op); });
  return schedule;
}

/// Makes computations in an order that some run of p ranks could have: at any time any
/// computation that is ready. Some backward passes are split into I and W, with other
/// computations between.
class RandomOrder {
 public:
  RandomOrder(int p, int m, int v, std::uint64_t seed)
      : p_(p),
        m_(m),
        stages_(p * v),
        random_(seed),
        state_(static_cast<std::size_t>(stages_ * m)) {}

  Schedule make() {
    Schedule schedule(static_cast<std::size_t>(p_));
    for (std::vector<Action> ready = all_ready(); !ready.empty(); ready = all_ready()) {
      const Action action = ready[random_() % ready.size()];
      schedule[static_cast<std::size_t>(action.stage % p_)].push_back(action);
      at(action.stage, action.micro) = action.op == Action::F   ? kForward
                                       : action.op == Action::I ? kInput
                                                                : kDone;
    }
    return schedule;
  }

 private:
  enum State : std::uint8_t { kNew, kForward, kInput, kDone };

  State& at(int stage, int micro) {
    return state_[static_cast<std::size_t>(stage) * static_cast<std::size_t>(m_) +
                  static_cast<std::size_t>(micro)];
  }
  std::vector<Action> all_ready() {
    std::vector<Action> ready;
    for (int s = 0; s < stages_; ++s)
      for (int k = 0; k < m_; ++k) {
        if (at(s, k) == kNew && (s == 0 || at(s - 1, k) != kNew))
          ready.push_back({Action::F, s, k});
        if (at(s, k) == kForward && (s + 1 == stages_ || at(s + 1, k) >= kInput))
          ready.push_back({random_() % 2 == 0 ? Action::B : Action::I, s, k});
        if (at(s, k) == kInput) ready.push_back({Action::W, s, k});
      }
    return ready;
  }

  int p_, m_, stages_;
  std::mt19937_64 random_;
  std::vector<State> state_;
};

}  // namespace troupe::train::pipeline_test
