/// The Store in one plain file, usually one without a name: for control of a cluster that is gone
/// with its launcher.
///
///     Fd file(memfd_create("control", MFD_CLOEXEC));                      // the launcher
///     auto path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.get());
///     auto store = open_file_store(path, {});       // control, and the one after its death
///
/// What is acknowledged survives the death of the process at any instruction, and nothing of it
/// outlives the file: nothing is synced to a disk. In memory the map is held once more.
#pragma once

#include "troupe/runtime/control/store.hpp"

#include <string>

namespace troupe::control {

struct FileStoreOptions {
  StoreOptions store;
  /// Replaces fstatvfs in tests; may be empty.
  std::function<Bytes()> free_space;
};

/// Whether there is a plain file at this path.
bool is_store_file(const std::string& path);

/// Opens the file, which may be empty. Errors: unavailable when another process holds it or it
/// cannot be opened; invalid_argument when it is something else, or damaged.
/// Cost: reads every record once.
Result<std::unique_ptr<Store>> open_file_store(const std::string& path, FileStoreOptions options);

}  // namespace troupe::control
