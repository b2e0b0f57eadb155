/// Sizes, amounts and pairs as people write them in flags and variables of the environment.
///
///     std::optional<Bytes> store = parse_size("512MiB");   // also 512M, 1.5GiB, 2T, 4096, 4096B
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "troupe/runtime/base/units.hpp"

namespace troupe {

/// A number from 0 to 1e15 bytes with B, K, M, G, T, KiB, MiB, GiB or TiB behind it (powers of
/// 1024); without one: bytes. Nothing when the text is anything else.
std::optional<Bytes> parse_size(std::string_view text);

/// A number from 0 to 1e6, of CPUs or another resource. Nothing when the text is anything else.
std::optional<double> parse_amount(std::string_view text);

/// The halves of NAME=VALUE, parts of `text`; nothing when one of them is missing.
std::optional<std::pair<std::string_view, std::string_view>> parse_pair(std::string_view text);

}  // namespace troupe
