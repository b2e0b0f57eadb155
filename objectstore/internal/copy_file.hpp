/// One copy of an object as a file with a name: how it is written, found and checked.
#pragma once

#include "troupe/objectstore/internal/disk_io.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/units.hpp"

#include <optional>
#include <span>

namespace troupe::objectstore::internal {

inline constexpr std::uint64_t kCopyHead = 64;        ///< bytes before the note
inline constexpr std::uint64_t kMostNote = 16 << 20;  ///< a longer one is not believed

/// How it went; `why` is a sentence when it did not go well.
struct CopyOutcome {
  enum class How : std::uint8_t { done, full, failed, missing, damaged };
  How how = How::done;
  std::string why;
};

/// A whole copy under its name, or nothing. `folder` is the node's.
CopyOutcome write_copy(int folder, NodeId node, ObjectId object, BlobView note,
                       std::span<const std::byte> bytes, Pwrite pwrite, double keep_free);
/// Its note, checked, and the number of its bytes.
CopyOutcome look_at_copy(int folder, NodeId node, ObjectId object, Pread pread, Blob& note,
                         std::uint64_t& size);
/// Its bytes, checked; as many as there is room for, or it is not the one that was meant.
CopyOutcome read_copy(int folder, NodeId node, ObjectId object, Pread pread,
                      std::span<std::byte> into);
void remove_copy(int folder, ObjectId object) noexcept;

}  // namespace troupe::objectstore::internal
