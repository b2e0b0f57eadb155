#include "troupe/train/engine/internal/pipeline.hpp"

#include "troupe/runtime/base/clock.hpp"

#include <algorithm>

namespace troupe::train::internal {
namespace {

bool ends_backward(const Action& action) noexcept {
  return action.op == Action::B || action.op == Action::W;
}

/// Returns the memory that the transfer sends or fills.
TensorView payload_of(const Turn& turn, Action::Op op) {
  const StagePlan& plan = turn.plan();
  switch (op) {
    case Action::SendF: return turn.place.view(plan.layers.back().output, plan.out());
    case Action::RecvF: return turn.place.view(plan.input, plan.in());
    case Action::SendB: return turn.place.view(plan.layers.front().dx, plan.in());
    default: return turn.place.view(plan.dy, plan.out());
  }
}

}  // namespace

/// The run of one list.
struct Pipeline::Walk {
  const std::vector<Action>& list;
  const std::vector<Pass>& passes;
  StepTrace& trace;
  int ranks;
  Slots slots;
  std::vector<std::size_t> ends;  // for each stage the index of its last backward action
  std::size_t end = 0;            // the largest of `ends`

  Walk(const RankPlan& plan, const std::vector<Action>& actions, const std::vector<Pass>& all,
       StepTrace& times)
      : list(actions),
        passes(all),
        trace(times),
        ranks(plan.stages.ranks),
        slots(ranks, plan.stages.stages.size(), all.size(), plan.apart),
        ends(plan.stages.stages.size()) {
    for (std::size_t at = 0; at < list.size(); ++at)
      if (ends_backward(list[at])) ends[stage_of(list[at])] = end = at;
  }
  const Pass& pass_of(const Action& action) const {
    return passes[static_cast<std::size_t>(action.micro)];
  }
  std::size_t stage_of(const Action& action) const noexcept {
    return static_cast<std::size_t>(action.stage / ranks);
  }
  Turn turn_of(const Action& action, const Passes& of) const {
    const std::size_t stage = stage_of(action);
    return {pass_of(action), stage, action.micro, of.place_of(slots, stage, action.micro)};
  }
};

Pipeline::Pipeline(Parts& parts, Passes& passes) : parts_(&parts), passes_(&passes), ties_(parts) {}

void Pipeline::compute(Walk& walk, std::size_t at) {
  const Action& action = walk.list[at];
  const Turn turn = walk.turn_of(action, *passes_);
  const Time start = steady_now();
  if (action.op == Action::F) {
    passes_->forward(turn);
    walk.trace.forward += steady_now() - start;
    return;
  }
  passes_->backward(turn, {.input = action.op != Action::W,
                           .weights = action.op != Action::I,
                           .ends_stage = at == walk.ends[turn.stage],
                           .ends_rank = at == walk.end});
  walk.trace.backward += steady_now() - start;
}

void Pipeline::transfer(Walk& walk, std::size_t at, std::size_t end) {
  std::vector<Action> all(walk.list.begin() + static_cast<std::ptrdiff_t>(at),
                          walk.list.begin() + static_cast<std::ptrdiff_t>(end));
  std::erase_if(all, [&](const Action& each) { return walk.pass_of(each).plan == nullptr; });
  if (all.empty()) return;
  const Time start = steady_now();
  const auto calls = [&](collective::Transfers& transfers) {
    for (const Action& each : all) {
      const kernels::Buffer data = buffer_of(payload_of(walk.turn_of(each, *passes_), each.op));
      const int peer = peer_rank(each, walk.ranks);
      if (is_send(each.op))
        transfers.send(data, peer);
      else
        transfers.receive(data, peer);
    }
  };
  parts_->mesh.pp->group(calls, {.after = parts_->device.record(parts_->device.compute())})
      .wait(parts_->device);
  walk.trace.bubble += steady_now() - start;
}

void Pipeline::run(const std::vector<Action>& list, const std::vector<Pass>& passes, PassMode mode,
                   StepTrace& trace) {
  const bool trains = mode == PassMode::training;  // in other modes no memory outlives its action
  Walk walk(parts_->pipeline, list, passes, trace);
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t transfers = group_end(list, at), end = std::max(transfers, at + 1);
    for (std::size_t i = at; trains && i < end; ++i) walk.slots.before(list[i]);
    if (transfers > at)
      transfer(walk, at, end);
    else
      compute(walk, at);
    for (std::size_t i = at; trains && i < end; ++i) walk.slots.after(list[i]);
    at = end;
  }
}

void Pipeline::step(const PassTerms& terms, const std::vector<Pass>& passes, StepTrace& trace) {
  passes_->begin(terms, PassMode::training, static_cast<int>(passes.size()));
  run(parts_->pipeline.actions, passes, PassMode::training, trace);
  const Time start = steady_now();
  ties_.reduce(passes_->reductions());
  trace.bubble += steady_now() - start;
}

void Pipeline::run_forward(const PassTerms& terms, const std::vector<Pass>& passes, PassMode mode) {
  const RankStages& stages = parts_->stages();
  const auto micros = static_cast<int>(passes.size());
  passes_->begin(terms, mode, micros);
  const Schedule schedule =
      forward_schedule(stages.ranks, static_cast<int>(stages.stages.size()), micros);
  StepTrace trace;
  run(schedule[static_cast<std::size_t>(stages.rank)], passes, mode, trace);
}

void Pipeline::forward(const PassTerms& terms, const std::vector<Pass>& passes) {
  run_forward(terms, passes, PassMode::inference);
}

TensorView Pipeline::predict(const PassTerms& terms, const std::vector<Pass>& one) {
  run_forward(terms, one, PassMode::prediction);
  const Pass& pass = one.front();
  if (pass.plan == nullptr) return {};
  const RankStages& stages = parts_->stages();
  TensorView result = passes_->prediction_of(pass);
  if (stages.ranks > 1)
    parts_->mesh.pp
        ->broadcast(buffer_of(result), stages.ranks - 1,
                    {.after = parts_->device.record(parts_->device.compute())})
        .wait();
  return result;
}

}  // namespace troupe::train::internal
