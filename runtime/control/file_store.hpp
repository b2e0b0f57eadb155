/// The Store in one plain file, usually a memfd: for control of a cluster that ends with its
/// launcher.
///
///     Fd file(memfd_create("control", MFD_CLOEXEC));    // the launcher, which sends it to control
///     auto path = "/proc/self/fd/" + std::to_string(file.get());
///     auto store = open_file_store(path, {});       // control, and the next one after its death
///
/// An acknowledged commit survives the death of the process at any instruction. It does not outlive
/// the file, since nothing is synced to a disk. The store also holds the map in memory.
#pragma once

#include "troupe/runtime/control/store.hpp"

#include <string>

namespace troupe::control {

struct FileStoreOptions {
  StoreOptions store;
  /// Replaces fstatvfs in tests; may be empty.
  std::function<Bytes()> free_space;
};

/// Returns whether there is a plain file at this path.
bool is_store_file(const std::string& path);

/// Opens the file, which may be empty. Errors: unavailable when another process holds it or it
/// cannot be opened; invalid_argument when it is no store or is damaged. Cost: reads every record
/// once.
Result<std::unique_ptr<Store>> open_file_store(const std::string& path, FileStoreOptions options);

}  // namespace troupe::control
