/// Converts messages to text and back.
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <string>

namespace troupe::net {

inline Blob text(const std::string& s) {
  const auto* at = reinterpret_cast<const std::byte*>(s.data());
  return Blob(at, at + s.size());
}
inline std::string text(const Blob& b) {
  return std::string(reinterpret_cast<const char*>(b.data()), b.size());
}

}  // namespace troupe::net
