/// The files of a store's folder beside the database: lock, mark and reserve.
///
///     auto folder = StoreFolder::open("/var/lib/troupe", 16_MiB);   // locked until destruction
///     folder->write_slot(0, slot).value();                          // durable on return
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/control/store.hpp"

#include <optional>
#include <string>

namespace troupe::control {

/// Owns the lock on a folder. Move-only; not thread-safe.
class StoreFolder {
 public:
  /// Makes the folder (0700) if it is absent, takes the lock, and looks at what is there. Never
  /// blocks over 0.5 s. unavailable: locked by another process, or an I/O error; invalid_argument:
  /// not ours, or not a store.
  static Result<StoreFolder> open(const std::string& path, Bytes reserve);

  /// True when nothing was ever acknowledged in this folder.
  bool is_new() const noexcept { return is_new_; }
  /// Durably says that the store is complete.
  Result<void> settle();

  std::optional<Slot> read_slot(int index) const;
  Result<void> write_slot(int index, const Slot& slot);
  void use_reserve(bool use);
  Bytes free_space() const;

  std::string mark_path() const { return path_ + "/mark"; }
  std::string db_path() const { return path_ + "/db"; }

 private:
  Result<void> lock();
  Result<void> examine();
  Result<void> prepare_new();
  Result<void> open_mark(bool create);

  std::string path_;
  Bytes reserve_;
  bool is_new_ = false;
  Fd lock_;
  Fd mark_;
};

/// Where the first bad record of RocksDB's write-ahead logs or manifest is: `/x/db/000012.log,
/// offset 4711`; empty when none is found. For error messages. A cut last record is not reported.
std::string find_damage(const std::string& db_path);

}  // namespace troupe::control
