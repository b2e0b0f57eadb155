// The ceiling of products: the vendor's library, called without any code of troupe between.
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
  /// Returns name and version, such as "cuBLASLt 13.0.2".
  virtual std::string name() const = 0;
  /// Returns the seconds of the product on its operands, by the best algorithm that the library
  /// proposes. `tf32` rounds f32 operands. Throws std::runtime_error when the library proposes
  /// none.
  virtual double seconds(const kernels::Gemm& product, bool tf32, double budget) = 0;
};

/// Opens cuBLASLt for a CUDA device at run time; returns the BLAS for a CPU. Throws
/// std::runtime_error with what is missing.
std::unique_ptr<RawProducts> raw_products(kernels::Device& device);

}  // namespace troupe::gpu
