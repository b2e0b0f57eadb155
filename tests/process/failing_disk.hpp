/// Makes the disks fail under the nodes that a test starts.
#pragma once

#include "tests/paths.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

/// Nodes that start during this object's life have a disk that fails as `how` says
/// (chaos/shim.cpp). It affects what they spill for themselves, not what they copy to shared
/// folders. An agent stops using a folder that has failed three times; a test that needs more
/// failures lists the folder more often (`folders`).
class FailingDisk {
 public:
  explicit FailingDisk(const char* how, int folders = 1) {
    std::string names = std::filesystem::temp_directory_path();
    const std::string name = names;
    for (int i = 1; i < folders; ++i) names += ':' + name;
    ::setenv("LD_PRELOAD", paths::chaos_shim(), 1);
    ::setenv("CHAOS_DISK", how, 1);
    ::setenv("TROUPE_SPILL", names.c_str(), 1);
    ::setenv("TROUPE_SPILL_PATIENCE_MS", "300", 1);
  }
  FailingDisk(const FailingDisk&) = delete;
  ~FailingDisk() {
    for (const char* name :
         {"LD_PRELOAD", "CHAOS_DISK", "TROUPE_SPILL", "TROUPE_SPILL_PATIENCE_MS"})
      ::unsetenv(name);
  }
  /// Returns whether this build can preload the shim. A sanitizer must be loaded first itself, so
  /// its builds cannot.
  static bool can_be() { return !std::string(paths::chaos_shim()).empty(); }
};
