/// ProcessState: what a trial's function may change of its process and must not leave to the next
/// trial there.
///
///     const ProcessState before;        // on the thread that runs the functions
///     function();
///     before.restore();
///
/// It holds the environment, the working folder, the umask, the actions of signals, the locale, and
/// of this thread the blocked signals and the floating-point mode.
#pragma once

#include "troupe/runtime/base/fd.hpp"

#include <cfenv>
#include <csignal>
#include <locale>
#include <map>
#include <string>
#include <vector>

namespace troupe::tune {

class ProcessState {
 public:
  ProcessState();
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;
  /// Returns whether all is as it was. Other threads must not use the environment meanwhile.
  bool restore() const;

 private:
  std::map<std::string, std::string> environment_;
  Fd folder_;  ///< empty: the working folder cannot be opened
  unsigned umask_;
  std::vector<struct sigaction> actions_;  ///< of the signals from 1
  sigset_t blocked_{};
  std::string c_locale_;
  std::locale locale_;
  std::fenv_t floating_point_{};
};

/// Returns whether this process has a child process.
bool has_child();

}  // namespace troupe::tune
