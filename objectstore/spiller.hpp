/// Makes room in a full arena by moving objects to disk, and brings them back when somebody asks.
///
///     Spiller spiller(*host, SpillFiles::open(...).value(), out);
///     spiller.adopted(at, now);                      // after Host::adopt
///     spiller.need(ask, process, bytes, now);        // instead of Host::grant → granted, …
///     spiller.find(ask, at, now);                    // open() said `moved` → located, or refused
///     spiller.free(at);                              // instead of Host::free
///     // in the loop: wait for fd() until next_deadline(), then spiller.poll(now), then send what
///     // Host::take_notices() gives, then what try_again() and memory_pressure() want told
///
/// The Location under which an object was adopted stays its name for life, wherever its bytes are:
/// locations that travel, that wait in messages and that others keep need not be changed. Whoever
/// finds it `moved` asks where it is now, and opens that.
///
/// What goes: objects that nobody looks at, an extent's at once, those extents first whose newest
/// use is the longest ago. A use is an adoption or a find(); an open() that succeeds is not seen,
/// but its pin is. Memory that an asker gets back as its own is answered by try_again(); what
/// others have emptied they must give back (memory_pressure()), and it is granted anew. Those who
/// wait are served in turn, and refused when for `patience` nothing has gone to disk or come free,
/// or after `at_most`: out_of_memory, with who holds how much and how much of it could not go, or
/// out_of_disk when it is the disk that had no room.
///
/// Objects are kept by extent and the extents by use, so that an ask looks at as many objects as it
/// moves and as somebody looks at, not at all of them.
///
/// A state machine but for the disk, which has its thread in SpillFiles: one thread uses it, the
/// one of the Host; no call waits.
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
  Duration patience{std::chrono::seconds(8)};  ///< of those who wait for memory, without progress
  Duration at_most{std::chrono::seconds(30)};  ///< of those who wait for memory
  Duration grace{std::chrono::milliseconds(50)};  ///< what was brought back stays so long
  Duration retry{std::chrono::milliseconds(10)};  ///< while somebody waits, all is looked at again
  std::uint64_t at_once{64u << 20};               ///< bytes that are written at a time
};

struct SpillerStats {
  SpillStats disk;
  std::uint64_t spilled = 0;  ///< objects whose only copy is on disk
  std::uint64_t spilled_bytes = 0;
  std::uint64_t restored = 0;  ///< since the start
  std::uint64_t waiting = 0;   ///< asks without memory
};

class TROUPE_API Spiller {
 public:
  /// Answers; they must not call back in. An ask has exactly one, but for those of forget().
  class Out {
   public:
    virtual ~Out() = default;
    virtual void granted(std::uint64_t ask, ExtentGrant grant) = 0;
    /// The process may have room in its own extents now: it is to create() again, and to need()
    /// again if that fails. To be told after the notices of the host.
    virtual void try_again(std::uint64_t ask) = 0;
    virtual void located(std::uint64_t ask, const Location& at) = 0;
    /// of need(): out_of_memory or out_of_disk; of find(): object_lost, or those when there was no
    /// room to bring it back to.
    virtual void refused(std::uint64_t ask, const Error& error) = 0;
    /// Every process is to have adopted what it alone knows of, and to give back empty extents
    /// (Client::trim, Host::release_extent). To be told after the notices of the host.
    virtual void memory_pressure() = 0;
  };

  Spiller(Host& host, std::unique_ptr<SpillFiles> files, Out& out, SpillerOptions options = {});
  Spiller(const Spiller&) = delete;
  ~Spiller();

  void adopted(const Location& name, Time now);
  /// The same errors as Host::free.
  Result<void> free(const Location& name);
  void need(std::uint64_t ask, std::uint32_t process, std::uint64_t bytes, Time now);
  void find(std::uint64_t ask, const Location& name, Time now);
  /// Where the bytes are; nullopt: on disk, or unknown. For the agent's own use at once.
  std::optional<Location> where(const Location& name) const;
  bool is_spilled(const Location& name) const;
  /// It is there, and the last who wanted it from the disk got it.
  bool is_good(const Location& name) const;
  /// The process is gone: its asks for memory get no answer.
  void forget(std::uint32_t process);

  int fd() const noexcept { return files_->fd(); }
  void poll(Time now);
  Time next_deadline() const;
  SpillerStats stats() const;
  /// An object as observers see it.
  struct Seen {
    Location name;
    bool on_disk = false;
    std::uint32_t pins = 0;
    Time adopted{}, used{};
  };
  /// nullopt: it was not adopted, or was freed.
  std::optional<Seen> look(const Location& name) const;
  /// Each, in order of process and slot. O(objects).
  void each(const std::function<void(const Seen&)>& look_at) const;
  /// Bytes of objects in memory that are looked at now. O(objects in memory).
  std::uint64_t pinned_bytes() const;

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  enum class State : std::uint8_t { memory, leaving, disk, coming };
  struct Object {
    Location name, at;
    State state = State::memory;
    bool bad = false;  ///< it could not be read from the disk
    SpillId id = 0;
    Time adopted{}, used{}, stays_until{};
    std::vector<std::uint64_t> asks;  ///< that wait for it to come back
    /// Neighbours in the list of its extent, while it is in memory and may go.
    Object *before = nullptr, *after = nullptr;
    bool listed = false;
  };
  /// What may go of an extent.
  struct Extent {
    Time used{};  ///< the newest of its objects
    Object* first = nullptr;
  };
  struct Ask {
    std::uint64_t ask = 0;
    std::uint32_t process = 0;
    std::uint64_t bytes = 0;
    std::optional<Key> restores;  ///< no ask of a process: room to bring this object back to
    Time since{};
    std::uint64_t got_back = 0;  ///< bytes of its own objects that have gone
  };
  static Key key(const Location& at) { return {at.process, at.slot, at.generation}; }
  void wrote(const SpillDone& done, Time now);
  void read(const SpillDone& done, Time now);
  void serve(Time now);
  enum class Served : std::uint8_t { yes, no_room };
  Served serve(Ask& ask);
  Result<void> restore(Object& object);
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
  std::map<std::uint64_t, Extent> extents_;          ///< of objects that may go, by id
  std::set<std::pair<Time, std::uint64_t>> by_use_;  ///< those, the longest unused first
  std::map<SpillId, Key> by_id_;
  std::map<SpillId, Pinned> writing_;
  std::map<SpillId, Allocation> reading_;
  std::deque<Ask> asks_;
  std::uint64_t writing_bytes_ = 0;
  std::optional<Error> disk_error_;  ///< why the last spill failed, since one succeeded
  std::optional<Error> shortage_;    ///< what the host said last
  Time next_pressure_{}, next_try_{};
  Time progress_{};  ///< when something last went to disk, or came free
  std::uint64_t restored_ = 0;
  std::uint64_t on_disk_ = 0, on_disk_bytes_ = 0;
  std::unique_ptr<SpillFiles> files_;  ///< last: its thread uses what the others hold
};

}  // namespace troupe::objectstore
