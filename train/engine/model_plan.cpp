#include "troupe/train/engine/model_plan.hpp"

#include "troupe/train/engine/internal/exchanges.hpp"
#include "troupe/train/internal/sizes.hpp"

#include <utility>
#include <vector>

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

Exchanges exchanges_of(const Model& model, const Layout& layout, const Spec& in, int pp_rank) {
  const Index index = index_of(model, layout, pp_rank);
  return internal::count_exchanges(model, layout, internal::rank_plan(model, layout, pp_rank),
                                   index, in);
}

namespace {

/// Of the same samples in another layout, the largest of a rank.
Spec input_in(const Layout& other, const Layout& layout, Spec in) {
  if (in.shape.rank() == 0) return in;
  const std::int64_t parts = std::int64_t{other.dp} * other.micro;
  const std::int64_t all = internal::add_product(
      0, in.shape[0], std::int64_t{layout.dp} * layout.micro, "the batch of a step");
  in.shape.set(0, (all + parts - 1) / parts);
  return in;
}

std::string sentence_of(const Model& model, const Layout& layout, const Spec* in,
                        const OptimizerOptions& optimizer, int pp_rank) {
  PlannedModel planned;
  planned.index = [&](const Layout& other, int rank) { return index_of(model, other, rank); };
  planned.activations = [&](const Layout& other, int rank) {
    return in == nullptr ? 0 : activation_bytes(model, other, input_in(other, layout, *in), rank);
  };
  planned.options.moments = optimizer.moments();
  const Plan wanted = plan(planned, layout, pp_rank);
  const std::vector<Plan> smaller = plans_that_fit(planned, {.memory = wanted.device_bytes() - 1,
                                                             .ranks = {layout.ranks()},
                                                             .most_tp = layout.ranks(),
                                                             .most_pp = layout.ranks(),
                                                             .base = layout});
  return memory_sentence(wanted, 0, smaller);
}

}  // namespace

/// Layers that were declared for other layouts know the tensors of this rank again.
std::string memory_sentence(const Model& model, const Layout& layout, const Spec* in,
                            const OptimizerOptions& optimizer, int pp_rank) {
  std::string text;
  try {
    text = sentence_of(model, layout, in, optimizer, pp_rank);
  } catch (...) {
    index_of(model, layout, pp_rank);
    throw;
  }
  index_of(model, layout, pp_rank);
  return text;
}

PlannedModel planned(std::function<Model()> model, std::function<Spec(const Layout&)> input,
                     const OptimizerOptions& optimizer) {
  PlannedModel planned;
  planned.index = [model](const Layout& layout, int pp_rank) {
    return index_of(model(), layout, pp_rank);
  };
  planned.activations = [model, input](const Layout& layout, int pp_rank) {
    const Model layers = model();
    index_of(layers, layout, pp_rank);  // layers know their tensors from then on
    return activation_bytes(layers, layout, input(layout), pp_rank);
  };
  planned.exchanges = [model, input = std::move(input)](const Layout& layout, int pp_rank) {
    return exchanges_of(model(), layout, input(layout), pp_rank);
  };
  planned.options.moments = optimizer.moments();
  return planned;
}

}  // namespace troupe::train
