/// Stages of a pipeline: which layers of a model a rank has.
///
///     const RankStages stages = rank_stages(model, layout.pp, /*v=*/1, mesh.pp_rank);
///     Index index = declare(model, layout, stages);   // of these layers
///
/// Layers before the first and after the last block (those with keeps_saved(): embedding, loss) go
/// with the first and the last stage. The blocks between are divided evenly over pp * v stages;
/// stage s lies on rank s % pp (Narayanan et al. 2021, section 2.2).
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

/// Throws InvalidArgument, one sentence that says which numbers would do, when the blocks do not
/// divide by `count`.
TROUPE_API std::vector<Stage> stages_of(const Model& model, int count);

/// One rank's.
struct RankStages {
  int rank = 0, ranks = 1;
  std::vector<Stage> stages;  ///< ascending: number i of the rank is stage i * ranks + rank of all

  int number(std::size_t i) const noexcept { return static_cast<int>(i) * ranks + rank; }
  bool has_first() const noexcept { return rank == 0; }
  bool has_last() const noexcept { return rank + 1 == ranks; }
  bool is_first(std::size_t i) const noexcept { return has_first() && i == 0; }
  bool is_last(std::size_t i) const noexcept { return has_last() && i + 1 == stages.size(); }
};
/// Of rank `rank` of p, with v stages a rank. Throws as stages_of().
TROUPE_API RankStages rank_stages(const Model& model, int p, int v, int rank);

/// The index of a rank, which is `tp_rank` of those that divide tensors: one unit for each layer of the whole model, and tensors of its own layers
/// alone; not sealed. A tensor of the first rank that layers of the last one are tied to has a copy
/// there, and a remote use here for each of them, in their order. Declares the layers as declare()
/// does; layers of other ranks know nothing of this index. Throws InvalidArgument when other ranks
/// share a tensor.
TROUPE_API Index declare(const Model& model, const Layout& layout, const RankStages& stages,
                         int tp_rank = 0);

/// Forward passes of any number of micro-batches, with their transfers: one list a rank.
TROUPE_API Schedule forward_schedule(int p, int v, int micros);

}  // namespace troupe::train
