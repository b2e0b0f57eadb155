/// Parts: the model, layout, memory and plans of an engine, which its passes and its update
/// share.
#pragma once

#include "troupe/actors/collective/mesh.hpp"
#include "troupe/train/engine/internal/gathers.hpp"
#include "troupe/train/engine/internal/slots.hpp"
#include "troupe/train/layers/layer.hpp"
#include "troupe/train/optimizers/norm.hpp"
#include "troupe/train/optimizers/optimizer.hpp"
#include "troupe/train/params/store.hpp"

#include <string>
#include <vector>

namespace troupe::train::internal {

/// A tensor of the whole model, independent of the layout.
struct CatalogueTensor {
  std::string name;
  Shape shape;
};
using Catalogue = std::vector<std::vector<CatalogueTensor>>;

struct Parts {
  /// Checks the arguments, declares the model's tensors and allocates the store. Throws as
  /// Engine::Engine().
  Parts(Model layers, const Layout& how, collective::Mesh& ranks, kernels::Device& where,
        const OptimizerOptions& rule);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  Model model;
  Layout layout;
  collective::Mesh& mesh;
  kernels::Device& device;
  OptimizerOptions optimizer;
  /// Tensors of the whole model by unit, of all stages; snapshots check against them.
  Catalogue catalogue;
  RankPlan pipeline;
  Index index;
  UnitsOfLayers units;
  Store store;

  RankPlace place() const noexcept { return {.tp = mesh.tp_rank, .pp = mesh.pp_rank}; }
  const RankStages& stages() const noexcept { return pipeline.stages; }
  bool has(int unit) const { return index.units()[static_cast<std::size_t>(unit)].size != 0; }
  int unit_count() const noexcept { return static_cast<int>(index.units().size()); }
  NormGroups norm_groups() const noexcept { return {mesh.dp.get(), mesh.tp.get(), mesh.pp.get()}; }
  /// Throws the error that ended the mesh, if one did. On a CPU an operation's wait throws it. On
  /// other devices Work::wait(device) does not, so call this once the results are on the host.
  void require_sound() const;
  int layer_count() const noexcept { return static_cast<int>(model.size()); }
  const Layer& layer(int l) const { return *model[static_cast<std::size_t>(l)]; }
};

}  // namespace troupe::train::internal
