/// Stages of a pipeline: divides the layers of a model among ranks.
///
///     const RankStages stages = rank_stages(model, layout.pp, /*v=*/1, mesh.pp_rank);
///     Index index = declare(model, layout, stages);   // of these layers
///
/// Blocks are the layers from the first to the last one without keeps_saved(). Layers before them
/// (embedding) belong to the first stage, and layers after them (head, loss) to the last. The
/// blocks are divided evenly over pp * v stages. Stage s lies on rank s % pp (Narayanan et al.
/// 2021, section 2.2).
#pragma once

#include "troupe/train/layers/layer.hpp"
#include "troupe/train/layout.hpp"
#include "troupe/train/pipeline/schedule.hpp"

#include <cstddef>
#include <vector>

namespace troupe::train {

/// Layers [first, end) of the model.
struct Stage {
  int first = 0, end = 0;
  int size() const noexcept { return end - first; }
  bool has(int layer) const noexcept { return layer >= first && layer < end; }
  friend bool operator==(const Stage&, const Stage&) = default;
};

/// Divides the model into `count` stages. Throws InvalidArgument, one sentence with counts that
/// fit, when `count` does not divide the blocks.
TROUPE_API std::vector<Stage> stages_of(const Model& model, int count);

/// The stages of one rank.
struct RankStages {
  int rank = 0, ranks = 1;
  std::vector<Stage> stages;  ///< ascending; stage i of the rank is stage i * ranks + rank of all

  int number(std::size_t i) const noexcept { return static_cast<int>(i) * ranks + rank; }
  bool has_first() const noexcept { return rank == 0; }
  bool has_last() const noexcept { return rank + 1 == ranks; }
  bool is_first(std::size_t i) const noexcept { return has_first() && i == 0; }
  bool is_last(std::size_t i) const noexcept { return has_last() && i + 1 == stages.size(); }
};
/// Returns the stages of rank `rank` of p, with v stages for each rank. Throws as stages_of().
TROUPE_API RankStages rank_stages(const Model& model, int p, int v, int rank);

/// Returns the index of a rank, not sealed. It has one unit for each layer of the whole model,
/// with tensors of the rank's own layers alone. `tp_rank` is the rank's index in its
/// tensor-parallel group.
///
/// Layers of the last rank may be tied to a tensor of the first rank. The last rank then has a
/// copy of the tensor, and the first rank one remote use for each such layer, in their order.
/// Declares the layers as declare() does; layers of other ranks do not record this index. Throws
/// InvalidArgument when other ranks share a tensor.
TROUPE_API Index declare(const Model& model, const Layout& layout, const RankStages& stages,
                         int tp_rank = 0);

/// Returns the schedule of forward passes alone with their transfers, for any number of
/// micro-batches.
TROUPE_API Schedule forward_schedule(int p, int v, int micros);

}  // namespace troupe::train
