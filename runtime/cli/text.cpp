/// Reads values of flags for all verbs.
#include "troupe/runtime/cli/verbs.hpp"

#include "troupe/runtime/base/size_text.hpp"

namespace troupe::cli {

std::uint64_t bytes_of(const std::string& flag, const std::string& text) {
  const auto size = parse_size(text);
  if (!size || size->count == 0)
    throw InvalidArgument(Code::invalid_argument,
                          flag + ": '" + text + "' is not a size like 512MiB or 2GiB");
  return size->count;
}

std::pair<std::string, std::string> pair_of(const std::string& flag, const std::string& text) {
  const auto pair = parse_pair(text);
  if (!pair)
    throw InvalidArgument(Code::invalid_argument, flag + ": '" + text + "' is not name=value");
  return {std::string(pair->first), std::string(pair->second)};
}

}  // namespace troupe::cli
