/// What stands in for the build-id of a module whose linker wrote none.
#pragma once

#include <link.h>
#include <cstdint>

namespace troupe::engine::internal {

/// Returns a hash of the module's code and constants, never 0. It is the same in every process that
/// runs the same file, wherever the file lies and the module is loaded. Cost: reads all of it.
std::uint64_t hash_of_contents(const dl_phdr_info& module) noexcept;

}  // namespace troupe::engine::internal
