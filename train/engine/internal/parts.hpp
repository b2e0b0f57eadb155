/// What an engine is made of, for its passes and its update.
#pragma once

#include "troupe/actors/collective/mesh.hpp"
#include "troupe/train/engine/internal/gathers.hpp"
#include "troupe/train/engine/internal/slots.hpp"
#include "troupe/train/layers/layer.hpp"
#include "troupe/train/optimizers/optimizer.hpp"
#include "troupe/train/params/store.hpp"

namespace troupe::train::internal {

struct Parts {
  /// Checks, declares the model's tensors and makes their memory. Throws as Engine::Engine().
  Parts(Model layers, const Layout& how, collective::Mesh& ranks, kernels::Device& where,
        const OptimizerOptions& rule);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  Model model;
  Layout layout;
  collective::Mesh& mesh;
  kernels::Device& device;
  OptimizerOptions optimizer;
  RankPlan pipeline;
  Index index;
  UnitsOfLayers units;
  Store store;

  const RankStages& stages() const noexcept { return pipeline.stages; }
  bool has(int unit) const { return index.units()[static_cast<std::size_t>(unit)].size != 0; }
  int unit_count() const noexcept { return static_cast<int>(index.units().size()); }
  int layer_count() const noexcept { return static_cast<int>(model.size()); }
  const Layer& layer(int l) const { return *model[static_cast<std::size_t>(l)]; }
};

/// What a rank brings to a call in which all ranks take part.
struct Counts {
  std::int64_t targets = 0;
  std::int64_t samples = 0;
  std::int64_t batches = 0;  ///< kRefused: it refuses its inputs, and no rank goes on
};
inline constexpr std::int64_t kRefused = -1;

/// Of all data-parallel ranks, for one step.
struct Totals {
  std::int64_t targets = 0;
  std::int64_t samples = 0;
  std::int64_t batches = 0;       ///< of the rank that has the most
  std::int64_t first_sample = 0;  ///< of this rank, when samples are numbered by rank
  int refused_by = -1;            ///< the first rank that refuses its inputs; -1: none
};

/// Every rank calls it with its own numbers. Throws errors of the group.
Totals exchange(collective::Communicator* dp, const Counts& mine);

}  // namespace troupe::train::internal
