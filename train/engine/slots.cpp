#include "troupe/train/engine/internal/slots.hpp"
#include "troupe/train/pipeline/text.hpp"

#include <algorithm>

namespace troupe::train::internal {

Slots::Slots(int p, std::size_t stages, std::size_t micros, bool apart)
    : p_(p), apart_(apart), stages_(stages), most_(stages) {
  for (Places& stage : stages_)
    for (std::vector<int>& held : stage.held) held.assign(micros, -1);
}

void Slots::take(Region region, const Action& action) {
  const auto r = static_cast<std::size_t>(region);
  Places& stage = stages_[local(action.stage)];
  int& held = stage.held[r][static_cast<std::size_t>(action.micro)];
  if (held >= 0) return;
  std::vector<bool>& used = stage.used[r];
  // The first free part, so that no more parts exist than were live at one time.
  held = static_cast<int>(std::find(used.begin(), used.end(), false) - used.begin());
  if (held == static_cast<int>(used.size())) used.push_back(false);
  used[static_cast<std::size_t>(held)] = true;
  most_[local(action.stage)][r] = static_cast<int>(used.size());
}

void Slots::give_back(Region region, const Action& action) {
  const auto r = static_cast<std::size_t>(region);
  Places& stage = stages_[local(action.stage)];
  int& held = stage.held[r][static_cast<std::size_t>(action.micro)];
  if (held < 0) return;
  stage.used[r][static_cast<std::size_t>(held)] = false;
  held = -1;
}

void Slots::before(const Action& action) {
  switch (action.op) {
    case Action::RecvF:
    case Action::F: return take(Region::slot, action);
    case Action::B:
    case Action::I:
      if (action.stage > 0) take(Region::outgoing, action);
      if (apart_) take(Region::pair, action);
      return;
    default: return;
  }
}

void Slots::after(const Action& action) {
  switch (action.op) {
    case Action::B:
    case Action::W: give_back(Region::slot, action); return give_back(Region::pair, action);
    case Action::SendB: return give_back(Region::outgoing, action);
    default: return;
  }
}

int Slots::of(Region region, int stage, int micro) const {
  const auto r = static_cast<std::size_t>(region);
  return stages_[local(stage)].held[r][static_cast<std::size_t>(micro)];
}

bool is_apart(const std::vector<Action>& list) noexcept {
  return std::any_of(list.begin(), list.end(),
                     [](const Action& action) { return action.op == Action::I; });
}

std::vector<LiveParts> live_of(const std::vector<Action>& list, const RankStages& stages,
                               int micros) {
  Slots slots(stages.ranks, stages.stages.size(), static_cast<std::size_t>(micros), is_apart(list));
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::max(group_end(list, at), at + 1);
    for (std::size_t i = at; i < end; ++i) slots.before(list[i]);
    for (std::size_t i = at; i < end; ++i) slots.after(list[i]);
    at = end;
  }
  return slots.most();
}

RankPlan rank_plan(const Model& model, const Layout& layout, int pp_rank) {
  const LayoutSchedule of_layout =
      layout.pp == 1
          ? LayoutSchedule{generate(ScheduleKind::one_forward_one_backward, 1, layout.micro), 1}
          : schedule_of(layout);
  RankPlan plan;
  plan.stages = rank_stages(model, layout.pp, of_layout.v, pp_rank);
  plan.actions = of_layout.schedule[static_cast<std::size_t>(pp_rank)];
  plan.live = live_of(plan.actions, plan.stages, layout.micro);
  plan.apart = is_apart(plan.actions);
  return plan;
}

}  // namespace troupe::train::internal
