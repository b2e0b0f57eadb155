/// One process's hands on the node's shared memory: writes objects in place, reads those of others
/// in place.
///
///     auto created = client.create(bytes);                  // or an ExtentRequest for the agent
///     fill(std::get<Allocation>(*created).bytes());
///     Location at = client.seal(std::get<Allocation>(std::move(*created)));
///     Opened got = peer.open(at);                           // pins; a Pinned unpins
///     use(got.pinned.bytes());
///
/// A Client never waits and sends nothing: what it needs from the agent it returns as a value, and
/// the runtime carries it. All calls are thread-safe. After a fork the child must not touch its
/// copy: the memory is not inherited.
#pragma once

#include "troupe/objectstore/location.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

namespace troupe::objectstore {

class Client;

/// What the agent gives a process once (Host::register_process).
struct Membership {
  Layout layout;
  std::uint32_t process = 0;
  std::uint32_t incarnation = 0;
  std::uint64_t extent_bytes = 0;  ///< usual size of an extent
  Fd publications;
  Fd pins;
  Fd retirements;
};

/// Writable memory for a writer (Host::grant). The id is zero only in a default one.
struct ExtentGrant {
  ExtentId id;
  std::uint64_t bytes = 0;
  Fd memory;
};

/// Sealed memory for a reader (Host::extent_for_reader).
struct ReaderExtent {
  ExtentId id;
  std::uint64_t bytes = 0;
  Fd memory;
};

/// A process's publications for a reader (Host::segment_for_reader).
struct ReaderSegment {
  std::uint32_t process = 0;
  std::uint32_t incarnation = 0;
  Fd memory;
};

/// "Ask the agent for an extent of this size, add_extent() it, and create again."
struct ExtentRequest {
  std::uint64_t bytes = 0;
};

/// Memory of an object in the making, 64-byte aligned, contents unspecified. Aborted when destroyed
/// unsealed. Must not outlive its client.
class TROUPE_API Allocation {
 public:
  Allocation() noexcept = default;
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  ~Allocation();
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return client_ != nullptr; }

 private:
  friend class Client;
  Client* client_ = nullptr;
  std::uint32_t slot_ = 0;
  std::span<std::byte> bytes_;
};

/// A view of a sealed object. The bytes stay as they are until it is destroyed, whoever frees the
/// object or dies meanwhile. Must not outlive its client.
class TROUPE_API Pinned {
 public:
  Pinned() noexcept = default;
  Pinned(Pinned&& other) noexcept;
  Pinned& operator=(Pinned&& other) noexcept;
  ~Pinned();
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  const Location& location() const noexcept { return at_; }
  /// Another view of the same object. Precondition: not empty.
  Pinned clone() const noexcept;
  explicit operator bool() const noexcept { return client_ != nullptr; }

 private:
  friend class Client;
  Client* client_ = nullptr;
  Location at_;
  std::span<const std::byte> bytes_;
};

enum class OpenStatus : std::uint8_t {
  pinned,         ///< the object is in `pinned`
  needs_segment,  ///< add_segment() the publications of location.process, then open again
  needs_extent,   ///< add_reader_extent() location.extent, then open again
  moved,          ///< freed, spilled or gone with its node's memory: ask its owner
  invalid,        ///< no such place, or its writer says something else: a bug or an attack
};

struct Opened {
  OpenStatus status = OpenStatus::invalid;
  Pinned pinned;
};

struct ClientStats {
  std::uint64_t capacity = 0;      ///< bytes of own extents
  std::uint64_t used = 0;          ///< bytes of objects in them, padding included
  std::uint64_t largest_free = 0;  ///< bytes of the largest hole
  std::uint32_t extents = 0;
  std::uint32_t objects = 0;         ///< being written, sealed or waiting for the last view
  std::uint32_t holes = 0;           ///< free blocks; one per extent is no fragmentation
  std::uint32_t reader_extents = 0;  ///< others' extents mapped here
  std::uint64_t reader_bytes = 0;
};

class TROUPE_API Client {
 public:
  /// Called after an unpin for which the agent may be waiting: tell it (Host::unpinned). Runs on
  /// the thread that unpinned; must not block or call the client.
  using UnpinReport = std::function<void(std::uint32_t process, std::uint32_t slot)>;

  /// Maps the tables. Afterwards tell the agent (Host::confirm_process), which then seals them.
  /// Errors: out_of_memory (descriptors, address space), invalid_argument.
  static Result<std::unique_ptr<Client>> attach(Membership membership, UnpinReport report);
  Client(const Client&) = delete;
  ~Client();

  // -- write ---------------------------------------------------------------------------------
  using Created = std::variant<Allocation, ExtentRequest>;
  /// Memory for an object, or the extent that it needs first. Recycled warm memory first.
  /// Errors: invalid_argument above 64 TiB; out_of_memory when this process has layout.slots
  /// objects. Cost: ~100 ns; new pages are populated 2 MiB ahead, unless `touch` is false: then by
  /// whoever writes there first.
  Result<Created> create(std::uint64_t bytes, bool touch = true);
  /// Maps a granted extent. Afterwards tell the agent (Host::confirm_extent).
  Result<void> add_extent(ExtentGrant grant);
  /// Publishes the first `length` bytes (all by default). From now on nobody may change them.
  Location seal(Allocation allocation, std::uint32_t tag = 0) noexcept;
  Location seal(Allocation allocation, std::uint32_t tag, std::uint64_t length) noexcept;
  /// The agent says that this object of ours was freed and has no reader: its memory is used again.
  /// invalid_argument when it is not ours or was recycled before; nothing changes then.
  Result<void> recycle(std::uint32_t slot, std::uint64_t generation);
  /// Frees an object of ours whose location never left this process, without the agent. True: at
  /// once; false: when its last view goes. Precondition: never adopted by the agent.
  Result<bool> drop(const Location& at);
  /// Gives back own extents that hold nothing, as long as `keep` bytes of capacity stay. Tell the
  /// agent each (Host::release_extent).
  std::vector<ExtentId> trim(Bytes keep);

  // -- read ----------------------------------------------------------------------------------
  /// Pins an object. No system call, no lock; ~50 ns. `at` may come from anyone.
  Opened open(const Location& at) noexcept;
  Result<void> add_segment(ReaderSegment segment);
  Result<void> add_reader_extent(ReaderExtent extent);
  /// The agent says that the extent or segment is gone: its memory is given back.
  void forget_extent(ExtentId extent) noexcept;
  void forget_segment(std::uint32_t process) noexcept;

  // -- observe -------------------------------------------------------------------------------
  std::uint32_t process() const noexcept;
  ClientStats stats() const;

 private:
  friend class Allocation;
  friend class Pinned;
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl) noexcept;
  void abort(std::uint32_t slot) noexcept;
  void unpin(const Location& at) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::objectstore
