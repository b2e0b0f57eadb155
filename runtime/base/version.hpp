/// The version of the library that is loaded, and the wire protocol it speaks.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <string_view>

#define TROUPE_VERSION_TEXT "0.1.0"

namespace troupe {

/// "major.minor.patch" of libtroupe.so.
TROUPE_API std::string_view version() noexcept;

/// Checked when a peer joins; independent of the version above. Raised when an old peer could not
/// understand us.
inline constexpr std::uint32_t kProtocolVersion = 2;

}  // namespace troupe
