#include "troupe/train/engine/internal/parts.hpp"

#include "troupe/train/engine/internal/with_plan.hpp"
#include "troupe/train/internal/reject.hpp"

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
  const bool narrow = layout.compute == DType::bf16 || layout.compute == DType::f16;
  if (layout.compute != DType::f32 && !narrow)
    reject("the engine does not compute in " + std::string(kernels::name_of(layout.compute)) +
           ": use compute = f32, bf16 or f16");
}

/// Checks everything that an engine is made of, before anything is allocated. Returns the
/// catalogue.
Catalogue checked_catalogue(const Model& model, const Layout& layout, const collective::Mesh& mesh,
                            const OptimizerOptions& optimizer) {
  require_model(model);
  require_layout(layout, mesh.shape);
  check(optimizer);
  const Index whole = declare(model, layout);
  Catalogue catalogue;
  for (const UnitPlace& unit : whole.units()) {
    catalogue.emplace_back();
    for (const TensorId id : unit.tensors)
      catalogue.back().push_back({whole[id].name, whole[id].global});
  }
  return catalogue;
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
      catalogue(checked_catalogue(model, layout, mesh, optimizer)),
      pipeline(rank_plan(model, layout, mesh.pp_rank)),
      index(sealed(declare(model, layout, pipeline.stages, mesh.tp_rank), layout)),
      units(units_of_layers(index)),
      store(with_plan(model, layout, place(), nullptr, optimizer, [this] {
        return Store(index, device,
                     {.zero = layout.zero,
                      .dp_rank = mesh.dp_rank,
                      .offload = layout.offload == Offload::optimizer,
                      .moments = optimizer.moments(),
                      .weights = layout.compute},
                     mesh.dp.get());
      })) {}

void Parts::require_sound() const {
  if (device.is_cpu() || mesh.world == nullptr || !mesh.world->is_over()) return;
  // The group is over: any operation of it throws the error that ended it.
  mesh.world->barrier();
}

}  // namespace troupe::train::internal
