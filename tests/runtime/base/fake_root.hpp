/// A folder in the place of the file system's root, for tests of what a machine allows.
#pragma once

#include <gtest/gtest.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace troupe {

/// A fixture whose folder holds only what the test writes, and is removed after it.
class FakeRoot : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "root-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root = name;
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  /// Writes a file of the root, such as "/proc/meminfo", with the folders above it.
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text << '\n';
  }
  std::string root;
};

}  // namespace troupe
