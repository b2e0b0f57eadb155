// Staging: copies a rank's share of the state, for a checkpoint in a folder.
#include "troupe/train/checkpoint/folder/staged_state.hpp"
#include "troupe/train/engine/internal/kinds.hpp"
#include "troupe/train/engine/internal/state.hpp"

#include <algorithm>

namespace troupe::train {
namespace {

using internal::Kind;

/// Returns the part of the tensor that each data-parallel rank owns, in elements of the shard.
std::vector<Range> owned_parts(const Index& index, const TensorPlace& tensor) {
  std::vector<Range> parts;
  const std::int64_t end = tensor.offset + tensor.local.count();
  for (int d = 0; d < index.dp(); ++d) {
    const Range slab = index.owned(tensor.unit, d);
    const std::int64_t first = std::max(slab.first, tensor.offset);
    parts.push_back(
        {first - tensor.offset, std::max<std::int64_t>(std::min(slab.end(), end) - first, 0)});
  }
  return parts;
}

StagePlan plan_of(const internal::Parts& parts) {
  std::vector<PlannedTensor> tensors;
  for (const Kind& kind : internal::kinds_of(parts.optimizer))
    for (const UnitPlace& unit : parts.index.units())
      for (const TensorId id : unit.tensors) {
        const TensorPlace& place = parts.index[id];
        PlannedTensor tensor{
            .name = std::string(kind.prefix) + place.name,
            .kind = kind.part == Part::weights ? FileKind::model : FileKind::optimizer,
            .place = place,
            .whole = parts.store.has_whole(kind.part)};
        if (!tensor.whole) tensor.owned = owned_parts(parts.index, place);
        tensors.push_back(std::move(tensor));
      }
  const collective::MeshShape& shape = parts.mesh.shape;
  return plan_stage(std::move(tensors), parts.mesh.pp_rank * shape.dp * shape.tp, shape.dp,
                    shape.tp);
}

Part part_of(const StagedTensor& tensor) {
  for (const Kind& kind : internal::kKinds)
    if (kind.part != Part::weights && tensor.name == std::string(kind.prefix) + tensor.place.name)
      return kind.part;
  return Part::weights;
}

}  // namespace

void Engine::State::stage(StagedState& to) {
  require_running();
  require_weights();
  if (!stage_plan) stage_plan = std::make_shared<const StagePlan>(plan_of(parts));
  to.steps = steps;
  to.seed = seed;
  to.loss_scale = scaler ? std::optional(scaler->state()) : std::nullopt;
  to.moments_since = update.moments_since();
  to.plan = stage_plan;
  const int me = parts.mesh.dp_rank * parts.mesh.shape.tp + parts.mesh.tp_rank;
  to.values.resize(static_cast<std::size_t>(stage_plan->elements[static_cast<std::size_t>(me)]));
  guarded("stage()", [&] {
    for (const StagedTensor& tensor : stage_plan->tensors)
      for (const StagedPiece& piece : tensor.pieces) {
        if (piece.from != me) continue;
        const Range range{tensor.place.offset + piece.range.first, piece.range.count};
        parts.store.read_part(
            tensor.place.unit, part_of(tensor), range,
            std::span(to.values).subspan(static_cast<std::size_t>(piece.at),
                                         static_cast<std::size_t>(piece.range.count)));
      }
  });
}

void Engine::stage(StagedState& to) {
  state_->with_plan(nullptr, [&] { state_->stage(to); });
}

}  // namespace troupe::train
