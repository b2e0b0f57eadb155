/// Places: the position of each action in its rank's list.
#pragma once

#include "troupe/train/pipeline/schedule.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::train::internal {

/// A pipeline of p ranks, m micro-batches, and v stages on each rank.
struct PipelineShape {
  int p = 1, m = 1, v = 1;
  int stages() const noexcept { return p * v; }
  /// Throws for sizes below 1, and for more than 2^20 pairs of a stage and a micro-batch.
  void check() const;
};
/// Returns the smallest shape that holds every action. Throws like check(), and for an empty
/// schedule.
PipelineShape shape_of(const Schedule& schedule);

bool has_transfers(const Schedule& schedule) noexcept;

/// Positions of actions whose stage and micro-batch are in the shape.
class Places {
 public:
  static constexpr int kNone = -1;
  /// Every action must be in the shape and on its stage's rank. The last one of equal actions
  /// counts.
  Places(const Schedule& schedule, const PipelineShape& shape);
  explicit Places(const PipelineShape& shape);

  /// Returns the position in the list of the stage's rank; kNone when there is no such action.
  int operator()(Action::Op op, int stage, int micro) const { return at_[index(op, stage, micro)]; }
  int operator()(const Action& action) const {
    return (*this)(action.op, action.stage, action.micro);
  }
  void set(const Action& action, int at) { at_[index(action.op, action.stage, action.micro)] = at; }
  /// Returns B, or I where there is no B: the action that computes the gradient of the stage's
  /// input.
  Action backward(int stage, int micro) const {
    return {(*this)(Action::B, stage, micro) != kNone ? Action::B : Action::I, stage, micro};
  }

 private:
  static constexpr std::size_t kOps = 8;
  std::size_t index(Action::Op op, int stage, int micro) const noexcept {
    return (static_cast<std::size_t>(stage) * static_cast<std::size_t>(shape_.m) +
            static_cast<std::size_t>(micro)) *
               kOps +
           op;
  }

  PipelineShape shape_;
  std::vector<int> at_;
};

}  // namespace troupe::train::internal
