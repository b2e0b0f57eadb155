/// The standard output of zygotes and workers.
///
/// The code of a program before troupe::run executes in the driver and again in each zygote. What
/// it writes to standard output belongs to the driver, so a zygote drops it. Standard error is
/// left alone: it may say why the program did not reach troupe::run on this node.
///
///     drop_early_output();   // the library's constructor, before any code of the user
///     end_early_output();    // enter(), before the first fork
#pragma once

namespace troupe::os {

/// Points standard output at /dev/null and makes it line-buffered, so that each line is written
/// when it is complete. A later setvbuf() of the program wins. If the system has no descriptor
/// left, standard output stays where it is.
void drop_early_output() noexcept;

/// Empties the buffers of the standard streams and gives standard output back. A program that has
/// put something else at that descriptor meanwhile, or has closed it, keeps that. Does nothing
/// without a preceding drop_early_output().
void end_early_output() noexcept;

}  // namespace troupe::os
