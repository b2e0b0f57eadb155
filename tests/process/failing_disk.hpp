/// Disks that fail under the nodes of a test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

/// Nodes that start meanwhile have a disk that fails so (chaos/shim.cpp): what they spill for
/// themselves, not what they copy to shared folders. A folder that fails three times is not used
/// again: who goes on after that names it more often.
class FailingDisk {
 public:
  explicit FailingDisk(const char* how, int folders = 1) {
    std::string names = std::filesystem::temp_directory_path();
    const std::string name = names;
    for (int i = 1; i < folders; ++i) names += ':' + name;
    ::setenv("LD_PRELOAD", CHAOS_SHIM, 1);
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
  /// Not with a sanitizer, which has to be loaded first.
  static bool can_be() { return !std::string(CHAOS_SHIM).empty(); }
};
