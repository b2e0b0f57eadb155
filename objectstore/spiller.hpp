/// Spiller: makes room in a full arena by moving objects to disk, and brings them back on request.
/// It sits between the agent and its Host.
///
///     Spiller spiller(*host, SpillFiles::open(...).value(), out);
///     spiller.adopted(at, now);                      // after Host::adopt
///     spiller.need(ask, process, bytes, now);        // instead of Host::grant → granted, …
///     spiller.find(ask, at, now);                    // open() said `moved` → located, or refused
///     spiller.free(at);                              // instead of Host::free
///     // in the loop: wait for fd() until next_deadline(), then spiller.poll(now), then send what
///     // Host::take_notices() gives, then what try_again() and memory_pressure() want told
///
/// Names. The Location under which an object was adopted stays its name for life, wherever its
/// bytes are. So locations in messages and in other processes need no update. A process whose
/// open() returns `moved` asks the agent for the present Location and opens that.
///
/// Choice. Objects without a pin are spilled, all of an extent together, the least recently used
/// extent first. A use is an adoption or a find(). A successful open() is not noticed as a use, but
/// its pin is.
///
/// Answers. An ask is a request for memory or for an object. If spilling freed memory in the asking
/// process's own extents, the answer is try_again(). Extents of other processes that are empty come
/// back after memory_pressure(), and are granted anew. Asks are served in turn. An ask is refused
/// after `patience` in which no object was spilled and no ask was served, and after `at_most` in
/// any case. The error is out_of_memory, with the process that holds most and the bytes that could
/// not be spilled, or out_of_disk when the disk had no room.
///
/// Loans. Where the disk has no room for other objects, an object comes back as a loan: its memory
/// may exceed the arena, and its copy on disk stays. So a full disk hides no object. The next ask
/// takes the loan back once no view is left. A find() of another object turns a loan that has views
/// into a usual object, and its place on disk takes another one.
///
/// Cost. Objects are kept by extent, and extents in the order of use. So an ask examines the
/// objects that it moves and those that are pinned, not all objects.
///
/// Threads: one thread uses it, that of the Host, and no call waits. The disk has its own thread in
/// SpillFiles.
#pragma once

#include "troupe/objectstore/host.hpp"
#include "troupe/objectstore/spill_files.hpp"

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace troupe::objectstore {

struct SpillerOptions {
  Duration patience{std::chrono::seconds(8)};     ///< longest wait of an ask without progress
  Duration at_most{std::chrono::seconds(30)};     ///< longest wait of an ask
  Duration grace{std::chrono::milliseconds(50)};  ///< a restored object is not spilled so long
  Duration retry{std::chrono::milliseconds(10)};  ///< period of new tries while an ask waits
  std::uint64_t at_once{64u << 20};               ///< most bytes being written at a time
};

struct SpillerStats {
  SpillStats disk;
  std::uint64_t spilled = 0;  ///< objects whose only copy is on disk
  std::uint64_t spilled_bytes = 0;
  std::uint64_t restored = 0;  ///< since the start
  std::uint64_t waiting = 0;   ///< asks without an answer
};

class TROUPE_API Spiller {
 public:
  /// Receives the answers, which must not call the Spiller. An ask gets exactly one answer, except
  /// after forget().
  class Out {
   public:
    virtual ~Out() = default;
    virtual void granted(std::uint64_t ask, ExtentGrant grant) = 0;
    /// Tells the process that it may have room in its own extents: it calls create() again, and
    /// need() again if that fails. Must reach the process after the notices of the host.
    virtual void try_again(std::uint64_t ask) = 0;
    virtual void located(std::uint64_t ask, const Location& at) = 0;
    /// Errors of need(): out_of_memory or out_of_disk. Errors of find(): object_lost, or those two
    /// when there was no memory to restore the object.
    virtual void refused(std::uint64_t ask, const Error& error) = 0;
    /// Asks every process to have the agent adopt the objects that it alone knows, and to return
    /// empty extents (Client::trim, Host::release_extent). Must reach the processes after the
    /// notices of the host.
    virtual void memory_pressure() = 0;
  };

  Spiller(Host& host, std::unique_ptr<SpillFiles> files, Out& out, SpillerOptions options = {});
  Spiller(const Spiller&) = delete;
  ~Spiller();

  /// Makes an object known that the Host has adopted.
  void adopted(const Location& name, Time now);
  /// Frees an object, wherever its bytes are. Errors: as Host::free.
  Result<void> free(const Location& name);
  /// Asks for an extent. Out gets granted(), try_again() or refused(), perhaps before the call
  /// returns.
  void need(std::uint64_t ask, std::uint32_t process, std::uint64_t bytes, Time now);
  /// Asks where an object is, and restores it if it is on disk. Out gets located() or refused(),
  /// perhaps before the call returns.
  void find(std::uint64_t ask, const Location& name, Time now);
  /// Returns the present Location of the bytes, or nullopt when they are on disk or unknown. Valid
  /// until the next call.
  std::optional<Location> where(const Location& name) const;
  bool is_spilled(const Location& name) const;
  /// Returns whether the object is known and its last read from disk, if any, did not fail.
  bool is_good(const Location& name) const;
  /// Forgets the asks for memory of a dead process: they get no answer.
  void forget(std::uint32_t process);

  int fd() const noexcept { return files_->fd(); }
  void poll(Time now);
  Time next_deadline() const;
  SpillerStats stats() const;
  /// The state of an object, for observers.
  struct Seen {
    Location name;
    bool on_disk = false;
    std::uint32_t pins = 0;
    Time adopted{}, used{};
  };
  /// Returns the state of an object, or nullopt if it was not adopted or was freed.
  std::optional<Seen> look(const Location& name) const;
  /// Calls `look_at` for each object, in the order of process and slot. O(objects).
  void each(const std::function<void(const Seen&)>& look_at) const;
  /// Returns the bytes of objects in memory that are pinned now. O(objects in memory).
  std::uint64_t pinned_bytes() const;

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  enum class State : std::uint8_t { memory, leaving, disk, coming };
  struct Object {
    Location name, at;
    State state = State::memory;
    bool bad = false;   ///< it could not be read from the disk
    bool lent = false;  ///< its copy on disk stays while it is in memory
    SpillId id = 0;
    Time adopted{}, used{}, stays_until{};
    std::vector<std::uint64_t> asks;  ///< those that wait until it is restored
    /// Neighbours in the list of its extent, while it is in memory and may be spilled.
    Object *before = nullptr, *after = nullptr;
    bool listed = false;
  };
  /// The objects of an extent that may be spilled.
  struct Extent {
    Time used{};  ///< the newest use of its objects
    Object* first = nullptr;
  };
  struct Ask {
    std::uint64_t ask = 0;
    std::uint32_t process = 0;
    std::uint64_t bytes = 0;
    std::optional<Key> restores;  ///< not from a process: memory to restore this object
    Time since{};
    std::uint64_t got_back = 0;  ///< bytes of the process's own objects freed since the ask
  };
  static Key key(const Location& at) { return {at.process, at.slot, at.generation}; }
  void wrote(const SpillDone& done, Time now);
  void read(const SpillDone& done, Time now);
  void serve(Time now);
  enum class Served : std::uint8_t { yes, no_room };
  Served serve(Ask& ask, Time now);
  enum class Limit : std::uint8_t { arena, one_beyond };
  Result<void> restore(Object& object, Limit limit);
  void lend(Time now);
  void take_back(bool gives_way, Time now);
  void drop_copy(const Object& object);
  bool is_over(const Ask& ask, Time now) const;
  void give_up(const Ask& ask);
  Error why_not(const Ask& ask) const;
  void make_room(std::uint64_t bytes, Time now);
  void spill(Object& object, Time now);
  Seen seen(const Object& object) const;
  std::vector<Object*> choose(std::uint64_t bytes, Time now);
  void count_on_disk(const Object& object, bool is_there);
  void list(Object& object);
  void unlist(Object& object);
  void move_to(Extent& extent, std::uint64_t id, Time used);
  bool trim_own();

  Host& host_;
  Out& out_;
  const SpillerOptions options_;
  std::map<Key, Object> objects_;
  std::map<std::uint64_t, Extent> extents_;          ///< those with objects to spill, by id
  std::set<std::pair<Time, std::uint64_t>> by_use_;  ///< the same, least recently used first
  std::map<SpillId, Key> by_id_;
  std::map<SpillId, Pinned> writing_;
  std::map<SpillId, Allocation> reading_;
  std::set<Key> lent_;  ///< those in memory
  std::deque<Ask> asks_;
  std::uint64_t writing_bytes_ = 0;
  std::optional<Error> disk_error_;  ///< why the last spill failed; none after a success
  std::optional<Error> shortage_;    ///< the host's last error
  Time next_pressure_{}, next_try_{};
  Time progress_{};  ///< when an object was last spilled, or an ask served
  std::uint64_t restored_ = 0;
  std::uint64_t on_disk_ = 0, on_disk_bytes_ = 0;
  std::unique_ptr<SpillFiles> files_;  ///< last: its thread uses memory that members above hold
};

}  // namespace troupe::objectstore
