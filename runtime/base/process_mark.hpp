/// ProcessMark: detects that the present process is a fork of the one that made the mark.
///
/// A child made by fork() gets a copy of a session's private memory, and shares its sockets. It has
/// neither the session's threads nor its shared memory. An operation in the child would act on the
/// parent's sockets and child processes. So an object that shares resources with other processes
/// keeps a mark of the process that made it, and checks the mark on entry and in its destructor.
///
///     const ProcessMark mark_;
///     ~Session() { if (mark_.in_fork()) return; … }
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <atomic>
#include <cstdint>

namespace troupe {

/// Remembers the process in which it was made. A process has a generation, a word in a page that
/// the kernel wipes in each child (MADV_WIPEONFORK). This also detects a clone() that runs no fork
/// handlers.
class ProcessMark {
 public:
  /// Throws OutOfMemory when there is no page for the generation.
  ProcessMark();
  /// Returns whether this process is a fork, at any depth, of the one that made the mark. Any
  /// thread. Cost: two loads.
  bool in_fork() const noexcept { return page_->load(std::memory_order_relaxed) != generation_; }
  /// The error for a call in a fork: InvalidArgument, outcome not_executed.
  static Error error_in_fork();
  /// Throws error_in_fork() in a fork.
  void expect_own() const {
    if (in_fork()) [[unlikely]]
      raise(error_in_fork());
  }

 private:
  using Word = std::atomic<std::uint32_t>;
  static Word* make_page();
  static Word* page_;
  std::uint32_t generation_ = 0;
};

}  // namespace troupe
