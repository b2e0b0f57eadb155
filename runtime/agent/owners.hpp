/// The agent's reference table: every ref of this node that has left its process. A plain state
/// machine.
///
/// Holders are counted per process. A sender registers the receiver before it publishes the message
/// that carries the ref, so counts never pass through zero while a ref is on its way; but two rings
/// are read in any order, so a count may be zero (or negative) for a moment. An object is therefore
/// freed only when it is still at zero after everything that was published before has been read:
/// settle() says so.
///
///     owners.hold(object, process, +1);
///     owners.settle();           // after every ring was drained: frees what is at zero since the
///     last settle()
///
/// Invariants: O-1 an object with a holder is never freed. O-2 a dead process holds nothing. O-3
/// every Await is answered once: with the value, or an error.
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace troupe::agent {

using ProcessIndex = std::uint64_t;
inline constexpr ProcessIndex kSelf = 0;  ///< the agent: refs inside values that it owns

class OwnerTable {
 public:
  /// What follows; must not call back in.
  class Out {
   public:
    virtual ~Out() = default;
    virtual void ready(ProcessIndex process, ObjectId object, const wire::Value& value,
                       BlobView payload) = 0;
    virtual void free(const wire::Location& location) = 0;
    /// No handle of this actor is left anywhere.
    virtual void unreferenced(ActorId actor) = 0;
  };

  explicit OwnerTable(Out& out) : out_(out) {}

  /// The sender's record becomes ours; the sender holds one count. For a pending one the sender
  /// will fulfil it.
  void escape(ProcessIndex from, ObjectId object, const wire::Value& value, BlobView payload);
  void fulfil(ObjectId object, const wire::Value& value, BlobView payload);
  void hold(ObjectId object, ProcessIndex process, std::int32_t delta);
  void await(ObjectId object, ProcessIndex process);
  /// The object stands for an actor: it is never ready, and its end is unreferenced().
  void stands_for(ObjectId lifetime, ActorId actor, ProcessIndex creator);
  /// Counts of the process go; what it was to fulfil ends in the error.
  void process_died(ProcessIndex process, const Error& reason);
  /// Everything published before the last input has been read. Returns true when something may be
  /// freed by another call.
  bool settle();

  /// The value of a ready object for the agent's own use (an actor's constructor), or nullptr.
  const wire::Value* value_of(ObjectId object) const;
  std::size_t size() const noexcept { return records_.size(); }
  /// Sum of all counts, for invariants.
  std::int64_t total_holds() const;

 private:
  struct Record {
    wire::Value value;
    Blob payload;
    bool known = false;  ///< escaped here (counts may come first)
    bool ready = false;
    ProcessIndex producer = 0;
    ActorId actor;
    std::int64_t total = 0;
    std::map<ProcessIndex, std::int64_t> holders;
    std::vector<ProcessIndex> waiting;
    bool aged = false;  ///< at zero when settle() was called last
  };
  void set_value(ObjectId object, Record& record, const wire::Value& value, BlobView payload);
  void answer(ObjectId object, Record& record, ProcessIndex process);
  void count(ObjectId object, Record& record, ProcessIndex process, std::int64_t delta);
  void drop_inner(const Record& record);
  void answer_lost(ObjectId object, ProcessIndex process);
  void settle_early();

  Out& out_;
  std::map<ObjectId, Record> records_;
  std::map<ProcessIndex, std::set<ObjectId>> held_by_;
  std::set<ProcessIndex> dead_;
  std::set<ObjectId> candidates_;
  /// Awaits that were read before the Escape that they follow: one more pass, then they are
  /// answered with an error.
  struct Early {
    ObjectId object;
    ProcessIndex process = 0;
    bool aged = false;
  };
  std::vector<Early> early_;
};

}  // namespace troupe::agent
