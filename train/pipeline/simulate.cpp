#include "troupe/train/pipeline/simulate.hpp"

#include "troupe/train/internal/reject.hpp"
#include "troupe/train/pipeline/internal/checks.hpp"
#include "troupe/train/pipeline/validate.hpp"

#include <algorithm>

namespace troupe::train {
namespace {

using internal::PipelineShape;

void check_cost(const char* what, double cost) {
  if (!(cost >= 0 && cost <= 1e100))
    internal::reject("pipeline: the cost of " + std::string(what) + " is " + std::to_string(cost) +
                     "; it must be at least 0 and at most 1e100");
}

PipelineShape checked_shape(const Schedule& schedule) {
  const PipelineShape shape = internal::shape_of(schedule);
  if (internal::has_transfers(schedule))
    validate(schedule, shape.p, shape.m, shape.v);
  else
    internal::check_actions(schedule, shape, internal::With::computations);
  return shape;
}

/// Counts live micro-batches while a rank walks through its list.
class Count {
 public:
  void change(int by) {
    now_ += by;
    most_ = std::max(most_, now_);
  }
  int most() const noexcept { return most_; }

 private:
  int now_ = 0, most_ = 0;
};

int change_by(Action::Op op) noexcept {
  if (op == Action::F) return 1;
  return op == Action::B || op == Action::W ? -1 : 0;
}

}  // namespace

Timeline simulate(const Schedule& schedule, const Costs& costs) {
  check_cost("forward", costs.forward);
  check_cost("input", costs.input);
  check_cost("weight", costs.weight);
  check_cost("transfer", costs.transfer);
  const PipelineShape shape = checked_shape(schedule);
  internal::Played played = internal::play(schedule, shape, costs);
  internal::check_ends(schedule, played);
  Timeline timeline{.spans = std::move(played.spans)};
  double busy = 0;
  for (std::size_t r = 0; r < schedule.size(); ++r)
    for (std::size_t i = 0; i < schedule[r].size(); ++i) {
      const Span& span = timeline.spans[r][i];
      timeline.makespan = std::max(timeline.makespan, span.end);
      if (!is_transfer(schedule[r][i].op)) busy += span.end - span.start;
    }
  if (timeline.makespan > 0) timeline.bubble = 1 - busy / (shape.p * timeline.makespan);
  return timeline;
}

Live live_micro_batches(const Schedule& schedule) {
  const PipelineShape shape = checked_shape(schedule);
  std::vector<Count> stages(static_cast<std::size_t>(shape.stages())), ranks(schedule.size());
  for (std::size_t r = 0; r < schedule.size(); ++r)
    for (const Action& action : schedule[r]) {
      stages[static_cast<std::size_t>(action.stage)].change(change_by(action.op));
      ranks[r].change(change_by(action.op));
    }
  Live live;
  for (const Count& stage : stages) live.stages.push_back(stage.most());
  for (const Count& rank : ranks) live.ranks.push_back(rank.most());
  return live;
}

}  // namespace troupe::train
