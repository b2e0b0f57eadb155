/// SpillFiles: objects on disk instead of in memory, for Spiller. A thread of its own writes and
/// reads files without a name in one or more folders. A read gives the bytes that were written, or
/// an error.
///
///     auto files = SpillFiles::open({.folders = {"/var/tmp"}, .quota = 10_GiB}).value();
///     SpillId id = files->write(bytes, now).value();   // keep the bytes until its SpillDone
///     files->read(id, memory);                         // as many bytes as were written
///     for (const SpillDone& done : files->take_done(now)) ...   // when fd() is readable
///     files->drop(id);
///
/// Threads: one thread uses it, and no call waits for a disk. The files have no name (`O_TMPFILE`),
/// so nothing is left however the process ends. A checksum of each object (XXH3, 64 bits) stays in
/// memory. A read compares it, so a damaged, shortened or exchanged file is `object_lost` and never
/// gives wrong bytes. A write that fails in one folder is tried in the next. SpillPlan chooses
/// folder, file and offset.
#pragma once

#include "troupe/objectstore/spill_plan.hpp"

#include <sys/types.h>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace troupe::objectstore {

/// Names a spilled object; a number is never reused. Zero names none.
using SpillId = std::uint64_t;

struct SpillOptions {
  std::vector<std::string> folders;        ///< existing, writable folders; used in turn
  Bytes quota;                             ///< most bytes on disk; zero: no limit but the disk's
  double keep_free = 0.05;                 ///< part of each file system left to other programs
  Bytes file{16u << 20};                   ///< small objects share files of about this size
  Duration full{std::chrono::seconds(1)};  ///< a full folder is tried again after this
  /// The system calls that move bytes; tests put faulty ones in their place.
  ssize_t (*pwrite)(int, const void*, std::size_t, off_t) = nullptr;
  ssize_t (*pread)(int, void*, std::size_t, off_t) = nullptr;
};

/// The end of one write or read.
struct SpillDone {
  enum class Kind : std::uint8_t { wrote, read };
  Kind kind = Kind::wrote;
  SpillId id = 0;
  /// Of a write: out_of_disk, and the id is invalid from now on. Of a read: object_lost.
  std::optional<Error> error;
};

struct SpillStats {
  std::uint64_t objects = 0;  ///< on disk or being written
  std::uint64_t bytes = 0;    ///< on disk for them
  std::uint64_t files = 0;
  std::uint64_t written_objects = 0, written_bytes = 0;  ///< since the start
  std::uint64_t read_objects = 0, read_bytes = 0;
  std::uint64_t errors = 0;       ///< of the folders, a full disk not counted
  std::uint32_t quarantined = 0;  ///< folders that failed too often to be written to
};

class TROUPE_API SpillFiles {
 public:
  /// Error: invalid_argument, which names the folder that does not exist or cannot be written.
  static Result<std::unique_ptr<SpillFiles>> open(SpillOptions options);
  SpillFiles(const SpillFiles&) = delete;
  /// Waits for the present job of the thread, one object. Other jobs are dropped, and the files
  /// vanish.
  ~SpillFiles();

  /// Begins to write an object and returns its name. The bytes must not change until its SpillDone,
  /// even if the object is dropped before. Error: out_of_disk.
  Result<SpillId> write(std::span<const std::byte> bytes, Time now);
  /// Begins to read a whole object. The thread uses the memory until the SpillDone; after an error
  /// its contents are unspecified. Reads are done before writes. Preconditions: the write is done,
  /// without an error; `into` has the object's size.
  void read(SpillId id, std::span<std::byte> into);
  /// Frees the object's space on disk. A job that has begun still gets its SpillDone.
  void drop(SpillId id);
  /// Returns the bytes of an object. Precondition: it is not dropped.
  std::uint64_t size_of(SpillId id) const;

  /// Returns a descriptor that is readable when take_done() has results.
  int fd() const noexcept;
  std::vector<SpillDone> take_done(Time now);
  SpillStats stats() const;

 private:
  struct Impl;
  explicit SpillFiles(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::objectstore
