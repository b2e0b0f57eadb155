/// Writes, finds and checks one copy of an object as a file with a name, for SharedCopies. A file
/// is a head of 64 bytes, the note, then the object's bytes; the head has checksums of name, note,
/// bytes and itself.
#pragma once

#include "troupe/objectstore/internal/disk_io.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/units.hpp"

#include <optional>
#include <span>

namespace troupe::objectstore::internal {

inline constexpr std::uint64_t kCopyHead = 64;        ///< bytes before the note
inline constexpr std::uint64_t kMostNote = 16 << 20;  ///< a longer note means a damaged file

/// The result of an operation on a copy; `why` is a sentence unless it is `done`.
struct CopyOutcome {
  enum class How : std::uint8_t { done, full, failed, missing, damaged };
  How how = How::done;
  std::string why;
};

/// Writes a whole copy under its name, or nothing. `folder` is the node's own folder.
CopyOutcome write_copy(int folder, NodeId node, ObjectId object, BlobView note,
                       std::span<const std::byte> bytes, Pwrite pwrite, double keep_free);
/// Reads the note of a copy, checks it, and gives the size of the object.
CopyOutcome look_at_copy(int folder, NodeId node, ObjectId object, Pread pread, Blob& note,
                         std::uint64_t& size);
/// Reads the bytes of a copy and checks them. A copy whose size is not that of `into` is `damaged`.
CopyOutcome read_copy(int folder, NodeId node, ObjectId object, Pread pread,
                      std::span<std::byte> into);
void remove_copy(int folder, ObjectId object) noexcept;

}  // namespace troupe::objectstore::internal
