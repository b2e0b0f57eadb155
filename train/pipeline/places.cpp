#include "troupe/train/pipeline/internal/places.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>

namespace troupe::train::internal {
namespace {

constexpr double kMostPairs = 1 << 20;

void check_size(const char* what, int value) {
  if (value < 1)
    reject("pipeline: " + std::string(what) + " is " + std::to_string(value) +
           "; it must be at least 1");
}

}  // namespace

void PipelineShape::check() const {
  check_size("the number of ranks", p);
  check_size("the number of micro-batches", m);
  check_size("the number of stages a rank", v);
  if (static_cast<double>(p) * m * v > kMostPairs)
    reject("pipeline: " + std::to_string(p) + " ranks, " + std::to_string(m) +
           " micro-batches and " + std::to_string(v) +
           " stages a rank make more than 2^20 forward passes: use fewer micro-batches");
}

PipelineShape shape_of(const Schedule& schedule) {
  int stage = 0, micro = 0;
  for (const auto& actions : schedule)
    for (const Action& action : actions) {
      stage = std::max(stage, action.stage);
      micro = std::max(micro, action.micro);
    }
  PipelineShape shape{.p = static_cast<int>(schedule.size()), .m = micro};
  if (shape.p > 0) shape.v = stage / shape.p + 1;
  if (micro < (1 << 20)) ++shape.m;
  shape.check();
  return shape;
}

bool has_transfers(const Schedule& schedule) noexcept {
  return std::any_of(schedule.begin(), schedule.end(), [](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(),
                       [](const Action& action) { return is_transfer(action.op); });
  });
}

Places::Places(const PipelineShape& shape)
    : shape_(shape),
      at_(static_cast<std::size_t>(shape.stages()) * static_cast<std::size_t>(shape.m) * kOps,
          kNone) {}

Places::Places(const Schedule& schedule, const PipelineShape& shape) : Places(shape) {
  for (const auto& actions : schedule)
    for (std::size_t i = 0; i < actions.size(); ++i) set(actions[i], static_cast<int>(i));
}

}  // namespace troupe::train::internal
