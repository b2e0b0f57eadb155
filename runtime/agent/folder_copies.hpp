/// Copies of objects in shared folders (TROUPE_SPILL_SHARED): writes those of this node's objects
/// that other nodes hold, and reads those of nodes that are gone. A thread of the object store
/// (SharedCopies) does the work on disk. Without such a folder nothing here has an effect.
///
///     copies.open(options);                          // then fd() is readable when it has results
///     copies.wants(object, now);                     // another node holds it: a copy is written
///     copies.look_for(owner, object, now);           // → references.ready_from_owner()
///     copies.want(owner, object, bytes, now);        // → references.pulled() or pull_failed()
///     copies.serve(ready, now);                      // each pass; sooner at next_deadline()
///
/// Invariants: FOLDER-1 Each look and each read ends once, with a value, with bytes or with an
/// error, 30 s after the folder was asked at the latest. FOLDER-2 Memory that is read into is kept
/// until the disk's thread has finished with it, also when its wait has ended. FOLDER-3 Reads that
/// are under way have a quarter of the arena, or one object.
#pragma once

#include "troupe/objectstore/host.hpp"
#include "troupe/objectstore/shared_copies.hpp"
#include "troupe/runtime/agent/copy_plan.hpp"
#include "troupe/runtime/agent/owners.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

class FolderCopies {
 public:
  /// What this part needs of memory and disk of the node. An implementation must not call back.
  class Store {
   public:
    virtual ~Store() = default;
    /// Returns where the object's bytes lie in memory; nullopt: they are on the node's own disk.
    virtual std::optional<objectstore::Location> where(const objectstore::Location& name) = 0;
    /// Brings an object back from the node's own disk; write() or write_failed() follows.
    virtual void bring_back(ObjectId object, const objectstore::Location& name, Time now) = 0;
    /// Asks for memory; room() or no_room() follows. Returns false if nothing can be spilled.
    virtual bool need_room(ObjectId object, std::uint64_t bytes, Time now) = 0;
    /// The object may be spilled from now on.
    virtual void may_spill(const wire::Location& at) = 0;
  };
  /// The parts below this one. `node`: its name, for the log.
  struct Below {
    const std::string& node;
    objectstore::Host& host;
    ReferenceTable& references;
    Owners& owners;
    Store& store;
  };
  explicit FolderCopies(const Below& below) : below_(below) {}
  /// Errors: those of SharedCopies::open(), explained to the user.
  void open(objectstore::SharedOptions options);
  bool is_open() const noexcept { return copies_ != nullptr; }
  objectstore::SharedStats stats() const { return copies_->stats(); }

  // --- of this node's objects
  void wants(ObjectId object, Time now) { plan_.wanted(object, now); }
  void over(ObjectId object) {
    if (plan_.over(object)) copies_->drop(object);
  }
  /// Writes the copy: the PeerReady with which the owner would answer a PeerAwait, and the bytes.
  void write(ObjectId object, Time now);
  /// Ends a copy that failed; it is tried again. Logs the first failure only, until a copy
  /// succeeds, and none of an object that was freed meanwhile.
  void write_failed(ObjectId object, const Error& why, Time now);

  // --- of nodes that are gone, and of this one when its own bytes have gone bad
  /// Looks for the object's value in the shared folders; references.ready_from_owner() answers.
  void look_for(ProcessIndex owner, ObjectId object, Time now);
  /// Reads the object's bytes from a copy; references.pulled() or pull_failed() answers.
  void want(ProcessIndex owner, ObjectId object, std::uint64_t bytes, Time now);
  bool is_reading(ObjectId object) const { return reading_.count(object) != 0; }
  /// Reads the copy in a later pass: there may be room now, but the spiller, which is the caller,
  /// must not be called back.
  void room(ObjectId object) { unread_.push_front(object); }
  void no_room(ObjectId object, const Error& why);

  // --- the loop
  /// Readable when the disk's thread has results; -1: there is no shared folder.
  int fd() const noexcept { return copies_ ? copies_->fd() : -1; }
  /// Notes whether fd() was readable; serve() then takes the results.
  void note_ready(bool is_ready) noexcept { ready_ = ready_ || is_ready; }
  void serve(Time now);
  Time next_deadline() const;

 private:
  /// Bytes of an object that come, or are to come, from its copy in a shared folder.
  struct Reading {
    NodeId node;  ///< that wrote the copy
    std::uint64_t bytes = 0;
    Time until{};                    ///< an error follows at this time
    objectstore::Allocation memory;  ///< none while it waits for room
    bool given_up = false;  ///< the error was told, but the disk's thread still uses the memory
  };
  /// The value of an object that is asked of its copy in a shared folder.
  struct Looking {
    ProcessIndex owner;
    Time until{};               ///< an error follows at this time
    std::optional<Time> again;  ///< set: the folder could not be read and is asked again then
  };
  void begin(ObjectId object, Time now);
  bool may_read() const;
  void read(ObjectId object, Time now);
  void looked_at(objectstore::CopyDone& done, Time now);
  void was_read(const objectstore::CopyDone& done);
  void expire(Time now);

  const Below below_;
  CopyPlan plan_;
  wire::PeerWriter writer_;
  std::map<ObjectId, objectstore::Pinned> copying_;  ///< bytes that are being written
  std::map<ObjectId, Looking> looking_;
  std::map<ObjectId, Reading> reading_;
  std::deque<ObjectId> unread_;     ///< of reading_: those that have no memory yet
  std::vector<ObjectId> too_late_;  ///< of reading_: wanted again though `given_up`
  Time due_ = Time::max();          ///< the earliest time of looking_ and reading_
  std::uint64_t reading_bytes_ = 0;
  bool ready_ = false;                                 ///< the disk's thread has results
  bool failed_ = false;                                ///< a failure was logged, no success since
  std::unique_ptr<objectstore::SharedCopies> copies_;  ///< last: its thread uses what is above
};

}  // namespace troupe::agent
