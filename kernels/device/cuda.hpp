/// Finds the CUDA plug-in, so that one program runs with and without a GPU.
///
///     Device device = cuda_table() != nullptr ? cuda_device() : cpu_device();
///     std::puts(cuda_status().c_str());             // "no CUDA driver (libcuda.so.1)"
///
/// The plug-in is opened only after a device has answered the driver: it brings libraries that take
/// a second to load.
#pragma once

#include "troupe/kernels/device/device.hpp"
#include "troupe/kernels/device/table.hpp"
#include "troupe/runtime/base/assert.hpp"

#include <string>

namespace troupe::kernels {

/// The plug-in's functions, or nullptr when there is no driver, no device or no plug-in. Looks once
/// per process (so never before a fork), then costs nothing. The plug-in is looked for at
/// TROUPE_CUDA_PLUGIN when that is set, else beside this library, else where the loader looks.
TROUPE_API const troupe_cuda_table* cuda_table();

/// One line for logs: what was found, or what was missing.
TROUPE_API std::string cuda_status();

/// Device `index` of the driver's. Its operations compute f32; memory of Where::device is not the
/// host's. Throws Unavailable with cuda_status() when there is no plug-in or device,
/// InvalidArgument for an index beyond them. Compiled only: it has not run on a device so far.
TROUPE_API Device cuda_device(int index = 0);

}  // namespace troupe::kernels
