/// The build-ids that linkers write into modules.
///
///     log_line("built as %s", executable_build_id().c_str());
#pragma once

#include <span>
#include <string>

struct dl_phdr_info;

namespace troupe {

/// Returns the module's GNU build-id, which lies in the module; empty when the linker wrote none.
std::span<const unsigned char> build_id_of(const dl_phdr_info& module) noexcept;

/// Returns the build-id of the executable in hex (its first 20 bytes), or "none" when the linker
/// wrote no build-id.
std::string executable_build_id();

}  // namespace troupe
