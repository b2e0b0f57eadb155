/// Random bytes from getrandom(2), for keys and for names that nobody can guess.
///
///     fill_random(std::as_writable_bytes(std::span(nonce)));
///     const std::string id = random_id();                 // "1f3c…", 32 digits
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace troupe {

/// Fills the bytes. Returns false when the system gives no random numbers. May block until the
/// system has gathered some after its start.
bool try_fill_random(std::span<std::byte> bytes) noexcept;
/// Does the same; throws Unavailable.
TROUPE_API void fill_random(std::span<std::byte> bytes);
/// Returns 128 random bits as 32 hexadecimal digits. Throws Unavailable.
TROUPE_API std::string random_id();

}  // namespace troupe
