/// Small files of a study's folder. Errors name the path; a full disk is OutOfDisk, and any other
/// failure Unavailable.
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::tune::internal {

/// Returns the system's words for an error number.
std::string words_of(int number);
Error failed(const std::string& what, const std::string& path, int number);
bool exists(const std::string& path);
/// Reads a file of at most `most` bytes.
Result<std::string> read_file(const std::string& path, std::size_t most);
/// Writes another file, syncs it and renames it over the path. A crash leaves the old file or the
/// new one. One process at a time may write a path.
Result<void> replace_file(const std::string& path, std::string_view text);
Result<void> sync_folder(const std::string& folder);
/// Returns a path of at most 107 bytes to bind or connect the folder's file `socket` by. It is valid
/// while `handle` is an open descriptor of the folder.
std::string socket_address(const std::string& folder, int handle);

}  // namespace troupe::tune::internal
