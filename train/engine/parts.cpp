#include "troupe/train/engine/internal/parts.hpp"

#include "troupe/train/engine/internal/with_plan.hpp"
#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <array>

namespace troupe::train::internal {
namespace {

void require_model(const Model& model) {
  require(!model.empty(), "the model has no layers: give at least one that is a loss");
  for (std::size_t l = 0; l < model.size(); ++l) {
    const bool last = l + 1 == model.size();
    if (model[l]->is_loss() == last) continue;
    reject(last ? "the model's last layer, " + model[l]->name() + ", is no loss: end it with one"
                : "layer " + model[l]->name() + " is a loss and stands before the model's end");
  }
}

void require_layout(const Layout& layout, const collective::MeshShape& shape) {
  check(layout, shape.ranks());
  const auto text = [](int dp, int tp, int pp) {
    return "dp=" + std::to_string(dp) + " tp=" + std::to_string(tp) + " pp=" + std::to_string(pp);
  };
  if (layout.dp != shape.dp || layout.tp != shape.tp || layout.pp != shape.pp)
    reject("the layout says " + text(layout.dp, layout.tp, layout.pp) +
           " and the mesh was made as " + text(shape.dp, shape.tp, shape.pp) +
           ": give both the same");
  if (layout.tp > 1 || layout.sequence)
    reject("the engine has no tensor or sequence parallelism yet: use dp=" +
           std::to_string(shape.ranks() / shape.pp) + " with tp=1");
  if (layout.compute != DType::f32)
    reject("the engine computes in f32 only: " + std::string(kernels::name_of(layout.compute)) +
           " is not there yet");
}

RankPlan checked_plan(const Model& model, const Layout& layout, const collective::Mesh& mesh,
                      const OptimizerOptions& optimizer) {
  require_model(model);
  require_layout(layout, mesh.shape);
  check(optimizer);
  return rank_plan(model, layout, mesh.pp_rank);
}

Index sealed(Index index, const Layout& layout) {
  index.seal({.dp = layout.dp});
  return index;
}

}  // namespace

Parts::Parts(Model layers, const Layout& how, collective::Mesh& ranks, kernels::Device& where,
             const OptimizerOptions& rule)
    : model(std::move(layers)),
      layout(how),
      mesh(ranks),
      device(where),
      optimizer(rule),
      pipeline(checked_plan(model, layout, mesh, optimizer)),
      index(sealed(declare(model, layout, pipeline.stages), layout)),
      units(units_of_layers(index)),
      store(with_plan(model, layout, mesh.pp_rank, nullptr, optimizer, [this] {
        return Store(index, device,
                     {.zero = layout.zero,
                      .dp_rank = mesh.dp_rank,
                      .offload = layout.offload == Offload::optimizer,
                      .moments = optimizer.moments()},
                     mesh.dp.get());
      })) {}

Totals exchange(collective::Communicator* dp, const Counts& mine) {
  constexpr std::size_t kNumbers = 3;
  const std::array<std::int64_t, kNumbers> sent = {mine.targets, mine.samples, mine.batches};
  const std::size_t ranks = dp == nullptr ? 1 : static_cast<std::size_t>(dp->size());
  std::vector<std::int64_t> all(sent.begin(), sent.end());
  all.resize(kNumbers * ranks);
  if (dp != nullptr)
    dp->all_gather(std::span<const std::int64_t>(sent), all,
                   {.purpose = collective::Purpose::count})
        .wait();
  Totals totals;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (dp != nullptr && static_cast<int>(rank) == dp->rank()) totals.first_sample = totals.samples;
    const std::int64_t batches = all[rank * kNumbers + 2];
    if (batches == kRefused && totals.refused_by < 0) totals.refused_by = static_cast<int>(rank);
    totals.targets += all[rank * kNumbers];
    totals.samples += all[rank * kNumbers + 1];
    totals.batches = std::max(totals.batches, batches);
  }
  return totals;
}

}  // namespace troupe::train::internal
