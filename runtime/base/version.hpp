/// The version of the loaded library, and of its wire protocol.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <string_view>

#define TROUPE_VERSION_TEXT "0.1.0"

namespace troupe {

/// Returns "major.minor.patch" of libtroupe.so.
TROUPE_API std::string_view version() noexcept;

/// The version of the wire protocol, checked when a peer joins. Independent of the library's
/// version. It grows when an older peer could not read the messages.
inline constexpr std::uint32_t kProtocolVersion = 4;

}  // namespace troupe
