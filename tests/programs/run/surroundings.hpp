/// The surroundings in which programs run: what somebody's shell, container or parent hands on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace programs {

/// What a run needs to know of its surroundings.
struct Setting {
  std::string executable;
  std::string folder;       ///< empty, this run's own, open to every user; the working folder
  unsigned own_user = 0;    ///< a user that no other process has
  std::string locale = {};  ///< found by missing() of comma_locale
};

struct Surrounding {
  const char* name;
  /// Sets the calling process up, just before it becomes the program. May not be undone.
  void (*enter)(const Setting& setting);
  /// Empty, or why there is no such surrounding here.
  std::string (*missing)(Setting& setting) = nullptr;
  bool no_output = false;   ///< standard output is closed
  bool stopped = false;     ///< all processes are stopped for a while, and continued
  bool may_refuse = false;  ///< an error that says why, and code 1, is as right as the result
};

const std::vector<Surrounding>& surroundings();
/// Nullptr: there is none of that name.
const Surrounding* surrounding(std::string_view name);

}  // namespace programs
