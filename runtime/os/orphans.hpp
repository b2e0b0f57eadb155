/// Children that a process did not start: those of its descendants that have ended. Whatever the
/// code of a worker has started, in the background or in a session of its own, comes to the nearest
/// living ancestor that adopts, and ends there.
///
/// A worker adopts, so what it has started stays its own while it lives. When it ends, its zygote
/// gets all of that; when the zygote is killed, its agent does.
///
///     adopt_orphans();                        // early: zygote, worker, agent
///     end_orphans(own);                       // after a child has ended, until it returns 0
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <functional>
#include <vector>

namespace troupe::os {

/// From now on descendants whose parents have ended become children of this process.
void adopt_orphans() noexcept;

/// Children of the process right now, the dead ones that nobody has waited for among them.
std::vector<pid_t> children_of_this_process();

/// Kills and reaps all children but those that `is_own`. Does not block. Returns how many have yet
/// to end; as they do, their own children may come in their place.
std::size_t end_orphans(const std::function<bool(pid_t)>& is_own);

}  // namespace troupe::os
