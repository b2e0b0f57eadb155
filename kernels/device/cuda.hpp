/// Finds the CUDA plug-in and makes devices of it, so that one program runs with and without a GPU.
///
///     Device device = cuda_table() != nullptr ? cuda_device() : cpu_device();
///     std::puts(cuda_status().c_str());             // "no CUDA driver (libcuda.so.1)"
///
/// The plug-in is opened only if the driver reports a device, since its libraries take long to
/// load.
#pragma once

#include "troupe/kernels/device/device.hpp"
#include "troupe/kernels/device/table.hpp"
#include "troupe/runtime/base/assert.hpp"

#include <string>

namespace troupe::kernels {

/// Returns the plug-in's functions, or nullptr when there is no driver, no device or no plug-in.
/// The first call looks for them, and later calls return the same result; do not call it before a
/// fork. The plug-in is the file TROUPE_CUDA_PLUGIN if that is set. Else it is looked for beside
/// this library, then on the loader's path.
TROUPE_API const troupe_cuda_table* cuda_table();

/// Returns one line for logs: what was found, or what was missing.
TROUPE_API std::string cuda_status();

/// Makes the device with the driver's number `index`. It computes f32, bf16 and f16. The host
/// cannot read its memory of Where::device. Throws Unavailable with cuda_status() when there is no
/// plug-in or device, InvalidArgument for an index out of range. Compiled only: it has not run on a
/// device so far.
TROUPE_API Device cuda_device(int index = 0);

}  // namespace troupe::kernels
