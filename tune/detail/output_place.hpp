/// OutputPlace: where a trial's process sends what its function prints.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::tune {

/// A file for what a trial prints, and the identity of the driver's standard output and error.
struct OutputPlace {
  std::string path;  ///< empty: output stays where it is
  std::uint64_t out_device = 0, out_file = 0;
  std::uint64_t error_device = 0, error_file = 0;
};

}  // namespace troupe::tune
