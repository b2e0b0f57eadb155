/// What everything that keeps objects in files does with them: whole writes and reads, and whether
/// a disk is full.
#pragma once

#include "troupe/objectstore/spill_files.hpp"

#include <cstdint>
#include <string>

namespace troupe::objectstore::internal {

using Pwrite = decltype(SpillOptions::pwrite);
using Pread = decltype(SpillOptions::pread);

/// The sentence of an errno.
std::string text_of(int error);
bool is_full(int error) noexcept;
/// Whether its file system keeps this part free for others when so many bytes come to it.
bool leaves_enough(int fd, std::uint64_t bytes, double keep_free);

/// All of it, in pieces that a stop need not wait long for. The errno, or 0.
int write_all(Pwrite pwrite, int fd, const void* from, std::uint64_t size, std::uint64_t offset);
/// Up to `size` bytes, fewer where the file ends. The errno, or 0.
int read_all(Pread pread, int fd, void* into, std::uint64_t size, std::uint64_t offset,
             std::uint64_t& done);

}  // namespace troupe::objectstore::internal
