/// LoopOutput: sends what a loop prints to the place that its controller says.
///
///     setup.output = loops::output_place(path);        // in the controller's process
///     const loops::LoopOutput output(setup.output);    // in the loop's, while it runs
///
/// In a private cluster a loop writes to the controller's own standard output; those lines go to
/// the place's file, which has a shared lock (flock) meanwhile. In another cluster the pipes of the
/// node take them, between two lines that name the loop.
#pragma once

#include "troupe/actors/loop_actor/output_place.hpp"
#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <array>
#include <string>

namespace troupe::loops {

/// Returns the place for a controller that is this process.
TROUPE_API OutputPlace output_place(std::string path);

/// Returns whether a process still prints to the open file of a place: a loop, or a child that it
/// left. False where the file system has no locks. Waits for no lock.
TROUPE_API bool has_printer(int fd) noexcept;

/// While it lives, what this process prints goes to the place, line by line, standard error too. It
/// changes the descriptors 1 and 2, so one at a time may live in a process.
class TROUPE_API LoopOutput {
 public:
  /// Does not throw for a file that cannot be opened: then output stays where it is.
  explicit LoopOutput(const OutputPlace& place);
  LoopOutput(const LoopOutput&) = delete;
  LoopOutput& operator=(const LoopOutput&) = delete;
  /// Flushes the streams and restores the descriptors.
  ~LoopOutput();

  /// Whether the node's pipes take the lines.
  bool is_piped() const noexcept { return piped_[0] || piped_[1]; }

 private:
  void write(const std::string& line) const;

  std::array<Fd, 2> before_;     ///< of 1 and 2, where they were replaced
  std::array<bool, 2> piped_{};  ///< 1 and 2, where they are pipes of the node
  std::string ends_;
};

}  // namespace troupe::loops
