/// The name of the user that this process runs as, for people.
#pragma once

#include <string>

namespace troupe::os {

/// Returns the name that /etc/passwd gives the effective user, else "uid 1000". Reads that file and
/// asks no service, so it does not wait for a network. Thread-safe.
std::string user_name();

}  // namespace troupe::os
