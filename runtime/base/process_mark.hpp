/// Tells a process from a fork of it.
///
/// A child made by fork() gets a copy of everything that a session has in memory, but neither its
/// threads nor its shared memory, and the same sockets and child processes. What such a copy did
/// would be done to its parent. So whoever shares something with other processes keeps a mark of
/// the process that it was made in, and looks at it on entry and in its destructor.
///
///     const ProcessMark mark_;
///     ~Session() { if (mark_.in_fork()) return; … }
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <atomic>
#include <cstdint>

namespace troupe {

/// The process in which it was made. The generation of a process is a word in a page that the
/// kernel wipes in each child (MADV_WIPEONFORK), so a clone() without handlers is seen as well.
class ProcessMark {
 public:
  /// Throws OutOfMemory when there is no page for the generation.
  ProcessMark();
  /// Whether this process is a fork, at any depth, of the one that the mark was made in. Any
  /// thread. Cost: two loads.
  bool in_fork() const noexcept { return page_->load(std::memory_order_relaxed) != generation_; }
  /// What a fork is told: InvalidArgument, outcome not_executed.
  static Error error_in_fork();
  /// Throws that in a fork.
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
