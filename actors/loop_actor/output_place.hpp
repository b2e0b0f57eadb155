/// OutputPlace: where the process of a loop sends what the loop prints.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::loops {

/// A file for what a loop prints, and the identity of the controller's standard output and error.
struct OutputPlace {
  std::string path;  ///< empty: output stays where it is
  std::uint64_t out_device = 0, out_file = 0;
  std::uint64_t error_device = 0, error_file = 0;
  /// Lines that the process writes to the pipes of its node before and after the loop's own.
  std::string begins, ends;
};

}  // namespace troupe::loops
