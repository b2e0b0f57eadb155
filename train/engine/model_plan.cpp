#include "troupe/train/engine/model_plan.hpp"

#include "troupe/train/engine/internal/exchanges.hpp"
#include "troupe/train/internal/sizes.hpp"

#include <utility>
#include <vector>

namespace troupe::train {

Index index_of(const Model& model, const Layout& layout, const RankPlace& rank) {
  Index index = declare(model, layout, internal::rank_plan(model, layout, rank.pp).stages, rank.tp);
  index.seal({.dp = layout.dp});
  return index;
}

std::int64_t activation_bytes(const Model& model, const Layout& layout, const Spec& in,
                              const RankPlace& rank) {
  const internal::RankPlan plan = internal::rank_plan(model, layout, rank.pp);
  internal::ArenaPlan arena(plan.live);
  arena.hold(internal::plan_pass(model, layout, plan.stages, in, internal::PassMode::training,
                                 plan.apart));
  return arena.bytes();
}

Exchanges exchanges_of(const Model& model, const Layout& layout, const Spec& in,
                       const RankPlace& rank) {
  const Index index = index_of(model, layout, rank);
  return internal::count_exchanges(model, layout, internal::rank_plan(model, layout, rank.pp),
                                   index, in);
}

namespace {

/// Returns the spec of the largest micro-batch when the same samples are trained on in another
/// layout.
Spec input_in(const Layout& other, const Layout& layout, Spec in) {
  if (in.shape.rank() == 0) return in;
  const std::int64_t parts = std::int64_t{other.dp} * other.micro;
  const std::int64_t all = internal::add_product(
      0, in.shape[0], std::int64_t{layout.dp} * layout.micro, "the batch of a step");
  in.shape.set(0, (all + parts - 1) / parts);
  return in;
}

std::string sentence_of(const Model& model, const Layout& layout, const Spec* in,
                        const OptimizerOptions& optimizer, const RankPlace& rank) {
  PlannedModel planned;
  planned.index = [&](const Layout& other, const RankPlace& place) {
    return index_of(model, other, place);
  };
  planned.activations = [&](const Layout& other, const RankPlace& place) {
    if (in == nullptr) return std::int64_t{0};
    return activation_bytes(model, other, input_in(other, layout, *in), place);
  };
  planned.options.moments = optimizer.moments();
  const Plan wanted = plan(planned, layout, rank);
  const std::vector<Plan> smaller = plans_that_fit(planned, {.memory = wanted.device_bytes() - 1,
                                                             .ranks = {layout.ranks()},
                                                             .most_tp = layout.ranks(),
                                                             .most_pp = layout.ranks(),
                                                             .base = layout});
  return memory_sentence(wanted, 0, smaller);
}

}  // namespace

/// Planning other layouts declares the layers for them. index_of() then declares them for this
/// rank again.
std::string memory_sentence(const Model& model, const Layout& layout, const Spec* in,
                            const OptimizerOptions& optimizer, const RankPlace& rank) {
  std::string text;
  try {
    text = sentence_of(model, layout, in, optimizer, rank);
  } catch (...) {
    index_of(model, layout, rank);
    throw;
  }
  index_of(model, layout, rank);
  return text;
}

PlannedModel planned(std::function<Model()> model, std::function<Spec(const Layout&)> input,
                     const OptimizerOptions& optimizer) {
  PlannedModel planned;
  planned.index = [model](const Layout& layout, const RankPlace& rank) {
    return index_of(model(), layout, rank);
  };
  planned.activations = [model, input](const Layout& layout, const RankPlace& rank) {
    const Model layers = model();
    index_of(layers, layout, rank);  // layers must know their tensors first
    return activation_bytes(layers, layout, input(layout), rank);
  };
  planned.exchanges = [model, input = std::move(input)](const Layout& layout,
                                                        const RankPlace& rank) {
    return exchanges_of(model(), layout, input(layout), rank);
  };
  planned.options.moments = optimizer.moments();
  return planned;
}

}  // namespace troupe::train
