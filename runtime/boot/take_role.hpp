/// Makes an agent or control of a process that was started as one, before any code of the user's
/// program runs.
#pragma once

namespace troupe::boot {

/// Does nothing. A program that calls it is linked with the constructor in take_role.cpp, which
/// makes an agent or control of a process that was started as one (os/role.hpp).
void link_roles() noexcept;

}  // namespace troupe::boot
