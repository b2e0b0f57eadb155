// The ceiling of products: what the vendor's library makes of them with nothing of troupe between.
#pragma once

#include "troupe/kernels/device/device.hpp"

#include <memory>
#include <string>

namespace troupe::gpu {

class RawProducts {
 public:
  RawProducts() = default;
  RawProducts(const RawProducts&) = delete;
  RawProducts& operator=(const RawProducts&) = delete;
  virtual ~RawProducts() = default;
  /// "cuBLASLt 13.0.2".
  virtual std::string name() const = 0;
  /// Seconds of the product on the operands that are there, by the best of the algorithms that the
  /// library proposes. `tf32`: f32 operands, rounded. Throws std::runtime_error when it has none.
  virtual double seconds(const kernels::Gemm& product, bool tf32, double budget) = 0;
};

/// cuBLASLt for a CUDA device, opened at run time; for the CPU its BLAS. Throws std::runtime_error,
/// saying what is missing.
std::unique_ptr<RawProducts> raw_products(kernels::Device& device);

}  // namespace troupe::gpu
