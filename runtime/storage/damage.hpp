/// Finds where a database is damaged, for error messages.
///
///     std::string where = find_damage("/x/db");   // "/x/db/000012.log, offset 4711"
#pragma once

#include <string>

namespace troupe::storage {

/// Finds the first bad record in RocksDB's write-ahead logs and manifests. Returns an empty text
/// when it finds none. A cut last record is not bad.
std::string find_damage(const std::string& folder);

}  // namespace troupe::storage
