/// What an agent does with processes: it starts zygotes, signals processes, and notices their ends.
/// A program that simulates machines defines these functions itself, and its processes are threads.
///
///     auto pid = start_zygote(std::move(theirs), program);
///     Fd life = handle_of(*pid);                   // readable when it has ended
///     if (has_ended(*pid, life)) …
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/os/role.hpp"

#include <sys/types.h>

namespace troupe::os {

/// Starts the zygote of a program as a child. Errors: those of spawn().
Result<pid_t> start_zygote(Fd socket, const Program& program);

/// Returns a descriptor that is readable once the process has ended; none if it is gone already.
Fd handle_of(pid_t process) noexcept;
/// Returns such a descriptor for the process at the other end of a unix socket. The socket's own
/// end is not enough, because each fork of that process keeps the socket open. The process is the
/// one that connected, or that made the pair. None when it is in another PID namespace.
Fd life_of_peer(int socket);

/// Sends a signal. A process that is gone is no error.
void send_signal(pid_t process, int signal) noexcept;

/// Kills the process of this handle. A process that is gone is no error.
void kill_process(const Fd& handle) noexcept;

/// Returns whether the process has ended, and reaps it if it is a child. `handle` is that of
/// handle_of(); it decides for a process that is no child. Never blocks.
bool has_ended(pid_t process, const Fd& handle) noexcept;
/// Returns whether the process is a child that has exited with 0 and is not reaped. Never blocks.
bool exited_well(pid_t child) noexcept;
/// Reaps a child that has ended. Never blocks.
void reap(pid_t child) noexcept;
/// Blocks until the child has ended, and reaps it. Precondition: it was killed or ends by itself.
void reap_at_end(pid_t child) noexcept;

}  // namespace troupe::os
