/// Client: the access of one process to the node's shared memory. It writes its own objects and
/// reads those of other processes, both in place.
///
///     auto created = client.create(bytes);                  // or an ExtentRequest for the agent
///     fill(std::get<Allocation>(*created).bytes());
///     Location at = client.seal(std::get<Allocation>(std::move(*created)));
///     Opened got = peer.open(at);                           // pins; a Pinned unpins
///     use(got.pinned.bytes());
///
/// A Client never waits and sends nothing. It returns requests to the agent as values, and the
/// runtime carries them. All calls are thread-safe. After a fork the child must not use its copy of
/// the Client: the child does not inherit the memory.
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

/// The tables and limits that the agent gives a process once (Host::register_process).
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

/// The answer of create() without space: ask the agent for an extent of `bytes`, add_extent() it,
/// and create again.
struct ExtentRequest {
  std::uint64_t bytes = 0;
};

/// Memory of an object that is being written, aligned to 64 bytes, with unspecified contents.
/// Destruction without seal() frees it. Must not outlive its client.
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

/// A view of a sealed object. The bytes do not change while it lives, even if the object is freed
/// or its writer dies. Must not outlive its client.
class TROUPE_API Pinned {
 public:
  Pinned() noexcept = default;
  Pinned(Pinned&& other) noexcept;
  Pinned& operator=(Pinned&& other) noexcept;
  ~Pinned();
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  const Location& location() const noexcept { return at_; }
  /// Returns another view of the same object. Precondition: not empty.
  Pinned clone() const noexcept;
  explicit operator bool() const noexcept { return client_ != nullptr; }

 private:
  friend class Client;
  Client* client_ = nullptr;
  Location at_;
  std::span<const std::byte> bytes_;
};

enum class OpenStatus : std::uint8_t {
  pinned,         ///< success: the view is in Opened::pinned
  needs_segment,  ///< add_segment() the publications of location.process, then open again
  needs_extent,   ///< add_reader_extent() location.extent, then open again
  moved,          ///< freed, spilled or lost with its node's memory: ask its owner
  invalid,        ///< no such place, or the writer's publication differs: a bug or an attack
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
  std::uint32_t objects = 0;         ///< being written, sealed, or dropped with a view left
  std::uint32_t holes = 0;           ///< free blocks; one per extent is no fragmentation
  std::uint32_t reader_extents = 0;  ///< extents of other processes that are mapped here
  std::uint64_t reader_bytes = 0;
};

/// One per process. Thread-safe; never waits, except for its own short lock in create, seal, drop
/// and the calls that add or forget memory.
class TROUPE_API Client {
 public:
  /// Called after an unpin for which the agent may be waiting; the runtime tells the agent
  /// (Host::unpinned). Runs on the thread that unpinned. It must not block or call the client.
  using UnpinReport = std::function<void(std::uint32_t process, std::uint32_t slot)>;

  /// Maps the tables. Afterwards the runtime must call Host::confirm_process in the agent, which
  /// seals them.
  /// Errors: out_of_memory (descriptors, address space), invalid_argument.
  static Result<std::unique_ptr<Client>> attach(Membership membership, UnpinReport report);
  Client(const Client&) = delete;
  ~Client();

  // -- write ---------------------------------------------------------------------------------
  using Created = std::variant<Allocation, ExtentRequest>;
  /// Returns memory for an object, or the request for an extent that it needs first. Freed memory
  /// whose pages are present is preferred.
  /// Errors: invalid_argument above 64 TiB; out_of_memory when this process has layout.slots
  /// objects.
  /// Cost: a system call only for fresh pages, which are populated in steps of 2 MiB. With `touch`
  /// false they are not populated: the first write to a page allocates it.
  Result<Created> create(std::uint64_t bytes, bool touch = true);
  /// Maps a granted extent. Afterwards the runtime must call Host::confirm_extent in the agent.
  Result<void> add_extent(ExtentGrant grant);
  /// Publishes the first `length` bytes (all by default). From now on no process may change them.
  Location seal(Allocation allocation, std::uint32_t tag = 0) noexcept;
  Location seal(Allocation allocation, std::uint32_t tag, std::uint64_t length) noexcept;
  /// Reuses the memory of an object of this process. Called for Notice::recycle: the object was
  /// freed and has no reader. Error: invalid_argument, without any change, when the object is not
  /// of this process or was recycled before.
  Result<void> recycle(std::uint32_t slot, std::uint64_t generation);
  /// Frees an object of this process, without the agent. Returns true if it is freed at once, false
  /// if with its last view. Precondition: its location never left this process, so the agent has
  /// not adopted it.
  Result<bool> drop(const Location& at);
  /// Unmaps own extents without objects, as long as `keep` bytes of capacity remain, and returns
  /// them. The runtime must call Host::release_extent for each.
  std::vector<ExtentId> trim(Bytes keep);

  // -- read ----------------------------------------------------------------------------------
  /// Pins an object and returns a view of it. `at` may come from an untrusted process. Cost: no
  /// system call, no lock.
  Opened open(const Location& at) noexcept;
  /// Maps memory that open() asked for. Errors: invalid_argument (size, or not sealed),
  /// out_of_memory.
  Result<void> add_segment(ReaderSegment segment);
  Result<void> add_reader_extent(ReaderExtent extent);
  /// Frees the memory of an extent or segment that the agent says is gone (Notice). Its addresses
  /// stay mapped.
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
