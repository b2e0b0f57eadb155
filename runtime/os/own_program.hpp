/// What this process is, so that other nodes can start the same: its executable, its arguments, and
/// the shared objects that are its own.
///
///     OwnProgram mine = own_program().value();      // path, arguments, libraries, name
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <string>
#include <vector>

namespace troupe::os {

struct OwnProgram {
  std::string path;                    ///< absolute
  std::vector<std::string> arguments;  ///< as main got them
  /// Absolute paths of the shared objects that were loaded so far from outside the folders that the
  /// loader searches by itself (/lib, /usr/lib and their like).
  std::vector<std::string> libraries;
  std::string name;  ///< of the executable, for people
};

/// Errors: Unavailable (the executable's file was removed or replaced since the start),
/// InvalidArgument (over 64 libraries or 4,096 arguments, or 24 KiB of them all).
Result<OwnProgram> own_program();

/// This process's arguments as the kernel has them; never empty.
std::vector<std::string> own_arguments();

}  // namespace troupe::os
