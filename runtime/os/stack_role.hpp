/// The role `stack`: a short-lived child that reads debug information for its parent, so that the
/// parent neither loads libdw nor copies its memory in a fork.
#pragma once

#include "troupe/runtime/base/fd.hpp"

#include <sys/types.h>
#include <string>

namespace troupe::os {

/// Does what the first packet asks, writes the answer to the socket and ends the process. Never
/// returns. It ends by itself after a few seconds. `text`: the role's options, the limit in seconds.
[[noreturn]] void run_stack(Fd socket, const std::string& text);

/// Writes the stacks of a process that lives to the descriptor and ends this process, a child that
/// was started for that.
[[noreturn]] void show_stacks(pid_t process, int fd);

}  // namespace troupe::os
