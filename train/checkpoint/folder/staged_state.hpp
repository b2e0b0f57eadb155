/// StagedState: a rank's copy of its share of an engine's state, while a checkpoint is written.
///
///     engine.stage(staged);            // copies; the engine may then train on
///     exchange(*staged.plan, …);       // assembles whole tensors from the shares of all ranks
#pragma once

#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/optimizers/loss_scaler.hpp"
#include "troupe/train/params/index.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::train {

/// A range of one shard of a tensor that one rank has staged.
struct StagedPiece {
  int from = 0;         ///< rank of the stage
  int shard = 0;        ///< index of the shard; 0 for a tensor that is not divided
  Range range;          ///< of the shard's elements
  std::int64_t at = 0;  ///< first element in the staged values of `from`
  friend bool operator==(const StagedPiece&, const StagedPiece&) = default;
};

struct StagedTensor {
  std::string name;  ///< as in a Snapshot: "optimizer.m.…" for moments
  FileKind kind = FileKind::model;
  TensorPlace place;
  int writer = 0;  ///< rank of the stage that gets the whole tensor
  std::vector<StagedPiece> pieces;
};

/// Who stages what, and who writes which tensor. It covers the ranks of one pipeline stage, and
/// all of them compute the same plan.
struct StagePlan {
  int first = 0;  ///< rank in the mesh of the stage's first rank; the others follow
  int ranks = 1;
  std::vector<StagedTensor> tensors;   ///< weights first, then moments; by name
  std::vector<std::int64_t> elements;  ///< staged by each rank
};

/// Elements in which a tensor of a plan is owned.
struct PlannedTensor {
  std::string name;
  FileKind kind = FileKind::model;
  TensorPlace place;
  bool whole = false;          ///< every data-parallel rank has all of this rank's shard
  std::vector<Range> owned{};  ///< otherwise: the part of the shard of each data-parallel rank
};
/// Returns the plan for a stage of dp * tp ranks, which are numbered dp * TP + tp. `tensors` come
/// in any order. A pure function.
TROUPE_API StagePlan plan_stage(std::vector<PlannedTensor> tensors, int first, int dp, int tp);

struct StagedState {
  std::int64_t steps = 0;
  std::uint64_t seed = 0;
  std::optional<LossScale> loss_scale;
  std::int64_t moments_since = 0;
  std::shared_ptr<const StagePlan> plan;
  std::vector<float> values;  ///< of this rank's pieces, in the order of the plan
};

}  // namespace troupe::train
