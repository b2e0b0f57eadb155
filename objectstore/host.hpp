/// The agent's side of the node's shared memory: makes segments and extents, hands out descriptors,
/// frees objects, buries processes, counts bytes.
///
///     auto host = Host::create({.arena = 2_GiB});
///     auto membership = host->register_process();        // send it; the client attaches and
///     host->confirm_process(membership->process);        // confirms
///     host->adopt(process, location);                    // a ref has left its process
///     if (host->free(location) == Freed::waits) ...      // a reader still looks at it
///     for (const Notice& notice : host->take_notices()) send(notice);
///
/// A state machine with one occupant: not thread-safe (but for prefault), never waits, sends
/// nothing. After any call that can free something (free, unpinned, process_died,
/// release_extent), send what take_notices() gives.
#pragma once

#include "troupe/objectstore/arena.hpp"
#include "troupe/objectstore/client.hpp"

namespace troupe::objectstore {

struct HostOptions {
  Bytes arena;              ///< most bytes in extents; zero: default_arena_bytes()
  Bytes extent{64u << 20};  ///< usual extent; larger objects get one of their own
  Bytes ahead{256u << 20};  ///< most bytes prefaulted ahead; an eighth of the arena at most
  Layout layout;
  /// Called when a view of the agent's own was given up for which a free may wait: then call
  /// take_notices() soon. Runs on the thread of the view; must not call the host.
  std::function<void()> on_local_unpin;
};

enum class Freed : std::uint8_t {
  done,   ///< gone; the writer gets a notice to recycle it
  waits,  ///< retired: no new reader; done when the last pin goes
};

/// Something that the agent must tell processes. Lost with a dead process, else not.
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
  bool dead = false;          ///< some of its objects live on
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
  /// Error: out_of_memory; internal when the kernel cannot seal memory (before Linux 5.1).
  static Result<std::unique_ptr<Host>> create(HostOptions options = {});
  Host(const Host&) = delete;
  ~Host();

  // -- processes -----------------------------------------------------------------------------
  /// Makes the tables of a new process. Error: overloaded when all indexes are in use.
  Result<Membership> register_process();
  /// The process has attached: from here on nobody else can write its tables.
  Result<void> confirm_process(std::uint32_t process);
  /// The process is gone: its pins count no more, objects of its own that nobody adopted are freed,
  /// the adopted ones live on. Precondition: it runs no more and its messages have been read.
  void process_died(std::uint32_t process);

  // -- memory --------------------------------------------------------------------------------
  /// An extent for a writer that asked with an ExtentRequest. Error: out_of_memory at the limit of
  /// the arena; it says who holds how much. Takes a prefaulted one when the size is the usual.
  Result<ExtentGrant> grant(std::uint32_t process, std::uint64_t bytes);
  /// The writer has mapped it: seals it against everybody else.
  Result<void> confirm_extent(std::uint32_t process, ExtentId extent);
  /// The writer has unmapped it (Client::trim). invalid_argument when adopted objects live in it.
  Result<void> release_extent(std::uint32_t process, ExtentId extent);
  /// Descriptors for readers. Whether a process may read another's objects is the caller's
  /// decision. unavailable: not confirmed yet, ask again after the writer's next message;
  /// object_lost: gone.
  Result<ReaderExtent> extent_for_reader(ExtentId extent) const;
  Result<ReaderSegment> segment_for_reader(std::uint32_t process) const;
  /// Prefaults up to `bytes`; true when more is to do and there was memory for it.
  /// May run on one other thread.
  bool prefault(Bytes bytes);

  // -- objects -------------------------------------------------------------------------------
  /// `sender` hands the object over: from now on it lives until free(), whoever dies.
  /// invalid_argument when it is not sealed there, not the sender's, or says anything else than its
  /// publication.
  Result<void> adopt(std::uint32_t sender, const Location& at);
  /// Frees an adopted object. invalid_argument when it is not one (or was freed before).
  Result<Freed> free(const Location& at);
  /// Whether somebody looks at it now; a moment later anybody may. False when it is not here.
  bool is_pinned(const Location& at) const noexcept;
  /// How many views of it are open. 0 when it is not here.
  std::uint32_t pins(const Location& at) const noexcept;
  /// A process reports an unpin (Client::UnpinReport): looks at that object again.
  void unpinned(std::uint32_t process, std::uint32_t slot);
  /// Looks at every freed object that waits. Never needed when reports and deaths are told.
  void poll();
  std::vector<Notice> take_notices();

  // -- the agent's own objects (process index 0), for transfers and restores -------------------
  /// Memory for an object of the agent's own. Seal it with local().seal(), then adopt() it.
  /// `touch`: as for Client::create.
  Result<Allocation> create_local(std::uint64_t bytes, bool touch = true);
  /// A view of any object of the node. object_lost when it is not there.
  Result<Pinned> open_local(const Location& at);
  Client& local() noexcept;

  HostStats stats() const;

 private:
  struct Impl;
  explicit Host(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::objectstore
