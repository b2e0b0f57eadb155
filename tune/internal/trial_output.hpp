/// What a trial prints: the driver says where it goes, and the trial's process sends it there.
///
///     setup.output = where(path);            // in the driver
///     const TrialOutput output(setup.output);   // in the host, while an attempt runs
///
/// Only a process that writes to the driver's own standard output is redirected, as in a private
/// cluster. In another one the agent's pipes take the lines.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/tune/detail/output_place.hpp"

#include <array>
#include <string>

namespace troupe::tune {

/// Returns the place for a driver that is this process.
OutputPlace output_place(std::string path);

/// While it lives, what this process prints is appended to the place's file, line by line. It
/// changes the descriptors 1 and 2, so one at a time may live in a process.
class TrialOutput {
 public:
  explicit TrialOutput(const OutputPlace& place);
  TrialOutput(const TrialOutput&) = delete;
  TrialOutput& operator=(const TrialOutput&) = delete;
  /// Flushes the streams and restores the descriptors.
  ~TrialOutput();

 private:
  std::array<Fd, 2> before_;  ///< of 1 and 2, where they were replaced
};

}  // namespace troupe::tune
