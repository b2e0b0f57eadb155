/// The rules by which a study's store is whole or damaged.
#pragma once

#include "troupe/runtime/storage/database.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::tune::internal {

/// How a study's database is opened, to write and to read.
storage::OpenOptions database_options(bool create);

/// Returns the error of a database call on the study's folder.
Error error_of(const storage::Status& status, const std::string& what, const std::string& folder);
/// Returns the error that names the place of damage and what to do.
Error damaged(const std::string& folder, const std::string& where, const std::string& what);

/// Writes the number of the last synced event to the file `synced`.
Result<void> write_mark(const std::string& path, std::uint64_t event);
/// Returns nothing when the file is missing, short or altered.
std::optional<std::uint64_t> read_mark(const std::string& path);

/// Reads everything in the store. Returns the number of its last event. Errors: damaged() for an
/// unreadable key, a gap in the events, and an end before the file `synced` says; InvalidArgument
/// for another schema.
Result<std::uint64_t> check_store(storage::Database& db, const std::string& folder,
                                  std::uint64_t synced);

}  // namespace troupe::tune::internal
