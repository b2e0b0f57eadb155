/// The line that `ps` shows of a process: its role instead of the driver's arguments, which may hold
/// secrets and which everybody on the machine may read.
///
///     show_title("troupe: agent node-0");
#pragma once

#include <string>

namespace troupe::os {

/// Shows the text, cut to 127 bytes, in place of this process's arguments. The memory that argv
/// points to stays as it is, and own_arguments() still returns the arguments. Does nothing where the
/// kernel refuses it, or when the first call comes after a thread was started.
void show_title(const std::string& title);

}  // namespace troupe::os
