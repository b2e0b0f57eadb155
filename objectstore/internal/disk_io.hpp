/// File operations that SpillFiles and SharedCopies share: whole writes and reads, and whether a
/// disk is full.
#pragma once

#include "troupe/objectstore/spill_files.hpp"

#include <cstdint>
#include <string>

namespace troupe::objectstore::internal {

using Pwrite = decltype(SpillOptions::pwrite);
using Pread = decltype(SpillOptions::pread);

/// Returns the text of an errno.
std::string text_of(int error);
bool is_full(int error) noexcept;
/// Returns whether the part `keep_free` of the file system stays free for other programs after
/// `bytes` more.
bool leaves_enough(int fd, std::uint64_t bytes, double keep_free);

/// Writes all bytes, in pieces, so that a stop of the process does not wait for one long call.
/// Returns the errno, or 0.
int write_all(Pwrite pwrite, int fd, const void* from, std::uint64_t size, std::uint64_t offset);
/// Reads up to `size` bytes, fewer where the file ends; `done` is their number. Returns the errno,
/// or 0.
int read_all(Pread pread, int fd, void* into, std::uint64_t size, std::uint64_t offset,
             std::uint64_t& done);

}  // namespace troupe::objectstore::internal
