/// Parses sizes, amounts, durations and pairs from flags and variables of the environment.
///
///     std::optional<Bytes> store = parse_size("512MiB");   // also 512M, 1.5GiB, 2T, 4096, 4096B
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/units.hpp"

namespace troupe {

/// Parses a number from 0 to 1e15 bytes, with B, K, M, G, T, KiB, MiB, GiB or TiB after it (powers
/// of 1024) or without a unit: bytes. Returns nothing for any other text.
std::optional<Bytes> parse_size(std::string_view text);

/// Parses a number from 0 to 1e6, of CPUs or another resource. Returns nothing for any other text.
std::optional<double> parse_amount(std::string_view text);

/// Parses a number from 0 to 1e9 with the unit ms, s, m or h, and rounds it to nanoseconds. Returns
/// nothing for any other text, such as one without a unit.
std::optional<Duration> parse_duration(std::string_view text);

/// Splits NAME=VALUE. The halves point into `text`. Returns nothing when one of them is missing.
std::optional<std::pair<std::string_view, std::string_view>> parse_pair(std::string_view text);

}  // namespace troupe
