/// Plug-ins: modules beside libtroupe.so that few processes open, because their libraries are slow
/// to load.
///
///     Result<void*> door = find_in_plug_in("libtroupe_rocksdb.so", "troupe_rocksdb_door");
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <string>

namespace troupe {

/// Opens the module (beside this library, in ../lib, or where the loader looks) and returns the
/// address of the symbol. The module stays open. Errors: unavailable with the loader's reason; or
/// the module is of another version, if it lacks the symbol.
Result<void*> find_in_plug_in(const std::string& file, const char* symbol);

}  // namespace troupe
