/// Plans where the activations of a rank's passes lie in one arena.
#pragma once

#include "troupe/train/engine/internal/slots.hpp"
#include "troupe/train/engine/stages.hpp"
#include "troupe/train/layers/layer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::train::internal {

/// Alignment in bytes of everything that lies in an arena.
inline constexpr std::int64_t kArenaAlign = 256;

enum class PassMode : std::uint8_t {
  training,    ///< outputs and saved memory stay until backward
  inference,   ///< an output lives until the next layer has read it
  prediction,  ///< like inference, and the loss layer predicts
};

/// A part of a region.
struct Extent {
  std::int64_t at = 0, bytes = 0;
  Region region = Region::work;
};

/// Memory of one layer.
struct LayerPlan {
  Spec in, out;
  Extent output, saved, carry;
  /// Memory for the gradient of the layer's input. It reuses the layer's output, which backward
  /// does not read, if it fits there and the backward pass is one action.
  Extent dx;
  /// Full recompute: backward runs the layer's forward pass again first. The first forward pass
  /// then writes `first_saved`, which lies in memory that such layers share. So does `saved`,
  /// unless the backward pass is split into I and W.
  bool again = false;
  Extent first_saved;
  Extent second_output;  ///< output of the recomputed forward: where no gradient lies that backward
                         ///< reads
};

/// Memory of one stage.
struct StagePlan {
  std::vector<LayerPlan> layers;
  Extent input;  ///< received from the stage before; none on the first
  Extent dy;     ///< received from the next stage, in place of the stage's output; none on the last
  Extent temporary;
  std::array<std::int64_t, kRegions> bytes{};

  const Spec& in() const { return layers.front().in; }
  const Spec& out() const { return layers.back().out; }
};

/// Memory of one micro-batch on one rank.
struct PassPlan {
  Spec in;   ///< input of the model's first layer
  Spec out;  ///< output of its last layer: losses, or predictions
  PassMode mode = PassMode::training;
  std::vector<StagePlan> stages;  ///< the rank's, ascending
  Extent prediction;              ///< of the last stage's prediction, which other ranks receive
  std::int64_t work = 0;          ///< bytes of Region::work
};

/// Plans a pass; a pure function. `apart`: the backward pass is split into I and W actions.
/// Throws InvalidArgument when a layer does not accept its input, or when a region would exceed
/// 2^58 bytes.
PassPlan plan_pass(const Model& model, const Layout& layout, const RankStages& stages,
                   const Spec& in, PassMode mode, bool apart = false);

/// Where each region of each stage begins. A region is as large as the largest of the held plans
/// needs it.
class ArenaPlan {
 public:
  explicit ArenaPlan(std::vector<LiveParts> live) : live_(std::move(live)), sizes_(live_.size()) {}
  void hold(const PassPlan& plan);
  /// Throws InvalidArgument above 2^58 bytes.
  std::int64_t bytes() const;
  /// Returns the first byte of part `index` of the region. `stage` is an index among the rank's
  /// stages, from 0.
  std::int64_t base(std::size_t stage, Region region, int index) const;

 private:
  std::vector<LiveParts> live_;
  std::int64_t work_ = 0;
  std::vector<std::array<std::int64_t, kRegions>> sizes_;
};

/// The memory that plans describe. Grows to the largest one.
class Arena {
 public:
  explicit Arena(kernels::Device& device) noexcept : device_(&device) {}
  /// Grows to `bytes` and invalidates the contents. Throws OutOfMemory.
  void grow(std::int64_t bytes);
  std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(memory_.bytes()); }
  void* at(std::int64_t byte) const noexcept {
    return static_cast<std::byte*>(memory_.data()) + byte;
  }

 private:
  kernels::Device* device_;
  kernels::Memory memory_;
};

/// Where the regions of one live micro-batch of a stage lie.
class Place {
 public:
  Place() = default;
  Place(const Arena& arena, const std::array<std::int64_t, kRegions>& bases) noexcept
      : arena_(&arena), bases_(bases) {}
  TensorView view(const Extent& extent, const Spec& spec) const noexcept {
    return {at(extent), spec};
  }
  TensorView bytes_of(const Extent& extent) const noexcept {
    return {at(extent), DType::u8, {extent.bytes}};
  }

 private:
  void* at(const Extent& extent) const noexcept {
    return arena_->at(bases_[static_cast<std::size_t>(extent.region)] + extent.at);
  }
  const Arena* arena_ = nullptr;
  std::array<std::int64_t, kRegions> bases_{};
};

}  // namespace troupe::train::internal
