/// A process takes its role before any code of the program's own.
#pragma once

namespace troupe::boot {

/// Nothing by itself: whoever calls it is linked with the constructor that makes an agent or
/// control of a process which was started as one (os/role.hpp).
void link_roles() noexcept;

}  // namespace troupe::boot
