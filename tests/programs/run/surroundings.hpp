/// The surroundings in which programs run: what a shell, a container or a parent process may hand
/// on to them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace programs {

/// What a surrounding needs to know of a run.
struct Setting {
  std::string executable;
  std::string folder;       ///< a folder for this run, open to all users; the working folder
  unsigned own_user = 0;    ///< a user without other processes
  std::string locale = {};  ///< found by missing() of comma_locale
};

struct Surrounding {
  const char* name;
  /// Changes the calling process, just before it becomes the program. The change need not be
  /// reversible.
  void (*enter)(const Setting& setting);
  /// Returns an empty text, or why this machine cannot provide the surrounding.
  std::string (*missing)(Setting& setting) = nullptr;
  bool no_output = false;    ///< standard output is closed
  bool stopped = false;      ///< all processes are stopped for a while, then continued
  bool signalled = false;    ///< its process group gets signals, which the program handles
  bool full_stderr = false;  ///< standard error is a full pipe that nobody reads
  bool may_refuse = false;   ///< code 1 with an error that gives a reason is right, too
};

const std::vector<Surrounding>& surroundings();
/// Returns nullptr when there is no surrounding of that name.
const Surrounding* surrounding(std::string_view name);

}  // namespace programs
