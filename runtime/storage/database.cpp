#include "troupe/runtime/storage/database.hpp"

#include "troupe/runtime/base/plug_in.hpp"

namespace troupe::storage {
namespace {

Result<const Door*> open_plugin() {
  const auto found = find_in_plug_in(kPlugin, kDoor);
  if (found) return reinterpret_cast<const Door* (*)()>(*found)();
  return Error(Code::unavailable,
               "a data folder needs RocksDB, and its plug-in cannot be opened (" +
                   found.error().message() +
                   "): install it beside libtroupe.so, or run without a data folder");
}

}  // namespace

Result<const Door*> door() {
  static const Result<const Door*> found = open_plugin();
  return found;
}

}  // namespace troupe::storage
