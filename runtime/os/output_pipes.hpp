/// The pipes through which an agent reads the standard output and error of a process that it
/// starts.
///
///     OutputPipes pipes = make_output_pipes().value();
///     link.fork_worker(token, std::move(socket), std::move(pipes.ends));
///     read(pipes.out.get(), …);                      // does not block
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"

#include <cstdint>

namespace troupe::os {

/// The writing ends of a process. Without descriptors the process keeps the output of its parent.
struct OutputEnds {
  Fd out, err;
  Fd page;  ///< of its ProcessPage; may be missing, and may come without `out` and `err`
  /// Inodes of the pipes that the process would inherit. A descriptor that is another file was
  /// chosen by the program, and stays. 0: the new pipe takes its place in any case.
  std::uint64_t instead_of_out = 0, instead_of_err = 0;
  explicit operator bool() const noexcept { return out && err; }
};

struct OutputPipes {
  Fd out, err;  ///< the reading ends, which do not block
  OutputEnds ends;
};

/// Makes two pipes of at most 64 KiB each. All ends close at exec. Beyond its share of pipe buffers
/// an ordinary user gets smaller pipes. Errors: out_of_memory (descriptors, with the limit).
Result<OutputPipes> make_output_pipes();

/// Returns the inode of the pipe behind the descriptor; 0 if it is no pipe.
std::uint64_t pipe_inode(int fd) noexcept;

/// Puts the ends at the numbers of standard output and error of this process. A descriptor that the
/// program has replaced stays as it is. Async-signal-safe.
void take_output(const OutputEnds& ends) noexcept;

/// Returns whether `fd` lies in the upper half of the descriptors that this process may have.
bool is_in_upper_half(int fd) noexcept;

}  // namespace troupe::os
