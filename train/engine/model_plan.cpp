#include "troupe/train/engine/model_plan.hpp"

#include "troupe/train/engine/internal/plan.hpp"

#include <utility>

namespace troupe::train {

Index index_of(const Model& model, const Layout& layout, int pp_rank) {
  Index index = declare(model, layout, internal::rank_plan(model, layout, pp_rank).stages);
  index.seal({.dp = layout.dp});
  return index;
}

std::int64_t activation_bytes(const Model& model, const Layout& layout, const Spec& in,
                              int pp_rank) {
  const internal::RankPlan rank = internal::rank_plan(model, layout, pp_rank);
  internal::ArenaPlan arena(rank.live);
  arena.hold(internal::plan_pass(model, layout, rank.stages, in, internal::PassMode::training,
                                 rank.apart));
  return arena.bytes();
}

std::string memory_sentence(const Model& model, const Layout& layout, const Spec* in,
                            const OptimizerOptions& optimizer, int pp_rank) {
  PlannedModel planned;
  planned.index = [&](const Layout& other) { return index_of(model, other, pp_rank); };
  planned.activations = [&](const Layout& other) {
    return in == nullptr ? 0 : activation_bytes(model, other, *in, pp_rank);
  };
  planned.options.moments = optimizer.moments();
  const Plan wanted = plan(planned.index(layout), layout, planned.activations, planned.options);
  const std::vector<Plan> smaller = plans_that_fit(
      planned, {.memory = wanted.device_bytes() - 1, .ranks = {layout.dp}, .base = layout});
  return memory_sentence(wanted, 0, smaller);
}

PlannedModel planned(std::function<Model()> model, std::function<Spec(const Layout&)> input,
                     const OptimizerOptions& optimizer) {
  PlannedModel planned;
  planned.index = [model](const Layout& layout) { return index_of(model(), layout); };
  planned.activations = [model, input = std::move(input)](const Layout& layout) {
    const Model layers = model();
    index_of(layers, layout);  // layers know their tensors from then on
    return activation_bytes(layers, layout, input(layout));
  };
  planned.options.moments = optimizer.moments();
  return planned;
}

}  // namespace troupe::train
