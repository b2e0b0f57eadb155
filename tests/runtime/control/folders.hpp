/// Data folders of control that tests make, read, damage and remove.
#pragma once

#include "tests/runtime/control/contents.hpp"
#include "troupe/runtime/control/rocks_store.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace troupe::control::folders {

namespace fs = std::filesystem;

inline std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
inline void spill(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Returns the log below a data folder that holds more than `bytes` bytes; empty when there is
/// none.
inline fs::path log_of(const std::string& data, std::uintmax_t bytes) {
  fs::path log;
  for (const auto& entry : fs::directory_iterator(data + "/db"))
    if (entry.path().extension() == ".log" && entry.file_size() > bytes) log = entry.path();
  return log;
}

/// Flips a bit in the middle of a file.
inline void flip(const fs::path& path) {
  std::string bytes = slurp(path);
  bytes.at(bytes.size() / 2) ^= 1;
  spill(path, bytes);
}

/// A folder of the test's own, with the path of a data folder in it that does not exist yet.
class Test : public testing::Test {
 protected:
  explicit Test(const fs::path& in = fs::temp_directory_path()) {
    std::string path = (in / "troupe-control-XXXXXX").string();
    root_ = ::mkdtemp(path.data());
    data_ = root_ + "/data";
  }
  ~Test() override { fs::remove_all(root_); }

  /// Options for a disk that is never full.
  static RocksStoreOptions options() {
    RocksStoreOptions options;
    options.reserve = Bytes{0};
    options.free_space = [] { return Bytes{1ull << 40}; };
    return options;
  }

  std::string root_, data_;
};

}  // namespace troupe::control::folders
