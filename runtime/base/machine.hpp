/// Figures of the machine and its processes: CPUs, CPU time and memory. A program that simulates
/// machines defines these functions itself, so that its figures are those of the simulated machine.
///
///     if (bell.slept_on() == this_cpu()) …
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <sys/types.h>

namespace troupe {

/// Returns the number of the CPU that runs this thread; -1: unknown. Without a system call.
int this_cpu() noexcept;
/// Returns how many CPUs this thread may run on; 1 when the system does not say.
unsigned affine_cpus() noexcept;
/// Keeps wake-ups of this thread from preempting others (SCHED_BATCH), unless the user has chosen
/// a policy. Ignores errors.
void yield_on_wakeup() noexcept;

/// Returns the CPU time that a process has used; 0: there is no such process.
Duration cpu_time_of(pid_t process) noexcept;
/// Returns the CPU time that the other threads of this process have used.
Duration cpu_time_of_other_threads() noexcept;

/// Returns the memory of the machine, whatever part of it this process may use.
Bytes physical_memory() noexcept;
/// Returns the resident bytes of a process that it does not share; 0: there is no such process.
Bytes unshared_memory_of(pid_t process);

}  // namespace troupe
