/// What the files of a process's modules say of themselves: build-id and loaded segments.
///
///     ModuleReader reader;                      // an agent, whose loop must not wait for a disk
///     page.crash(reader.source());              // waits kPatience at most
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::os {

/// A file that a process had mapped.
struct MappedFile {
  std::string path;
  std::uint64_t inode = 0;
  bool operator==(const MappedFile&) const = default;
  auto operator<=>(const MappedFile&) const = default;
};

struct ModuleFile {
  /// A part of the file, and its address as the module's symbols count it.
  struct Segment {
    std::uint64_t offset = 0, bytes = 0, address = 0;
  };
  std::string build_id;  ///< hexadecimal; empty: not known
  std::vector<Segment> segments;
};

/// Reads the file, which must be regular and have that inode: another one of its name gives nothing.
/// Blocks for the disk.
ModuleFile read_module(const MappedFile& file);

/// Returns what it knows of each file, in order.
using ModuleSource = std::function<std::vector<ModuleFile>(std::span<const MappedFile> files)>;
/// A ModuleSource that blocks for the disk.
std::vector<ModuleFile> read_modules(std::span<const MappedFile> files);

/// Reads modules on a thread of its own, since a disk may hang, and keeps what it has read. One
/// thread at a time may call it.
class ModuleReader {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(100);
  static constexpr std::size_t kMostKept = 1024;  ///< files

  /// `read`: reads one file, on the thread.
  explicit ModuleReader(std::function<ModuleFile(const MappedFile&)> read = read_module,
                        Duration patience = kPatience);
  /// Waits kPatience at most. A thread that hangs in the disk is left alone.
  ~ModuleReader();
  ModuleReader(const ModuleReader&) = delete;
  ModuleReader& operator=(const ModuleReader&) = delete;

  /// Returns what is known of each file within kPatience, without any wait while an earlier file
  /// takes longer than that. A file that is late is known to a later call. Never fails: without a
  /// thread nothing is known.
  std::vector<ModuleFile> look_up(std::span<const MappedFile> files);
  /// Returns look_up() as a function, which must not outlive this object.
  ModuleSource source();

 private:
  struct Shared;
  static void run(Shared& shared);
  bool start();
  const Duration patience_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace troupe::os
