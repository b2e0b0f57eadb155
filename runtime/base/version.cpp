#include "troupe/runtime/base/version.hpp"

namespace troupe {
std::string_view version() noexcept {
  return TROUPE_VERSION_TEXT;
}
}  // namespace troupe
