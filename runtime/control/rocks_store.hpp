/// The Store in a folder: RocksDB for the records, a file of two slots for the mark.
///
///     auto store = open_rocks_store("/var/lib/troupe", {});
///     if (!store) std::cerr << store.error().what();   // locked by pid 712
///
/// The folder (0700) holds `lock` (with the holder's pid), `mark` (two 4 KiB slots), `db/`
/// (RocksDB) and `reserve` (space that control gives up when the disk is full, so that it can still
/// start).
#pragma once

#include "troupe/runtime/control/store.hpp"

#include <string>

namespace troupe::control {

struct RocksStoreOptions {
  StoreOptions store;
  Bytes reserve = storage::kReserve;
  /// Replaces statvfs in tests; may be empty.
  std::function<Bytes()> free_space;
};

/// Opens the store in `folder`, or creates it when the folder is absent or empty. A first start
/// that was killed before anything was acknowledged is cleaned up and repeated. Errors:
/// unavailable when another process holds the folder (names the pid); invalid_argument when it
/// holds something else, belongs to another user, or is damaged (names file and offset and the
/// command that may help). They come within 1 s, besides the time that reading takes. Cost: about
/// 10 ms to create; opening reads every record once.
Result<std::unique_ptr<Store>> open_rocks_store(const std::string& folder,
                                                RocksStoreOptions options);

}  // namespace troupe::control
