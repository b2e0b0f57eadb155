/// The JSON header of a safetensors file. It is separate so that only one unit includes the JSON
/// library.
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::train::internal {

/// One tensor as the header describes it. Only the JSON types have been checked.
struct HeaderEntry {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Returns the header as JSON. Throws InvalidArgument for two equal names, a reserved name, or
/// text that is not UTF-8.
std::string write_header(std::span<const HeaderEntry> entries,
                         const std::map<std::string, std::string>& metadata);

/// Parses a header. Accepts exactly {"name": {"dtype": string, "shape": [integers],
/// "data_offsets": [begin, end]}, ..., "__metadata__": {string: string}}, with every key once and
/// '{' as first byte. Needs memory of a small multiple of the text.
Result<Header> parse_header(std::string_view text);

/// Largest size of a header in bytes.
inline constexpr std::uint64_t kMaxHeader = 100'000'000;

}  // namespace troupe::train::internal
