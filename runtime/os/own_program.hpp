/// Describes this process's program, so that other nodes can start the same one: its executable,
/// its arguments, and its own shared objects.
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
  /// Absolute paths of the shared objects loaded so far from outside the loader's default folders
  /// (/lib, /usr/lib and the like).
  std::vector<std::string> libraries;
  std::string name;  ///< of the executable, for people
};

/// Describes this process. Errors: Unavailable (the executable was removed or replaced since the
/// start), InvalidArgument (over 64 libraries or 4,096 arguments, or 24 KiB of them all).
Result<OwnProgram> own_program();

/// Returns this process's arguments as the kernel had them at the first call; never empty.
std::vector<std::string> own_arguments();

}  // namespace troupe::os
