/// The JSON header of a safetensors file, apart so that the JSON library is met in one unit only.
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::train::internal {

/// One tensor as the header describes it; nothing but the JSON types is checked.
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

/// Throws InvalidArgument for two equal names, a reserved name, or text that is not UTF-8.
std::string write_header(std::span<const HeaderEntry> entries,
                         const std::map<std::string, std::string>& metadata);

/// Accepts exactly: {"name": {"dtype": string, "shape": [integers], "data_offsets": [begin, end]},
/// ..., "__metadata__": {string: string}}, every key once, first byte '{'. Memory stays within a
/// small multiple of the text.
Result<Header> parse_header(std::string_view text);

/// Bytes that a header may have.
inline constexpr std::uint64_t kMaxHeader = 100'000'000;

}  // namespace troupe::train::internal
