/// Finds the CUDA plug-in, so that one program runs with and without a GPU.
///
///     if (const troupe_cuda_table* t = cuda_table()) t->create(0, &context);
///     else std::puts(cuda_status().c_str());        // "no CUDA driver (libcuda.so.1)"
///
/// The plug-in is opened only after a device has answered the driver: it brings libraries that take
/// a second to load.
#pragma once

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

}  // namespace troupe::kernels
