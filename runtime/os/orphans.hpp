/// Orphans: processes whose parent has ended. User code in a worker may start processes, in the
/// background or in a session of their own. When the worker ends, the kernel makes them children of
/// the nearest living ancestor that adopts (PR_SET_CHILD_SUBREAPER). The functions here let an
/// ancestor adopt and end them.
///
/// A worker adopts, so processes that its code started remain below it while it lives. When the
/// worker ends, they become children of its zygote. When the zygote is killed, its agent gets them.
///
///     adopt_orphans();                        // early: zygote, worker, agent
///     end_orphans(own);                       // after a child has ended, until it returns 0
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <functional>
#include <vector>

namespace troupe::os {

/// Makes this process adopt: from now on descendants whose parents have ended become its children.
void adopt_orphans() noexcept;

/// Returns the present children of this process, zombies included.
std::vector<pid_t> children_of_this_process();

/// Kills and reaps all children except those for which `is_own` is true. Does not block. Returns
/// how many have not ended yet. When they end, their own children may become children of this
/// process.
std::size_t end_orphans(const std::function<bool(pid_t)>& is_own);

}  // namespace troupe::os
