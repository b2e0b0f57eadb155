/// The extents of a node's arena: which process has which, how many bytes all of them have, and how
/// many objects live in each. Host owns one.
///
///     Extents extents({.usual = 64u << 20, .arena = 2ull << 30, .processes = 64, .most = 1024});
///     auto grant = extents.grant(process, bytes, Limit::arena);
///     extents.confirm(process, grant->id);           // sealed: readers may have it from now on
///     ++extents.find(process, grant->id)->objects;
///     extents.drop(grant->id.index());               // no object lives in it any more
///
/// The sum of all extents stays within the arena, except by one that `Limit::one_beyond` allows.
/// An id is never used twice. Use it from one thread, except prefault().
#pragma once

#include "troupe/objectstore/client.hpp"
#include "troupe/objectstore/internal/extent_pool.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace troupe::objectstore::internal {

/// Whether an extent must fit into the arena, or may be the one that exceeds it.
enum class Limit : std::uint8_t { arena, one_beyond };

struct Extent {
  ExtentId id;
  std::uint64_t bytes = 0;
  std::uint32_t owner = 0;    ///< process
  std::uint32_t objects = 0;  ///< adopted or waiting in it
  bool sealed = false;
  Fd memory;
};

struct ExtentsOptions {
  std::uint64_t usual = 0, arena = 0;  ///< bytes
  std::uint64_t ahead = 0;             ///< most bytes prefaulted; an eighth of the arena at most
  std::uint32_t processes = 0, most = 0;
};

class Extents {
 public:
  explicit Extents(const ExtentsOptions& options);

  /// Makes an extent for at least `bytes`, a prefaulted one if the size is the usual one. Error:
  /// out_of_memory at the limit of the arena, which names the process that holds most.
  Result<ExtentGrant> grant(std::uint32_t process, std::uint64_t bytes, Limit limit);
  /// Seals an extent that its writer has mapped, so that no other process can write it.
  Result<void> confirm(std::uint32_t process, ExtentId id);
  /// Errors: object_lost when it is gone; unavailable when it is not confirmed yet.
  Result<ReaderExtent> for_reader(ExtentId id) const;
  /// Frees the extent. Returns what it was. Precondition: there is one at this index.
  Extent drop(std::uint32_t index);
  /// Allocates up to `bytes` of pages ahead of need. Returns true if there was memory and more is
  /// to do. May run on one other thread.
  bool prefault(Bytes bytes);

  /// Returns null when there is none, or when it is not this process's.
  Extent* find(std::uint32_t process, ExtentId id) noexcept {
    Extent* extent = id && id.index() < extents_.size() ? &extents_[id.index()] : nullptr;
    return extent != nullptr && extent->id == id && extent->owner == process ? extent : nullptr;
  }
  Extent& at(std::uint32_t index) noexcept { return extents_[index]; }
  /// The indexes of a process's extents.
  const std::set<std::uint32_t>& of(std::uint32_t process) const noexcept { return of_[process]; }
  std::uint64_t bytes_of(std::uint32_t process) const noexcept;
  /// The bytes of all extents, without the prefaulted ones.
  std::uint64_t granted() const noexcept { return granted_.load(); }
  std::uint64_t prefaulted() const { return pool_.held(); }
  bool exceed_arena() const noexcept { return granted() > options_.arena; }

 private:
  Result<void> make_room(std::uint64_t bytes, Limit limit);

  const ExtentsOptions options_;
  std::vector<Extent> extents_;
  std::deque<std::uint32_t> free_;
  std::vector<std::set<std::uint32_t>> of_;  ///< by process
  std::uint64_t serial_ = 0;
  std::atomic<std::uint64_t> granted_{0};
  ExtentPool pool_;
};

}  // namespace troupe::objectstore::internal
