// The few functions of CUDA's runtime that probes need, opened at run time: they build without a
// toolkit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::gpu {

constexpr int kHostToDevice = 1, kDeviceToHost = 2, kNotReady = 600;
using Stream = void*;

struct CudaRuntime {
  std::string path;
  int (*device_count)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  int (*allocate)(void**, std::size_t) = nullptr;
  int (*release)(void*) = nullptr;
  int (*copy)(void* to, const void* from, std::size_t, int kind) = nullptr;
  int (*create_stream)(Stream*) = nullptr;
  int (*query)(Stream) = nullptr;
  int (*synchronize)() = nullptr;
  int (*runtime_version)(int*) = nullptr;
  int (*driver_version)(int*) = nullptr;
  const char* (*error_string)(int) = nullptr;

  /// Throws std::runtime_error with CUDA's words unless the call succeeded.
  void check(int result, const char* call) const;
};

/// Opens libcudart where the loader looks, or the toolkit's; throws std::runtime_error.
CudaRuntime open_cuda_runtime();
/// What the driver calls its first device; empty when there is none.
std::string card_name();
/// "13.0" of 13000.
std::string cuda_version_text(int version);

}  // namespace troupe::gpu
