/// Host: the agent's side of the node's shared memory. It makes tables and extents, hands out
/// descriptors, frees objects, cleans up after dead processes, and counts bytes.
///
///     auto host = Host::create({.arena = 2_GiB});
///     auto membership = host->register_process();        // send it; the client attaches and
///     host->confirm_process(membership->process);        // confirms
///     host->adopt(process, location);                    // a ref has left its process
///     if (host->free(location) == Freed::waits) ...      // a reader still has a view of it
///     for (const Notice& notice : host->take_notices()) send(notice);
///
/// A state machine for one thread, except prefault(). It never waits and sends nothing. After any
/// call that can free memory (free, unpinned, process_died, release_extent), the caller must send
/// the notices of take_notices().
#pragma once

#include "troupe/objectstore/arena.hpp"
#include "troupe/objectstore/client.hpp"

namespace troupe::objectstore {

struct HostOptions {
  Bytes arena;              ///< most bytes in extents; zero: default_arena_bytes()
  Bytes extent{64u << 20};  ///< usual extent; larger objects get one of their own
  Bytes ahead{256u << 20};  ///< most bytes prefaulted ahead; an eighth of the arena at most
  Layout layout;
  /// Called when a view of the agent's own client has ended for which a free may be waiting. The
  /// agent then calls take_notices() soon. Runs on the thread of the view, and must not call the
  /// host.
  std::function<void()> on_local_unpin;
};

enum class Freed : std::uint8_t {
  done,   ///< freed; the writer gets a notice to recycle it
  waits,  ///< retired: no new reader; freed when the last pin is removed
};

/// A message that the agent must send to processes. It must arrive unless the process is dead.
struct Notice {
  enum class Kind : std::uint8_t {
    recycle,         ///< to `process`: Client::recycle(slot, generation)
    forget_extent,   ///< to all processes: Client::forget_extent(extent)
    forget_segment,  ///< to all processes: Client::forget_segment(process)
  };
  Kind kind = Kind::recycle;
  std::uint32_t process = 0;
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  ExtentId extent;
};

struct ProcessStats {
  std::uint32_t process = 0;
  bool dead = false;          ///< the process is dead, but some of its objects live
  std::uint32_t objects = 0;  ///< adopted and not freed
  std::uint64_t bytes = 0;    ///< in them
  std::uint32_t extents = 0;
  std::uint64_t extent_bytes = 0;
};

struct HostStats {
  std::uint64_t arena = 0;         ///< the limit
  std::uint64_t usual_extent = 0;  ///< bytes
  std::uint64_t committed = 0;     ///< bytes in extents, the prefaulted ones included
  std::uint64_t prefaulted = 0;    ///< of these, ready for the next grant
  std::uint64_t object_bytes = 0;  ///< adopted and not freed
  std::uint32_t objects = 0;
  std::uint32_t extents = 0;
  std::uint32_t waiting = 0;  ///< freed objects that a pin still holds
  std::vector<ProcessStats> processes;
};

class TROUPE_API Host {
 public:
  /// Makes the store of a node. Errors: out_of_memory; internal when the kernel cannot seal memory
  /// (before Linux 5.1).
  static Result<std::unique_ptr<Host>> create(HostOptions options = {});
  Host(const Host&) = delete;
  ~Host();

  // -- processes -----------------------------------------------------------------------------
  /// Makes the tables of a new process. Error: overloaded when all indexes are in use.
  Result<Membership> register_process();
  /// Seals the tables of a process that has attached, so that no other process can write them.
  Result<void> confirm_process(std::uint32_t process);
  /// Cleans up after a process. Its pins count no more. Its objects that were not adopted are
  /// freed; the adopted ones live on. Precondition: it does not run any more, and its messages have
  /// been read.
  void process_died(std::uint32_t process);

  // -- memory --------------------------------------------------------------------------------
  /// Returns an extent for a writer that asked with an ExtentRequest, a prefaulted one if the size
  /// is the usual one. Error: out_of_memory at the limit of the arena, which names the process that
  /// holds most.
  Result<ExtentGrant> grant(std::uint32_t process, std::uint64_t bytes);
  /// Seals an extent that its writer has mapped, so that no other process can write it.
  Result<void> confirm_extent(std::uint32_t process, ExtentId extent);
  /// Takes back an extent that its writer has unmapped (Client::trim). Error: invalid_argument when
  /// adopted objects live in it.
  Result<void> release_extent(std::uint32_t process, ExtentId extent);
  /// Return descriptors for readers. The caller decides whether a process may read the objects of
  /// another.
  /// Errors: unavailable when not confirmed yet (ask again after the writer's next message);
  /// object_lost when gone.
  Result<ReaderExtent> extent_for_reader(ExtentId extent) const;
  Result<ReaderSegment> segment_for_reader(std::uint32_t process) const;
  /// Allocates up to `bytes` of pages ahead of need. Returns true if there was memory and more is
  /// to do. May run on one other thread.
  bool prefault(Bytes bytes);

  // -- objects -------------------------------------------------------------------------------
  /// Takes over an object of `sender`: from now on it lives until free(), also when its writer
  /// dies. Error: invalid_argument when it is not the sender's, not sealed, or differs from its
  /// publication.
  Result<void> adopt(std::uint32_t sender, const Location& at);
  /// Frees an adopted object. Error: invalid_argument when it is not adopted, or was freed before.
  Result<Freed> free(const Location& at);
  /// Returns whether a view of the object exists now; one may begin or end at any time. False for
  /// an unknown object.
  bool is_pinned(const Location& at) const noexcept;
  /// Returns the number of views of the object, 0 for an unknown one.
  std::uint32_t pins(const Location& at) const noexcept;
  /// Handles a process's report of an unpin (Client::UnpinReport): frees the object if it waits and
  /// has no pin left.
  void unpinned(std::uint32_t process, std::uint32_t slot);
  /// Frees every waiting object without a pin. Not needed as long as all reports and deaths arrive.
  void poll();
  /// Returns and clears the notices to send.
  std::vector<Notice> take_notices();

  // -- the agent's own objects (process index 0), for transfers and restores -------------------
  /// Returns memory for an object of the agent. Seal it with local().seal(), then adopt() it.
  /// `touch`: as for Client::create. Errors: as grant.
  Result<Allocation> create_local(std::uint64_t bytes, bool touch = true);
  /// Like create_local(bytes, false), but may exceed the arena by the extent of one object. Error:
  /// out_of_memory while extents exceed the arena already.
  Result<Allocation> lend_local(std::uint64_t bytes);
  /// Returns whether extents exceed the arena now.
  bool exceeds_arena() const noexcept;
  /// Returns a view of any object of the node. Error: object_lost when it is not there.
  Result<Pinned> open_local(const Location& at);
  Client& local() noexcept;

  HostStats stats() const;

 private:
  struct Impl;
  explicit Host(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::objectstore
