/// The files of a store's folder beside the database: lock, mark and reserve. RocksMedium uses it.
///
///     auto folder = StoreFolder::open("/var/lib/troupe", 16_MiB);   // locked until destruction
///     folder->write_slot(0, slot).value();                          // durable on return
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/control/store.hpp"
#include "troupe/runtime/storage/disk_space.hpp"

#include <optional>
#include <string>

namespace troupe::control {

/// Owns the lock on a folder. Move-only; not thread-safe.
class StoreFolder {
 public:
  /// Makes the folder (0700) if it is absent, takes the lock, and examines the files. Never blocks
  /// over 0.5 s. Errors: unavailable when another process has the lock or I/O fails;
  /// invalid_argument when the folder belongs to another user or holds no store.
  static Result<StoreFolder> open(const std::string& path, Bytes reserve);

  /// Returns whether nothing was ever acknowledged in this folder.
  bool is_new() const noexcept { return is_new_; }
  /// Records durably that the store is complete.
  Result<void> settle();

  std::optional<Slot> read_slot(int index) const;
  Result<void> write_slot(int index, const Slot& slot);
  void use_reserve(bool use) { space_.use_reserve(use); }
  Bytes free_space() const { return space_.free(); }

  std::string mark_path() const { return path_ + "/mark"; }
  std::string db_path() const { return path_ + "/db"; }

 private:
  Result<void> lock();
  Result<void> examine();
  Result<void> prepare_new();
  Result<void> open_mark(bool create);

  std::string path_;
  storage::DiskSpace space_;
  bool is_new_ = false;
  Fd lock_;
  Fd mark_;
};

}  // namespace troupe::control
