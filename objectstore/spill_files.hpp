/// Objects on disk instead of in memory: files without a name in one or more folders, written and
/// read on a thread of their own. What comes back is what was written, or an error.
///
///     auto files = SpillFiles::open({.folders = {"/var/tmp"}, .quota = 10_GiB}).value();
///     SpillId id = files->write(bytes, now).value();   // keep the bytes until its SpillDone
///     files->read(id, memory);                         // as many bytes as were written
///     for (const SpillDone& done : files->take_done(now)) ...   // when fd() is readable
///     files->drop(id);
///
/// One thread uses it and no call waits for a disk. The files have no name (`O_TMPFILE`), so that
/// nothing is left however the process ends. A checksum of each object (XXH3, 64 bits) stays in
/// memory; a read compares it, so that a damaged, shortened or exchanged file is `object_lost` and
/// never wrong bytes. A write that fails in one folder is tried in the next. Where nothing goes in
/// which folder is SpillPlan's.
#pragma once

#include "troupe/objectstore/spill_plan.hpp"

#include <sys/types.h>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace troupe::objectstore {

/// Names a spilled object; never used again. Zero is none.
using SpillId = std::uint64_t;

struct SpillOptions {
  std::vector<std::string> folders;  ///< that exist and can be written; used in turn
  Bytes quota;                       ///< most bytes on disk; zero: no limit but the disk's
  double keep_free = 0.05;           ///< part of each file system that others are left; else full
  Bytes file{16u << 20};             ///< small objects are fused into files of about this size
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
  /// Of a write: out_of_disk, and the id is gone; of a read: object_lost.
  std::optional<Error> error;
};

struct SpillStats {
  std::uint64_t objects = 0;  ///< on disk or on their way there
  std::uint64_t bytes = 0;    ///< that they take there
  std::uint64_t files = 0;
  std::uint64_t written_objects = 0, written_bytes = 0;  ///< since the start
  std::uint64_t read_objects = 0, read_bytes = 0;
  std::uint64_t errors = 0;       ///< of the folders, a full disk not counted
  std::uint32_t quarantined = 0;  ///< folders that nothing is written to any more
};

class TROUPE_API SpillFiles {
 public:
  /// Errors: invalid_argument naming the folder that is none, or cannot be written.
  static Result<std::unique_ptr<SpillFiles>> open(SpillOptions options);
  SpillFiles(const SpillFiles&) = delete;
  /// Waits for what the thread is doing now, one object; the rest is given up and the files go.
  ~SpillFiles();

  /// The bytes must stay as they are until its SpillDone, whether it is dropped before or not.
  /// Error: out_of_disk.
  Result<SpillId> write(std::span<const std::byte> bytes, Time now);
  /// Reads all of it. Precondition: its write is done, without an error; `into` has its size. The
  /// memory is the thread's until its SpillDone, and then has the bytes, or after an error no
  /// particular ones. Reads come before writes.
  void read(SpillId id, std::span<std::byte> into);
  /// The object is not needed any more; its space is given back. A SpillDone of what was under way
  /// still comes.
  void drop(SpillId id);
  /// Bytes of an object. Precondition: it is not dropped.
  std::uint64_t size_of(SpillId id) const;

  /// Readable when take_done() has something.
  int fd() const noexcept;
  std::vector<SpillDone> take_done(Time now);
  SpillStats stats() const;

 private:
  struct Impl;
  explicit SpillFiles(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::objectstore
