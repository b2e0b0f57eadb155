/// What the system says about a file, as an Error.
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <cerrno>
#include <string>
#include <system_error>

namespace troupe::tune::internal {

/// Returns OutOfDisk for a full disk, and Unavailable for any other error number.
inline Error disk_error(const std::string& what, const std::string& path, int number) {
  const bool full = number == ENOSPC || number == EDQUOT;
  return Error(
      full ? Code::out_of_disk : Code::unavailable,
      "tune: cannot " + what + " " + path + ": " + std::generic_category().message(number));
}

}  // namespace troupe::tune::internal
