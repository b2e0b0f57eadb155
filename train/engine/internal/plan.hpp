/// Where the activations of passes over a rank's stages lie in an arena.
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

/// Bytes that the first of anything in an arena is aligned to.
inline constexpr std::int64_t kArenaAlign = 256;

enum class PassMode : std::uint8_t {
  training,    ///< outputs and what layers save stay until backward
  inference,   ///< an output lives until the next layer has read it
  prediction,  ///< the same, and the loss layer predicts
};

/// A part of a region.
struct Extent {
  std::int64_t at = 0, bytes = 0;
  Region region = Region::work;
};

/// Of one layer.
struct LayerPlan {
  Spec in, out;
  Extent output, saved, carry;
  /// Of the gradient of its input. It takes the place of the layer's output, which backward does
  /// not read, where it fits and the backward pass is one action.
  Extent dx;
  /// Backward computes forward again first. Forward's own `saved` lies in a place that such layers
  /// share: `saved` as well, unless I and W are apart.
  bool again = false;
  Extent first_saved;
  Extent second_output;  ///< of that forward: where no gradient lies that backward reads
};

/// Of one stage.
struct StagePlan {
  std::vector<LayerPlan> layers;
  Extent input;  ///< from the stage before; none on the first
  Extent dy;     ///< from the next stage: where the stage's output was; none on the last
  Extent temporary;
  std::array<std::int64_t, kRegions> bytes{};

  const Spec& in() const { return layers.front().in; }
  const Spec& out() const { return layers.back().out; }
};

/// Of one micro-batch on one rank.
struct PassPlan {
  Spec in;   ///< of the model's first layer
  Spec out;  ///< of its last one: losses, or predictions
  PassMode mode = PassMode::training;
  std::vector<StagePlan> stages;  ///< the rank's, ascending
  Extent prediction;              ///< of what the last stage predicts: there, and on other ranks
  std::int64_t work = 0;          ///< bytes of the region
};

/// Pure. `apart`: I and W are actions of their own. Throws InvalidArgument when a layer cannot take
/// what comes to it, or when a region would have more than 2^58 bytes.
PassPlan plan_pass(const Model& model, const Layout& layout, const RankStages& stages,
                   const Spec& in, PassMode mode, bool apart = false);

/// Where each region of each stage begins: as large as the largest of the plans that it holds.
class ArenaPlan {
 public:
  explicit ArenaPlan(std::vector<LiveParts> live) : live_(std::move(live)), sizes_(live_.size()) {}
  void hold(const PassPlan& plan);
  /// Throws InvalidArgument past 2^58.
  std::int64_t bytes() const;
  /// First byte of the region's part `index`; `stage`: of the rank's, from 0.
  std::int64_t base(std::size_t stage, Region region, int index) const;

 private:
  std::vector<LiveParts> live_;
  std::int64_t work_ = 0;
  std::vector<std::array<std::int64_t, kRegions>> sizes_;
};

/// The memory that plans are laid over; grows to the largest.
class Arena {
 public:
  explicit Arena(kernels::Device& device) noexcept : device_(&device) {}
  /// What lies there is lost. Throws OutOfMemory.
  void grow(std::int64_t bytes);
  std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(memory_.bytes()); }
  void* at(std::int64_t byte) const noexcept {
    return static_cast<std::byte*>(memory_.data()) + byte;
  }

 private:
  kernels::Device* device_;
  kernels::Memory memory_;
};

/// The regions of one live micro-batch of a stage.
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
