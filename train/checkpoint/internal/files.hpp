/// What writing and reading checkpoints need of the file system. Errors name the path; a full disk
/// is out_of_disk, and any other failure unavailable.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe::train::internal {

/// Returns the error of a system call that set errno to `number`.
Error failed(const std::string& what, const std::string& path, int number);
Result<void> write_all(const Fd& file, BlobView bytes, const std::string& path);
/// Reads up to `size` bytes from offset `from`; fewer only at the end of the file.
Result<std::size_t> read_some(const Fd& file, void* to, std::size_t size, std::uint64_t from,
                              const std::string& path);
Result<void> sync_folder(const std::string& folder);
/// Syncs the folder in which the path lies.
Result<void> sync_folder_of(const std::string& path);

/// Opens a regular file to read it, and returns it with its size. Opening a FIFO does not block;
/// it and other files that are not regular are invalid_argument.
struct OpenFile {
  Fd file;
  std::uint64_t size = 0;
};
Result<OpenFile> open_regular(const std::string& path);
/// Reads a regular file of at most `most` bytes.
Result<std::string> read_text(const std::string& path, std::uint64_t most);
/// Creates or replaces the file and syncs it. A crash may leave a part of it.
Result<void> write_text(const std::string& path, const std::string& text);

}  // namespace troupe::train::internal
