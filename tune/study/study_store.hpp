/// The durable half of a study: its events and rows, in RocksDB.
///
///     auto store = StudyStore::open("studies/resnet", {});
///     (*store)->write(batch).value();              // in the kernel: survives kill -9
///     (*store)->rows().events(1, visit);           // to rebuild the study
///
/// A thread syncs what was written and then names the last synced event in the file `synced`. A
/// store that ends before that event, or whose events have a gap, is damaged and refused. A store
/// that ends after it met a power failure, and opens.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/tune/study/study_folder.hpp"
#include "troupe/tune/study/study_rows.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace troupe::tune {

struct StudyStoreOptions {
  StudyDurability durability = StudyDurability::process;
  /// How long a batch waits at most until its sync begins.
  Duration sync_after = std::chrono::milliseconds(20);
  /// Below this much free space write() answers OutOfDisk.
  Bytes low_water{64ull << 20};
  /// Below this much free space open() answers OutOfDisk, since RocksDB aborts on a full disk.
  Bytes floor{8ull << 20};
  /// A file that open() gives up when less than `floor` is free.
  Bytes reserve{8ull << 20};
  /// Replaces the disk's answer in tests; may be empty.
  std::function<Bytes()> free_space = {};
};

/// The schema of the folders that this version reads. The description has it as "schema" or
/// "version".
inline constexpr int kStudySchema = 3;

/// Owns a study's folder. write() and sync() are for one thread at a time; rows() for any.
class TROUPE_API StudyStore {
 public:
  /// Opens a study's folder, or makes one. Blocks for as long as reading all of it takes. Errors:
  /// those of StudyFolder::open(); InvalidArgument for a damaged store, with file and offset, and
  /// for one of another schema; OutOfDisk; Unavailable.
  static Result<std::unique_ptr<StudyStore>> open(const std::string& folder,
                                                  StudyStoreOptions options);
  /// How long a disk that hangs is waited for once a write is to stop, or after end_soon().
  static constexpr Duration kLastWrites = std::chrono::milliseconds(300);

  /// Syncs what was written, for kLastWrites at most after end_soon(). A slow disk ends the store
  /// later then, and the folder stays this process's until it has. One that hangs keeps both.
  ~StudyStore();
  StudyStore(const StudyStore&) = delete;
  StudyStore& operator=(const StudyStore&) = delete;

  /// Writes the batch, all of it or nothing. Errors: OutOfDisk below the low-water mark, and
  /// InvalidArgument for events that do not follow the last one; nothing was written then, and a
  /// later call may succeed. After any other error the outcome is unknown, and all later calls
  /// fail: open the store again.
  /// With `stops`, a thread writes. Once `stops` has returned true for kLastWrites meanwhile, the
  /// call returns Cancelled, whose outcome is unknown, too. Without a thread it returns OutOfMemory;
  /// nothing was written then, and a later call may succeed.
  Result<void> write(const StudyBatch& batch, const std::function<bool()>& stops = {});
  /// Blocks until the disk has all that was written.
  Result<void> sync();
  /// Says that the end of this object must not wait for a disk that hangs.
  void end_soon() noexcept { ends_soon_ = true; }

  const StudyRows& rows() const noexcept;
  const StudyFolder& folder() const noexcept;
  /// The number of the last event written; 0: none.
  std::uint64_t last_event() const noexcept;
  /// The event that the file `synced` names.
  std::uint64_t synced_event() const;
  /// What this user may still write on the folder's disk.
  Bytes free_space() const;

 private:
  struct State;
  explicit StudyStore(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;  ///< a thread that hangs keeps it
  bool ends_soon_ = false;
};

/// Reads a study that no process owns. An owner that starts meanwhile waits 2 s for it and is
/// refused then, so keep it for one look.
class TROUPE_API StudyReader {
 public:
  /// Never writes to the folder, which may be another user's. Errors: as StudyStore::open().
  static Result<StudyReader> open(const std::string& folder);
  ~StudyReader();
  StudyReader(StudyReader&&) noexcept;
  StudyReader& operator=(StudyReader&&) noexcept;

  const StudyRows& rows() const noexcept;
  const StudyFolder& folder() const noexcept;
  std::uint64_t last_event() const noexcept;

 private:
  struct State;
  explicit StudyReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace troupe::tune
