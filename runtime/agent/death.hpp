/// How a process ended, as its peers and callers learn it.
#pragma once

#include <string>

namespace troupe::agent {

struct Death {
  std::string reason;        ///< "killed by signal 9 (Killed), process 12 of node-0"
  std::string stack{};       ///< os::stack_text() of the thread that crashed; empty: none is known
  std::string last_lines{};  ///< that it wrote; empty: none is known
};

}  // namespace troupe::agent
