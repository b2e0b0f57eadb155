// The few functions of CUDA's runtime that the probes need. They are opened at run time, so the
// probes build without a toolkit.
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

  /// Throws std::runtime_error with CUDA's message unless the call succeeded.
  void check(int result, const char* call) const;
};

/// Opens libcudart where the loader looks for it, or the toolkit's. Throws std::runtime_error.
CudaRuntime open_cuda_runtime();
/// Returns the driver's name of its first device; empty when there is none.
std::string card_name();
/// Returns "13.0" for 13000.
std::string cuda_version_text(int version);

}  // namespace troupe::gpu
