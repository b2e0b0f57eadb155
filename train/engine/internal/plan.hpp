/// Where the activations of one pass over the model lie in an arena.
#pragma once

#include "troupe/train/layers/layer.hpp"

#include <cstdint>
#include <vector>

namespace troupe::train::internal {

/// Bytes that the first of anything in an arena is aligned to.
inline constexpr std::int64_t kArenaAlign = 256;

enum class PassMode : std::uint8_t {
  training,    ///< outputs and what layers save stay until backward
  inference,   ///< an output lives until the next layer has read it
  prediction,  ///< the same, and the loss layer predicts
};

/// A part of an arena.
struct Extent {
  std::int64_t at = 0, bytes = 0;
};

/// Of one layer.
struct LayerPlan {
  Spec in, out;
  Extent output, saved;
  /// Of the gradient of its input. It takes the place of the layer's output, which backward does
  /// not read, where it fits.
  Extent dx;
  bool again = false;  ///< backward computes forward again first; `saved` is shared by such layers
};

struct PassPlan {
  Spec in;
  PassMode mode = PassMode::training;
  std::vector<LayerPlan> layers;
  Extent carry, temporary;
  std::int64_t bytes = 0;  ///< of the arena
};

/// Pure. Throws InvalidArgument when a layer cannot take what comes to it, or when the arena would
/// have more than 2^58 bytes.
PassPlan plan_pass(const Model& model, const Layout& layout, const Spec& in, PassMode mode);

/// The memory that plans are laid over; grows to the largest.
class Arena {
 public:
  explicit Arena(kernels::Device& device) noexcept : device_(&device) {}
  /// What lies there is lost. Throws OutOfMemory.
  void grow(std::int64_t bytes);
  std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(memory_.bytes()); }
  TensorView view(const Extent& place, const Spec& spec) const noexcept {
    return {at(place), spec};
  }
  TensorView bytes_of(const Extent& place) const noexcept {
    return {at(place), DType::u8, {place.bytes}};
  }

 private:
  void* at(const Extent& place) const noexcept {
    return static_cast<std::byte*>(memory_.data()) + place.at;
  }
  kernels::Device* device_;
  kernels::Memory memory_;
};

}  // namespace troupe::train::internal
