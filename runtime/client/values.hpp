/// The values of objects in this process and who is counted for them: settles entries, wakes who
/// waits, promotes objects to the agent, counts holders, and encodes values. A plain state machine,
/// driven by ClientEngine.
///
///     values.settle(entry, message.value, payload);      // a result has come: its waiters run
///     values.need(entry, true);                          // sends Await, if others compute it
///     message.value = values.outgoing(handle, to, payload);   // the receiver is counted now
///     auto handles = values.adopt_refs(value.refs);      // the sender has counted this process
///     values.free(entry);                                // its last handle is gone
///
/// Invariants: VALUE-1 An entry is settled once. Its waiters run after that, never inside each
/// other, in the order in which entries became ready. VALUE-2 An object that a message names is
/// promoted before it, and so are all that its record names, however deep. VALUE-3 The receiver of
/// a frame is counted for each ref before the frame is built (RUN-4). VALUE-4 This process has one
/// count at the agent for each promoted entry: the count of a ref that was known already goes back.
/// VALUE-5 A follower gets the value of its source when that is ready; no chain leads back to its
/// beginning. VALUE-6 No function here recurses along a chain of objects.
#pragma once

#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/client/outgoing_value.hpp"
#include "troupe/runtime/client/scheduling_classes.hpp"
#include "troupe/runtime/client/store_use.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace troupe::client {

class Values {
 public:
  /// What this part needs of the process around it.
  class Out {
   public:
    virtual ~Out() = default;
    virtual void tell(const wire::NodeMessage& message, BlobView payload) = 0;
    /// Frees the entries whose last handles are gone.
    virtual void collect_released() = 0;
    /// Threads may have something to do.
    virtual void notify() = 0;
    virtual void fire(const Waiter& waiter, Entry& entry) = 0;
  };
  /// Decides about values that are lost, or may be.
  class Lost {
   public:
    virtual ~Lost() = default;
    /// Tries to recover a pending entry whose source has ended as lost. Returns false with the
    /// `error` that it ends in.
    virtual bool recover_pending(Entry& entry, Error& error) = 0;
    /// Notes an object that other processes can name from now on.
    virtual void outlive(Entry& entry) = 0;
    /// Tells the agent of the calls that made the noted objects.
    virtual void tell_calls() = 0;
    /// The last handle of a result is gone here.
    virtual void hand_over(Entry& entry) = 0;
    /// Keeps an entry without handles for the calls that name it. Returns false when none does.
    virtual bool park(Entry& entry) = 0;
    /// Returns a new handle of a parked or live entry; an empty one while it is being released.
    virtual detail::ObjectHandle revive(Entry& entry) = 0;
  };
  Values(Out& out, Lost& lost, StoreUse& store, SchedulingClasses& classes)
      : out_(out), lost_(lost), store_(store), classes_(classes) {}
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  /// Names this process. `high`: the upper half of its object ids. Call it before all else.
  void begin(ProcessIndex self, std::uint64_t high, std::uint8_t session) {
    self_ = self;
    objects_ = std::make_unique<ObjectTable>(high, session);
  }
  bool has_begun() const noexcept { return objects_ != nullptr; }
  ObjectTable& objects() noexcept { return *objects_; }
  /// Whether the entry was made in an earlier session of this process.
  bool is_foreign(const Entry& entry) const noexcept { return !objects_->has(entry); }
  /// Throws of_another_session() when the object is of an earlier session. Needs no lock.
  void expect_ours(const detail::ObjectHandle& object) const {
    if (object && is_foreign(entry_of(object))) [[unlikely]]
      raise(of_another_session());
  }
  static Error of_another_session();

  // --- settling
  /// Gives the entry a value that arrived. `holder`: the node with the bytes of a remote value.
  /// Precondition: the entry is not ready.
  void settle(Entry& entry, const wire::Value& value, BlobView payload, NodeId holder = {});
  /// As settle(), for a value that was made in this process.
  void settle_own(Entry& entry, OutgoingValue value);
  /// Ends an entry that is not ready in the error. A ready one stays as it is.
  void settle_error(Entry& entry, const Error& error);
  /// Handles Ready for an entry that is ready: the bytes of a remote value. Anything else is given
  /// back.
  void arrive(Entry& entry, const wire::Value& value, BlobView payload);
  /// Copies the value of the entry's source, now or when that is ready.
  void follow(Entry& entry);
  /// Stops following the source, because the entry gets another one.
  void unfollow(Entry& entry);
  /// Ends the waits of entries that follow `source`. Their handles are added to `followers`.
  void leave(Entry& source, std::vector<detail::ObjectHandle>& followers);
  /// Makes an object of this process from a sealed value.
  detail::ObjectHandle object_of(OutgoingValue value);
  /// Sends the agent the Fulfil of a promoted result.
  void tell_fulfilled(Entry& result);

  // --- waking
  /// Fires the entry's waiters: now, or after the waiters that are being fired.
  void wake(Entry& entry) {
    if (entry.waiters.written() && !entry.waiters->empty()) wake_waiters(entry);
    out_.notify();
  }
  /// While one lives no waiter is fired; its end fires those that are due.
  class WakeLater {
   public:
    explicit WakeLater(Values& values)
        : values_(values), first_(!std::exchange(values.waking_, true)) {}
    ~WakeLater() {
      if (first_) values_.fire_woken();
    }
    WakeLater(const WakeLater&) = delete;
    WakeLater& operator=(const WakeLater&) = delete;

   private:
    Values& values_;
    const bool first_;
  };

  // --- references
  /// Sends Await for an object that others compute: the agent answers with Ready when the object is
  /// ready and, if `bytes`, when its bytes are here. For a forwarded object the source is asked. An
  /// object that has no source yet remembers the wish.
  void need(Entry& entry, bool bytes);
  /// Hands the entry's record to the agent; this process keeps one count.
  void promote(Entry& entry);
  /// Returns a handle of the entry with this id, parked or not; an empty one when there is none.
  detail::ObjectHandle find_held(ObjectId id);
  /// Returns a handle for an id that arrived in a message. `fresh`: the entry is new and takes over
  /// the count that the sender has taken. Otherwise the caller returns that count.
  detail::ObjectHandle adopt(ObjectId id, bool& fresh);
  /// Returns a handle for an id that arrived in a message, for which the sender counted this
  /// process.
  detail::ObjectHandle adopt_one(ObjectId id);
  /// As adopt_one(), for several ids, in order.
  std::vector<detail::ObjectHandle> adopt_refs(std::span<const ObjectId> ids);
  /// Returns the counts of the refs in a value that is not wanted.
  void give_back(const wire::Value& value);
  /// As give_back(), and frees the value's place in shared memory, which the sender gave away with
  /// it.
  void discard(const wire::Value& value);
  /// Returns the counts of the refs in a call that will not run here.
  void drop_refs(const wire::Call& call);
  /// Frees a value that is not wanted. Its place in shared memory belongs to this process.
  void drop_own(const OutgoingValue& value);
  /// Parks or deletes an entry whose last handle is gone.
  void free(Entry* entry);

  // --- values on their way out
  /// Encodes the value of an object as the receiver can use it.
  wire::Value outgoing(const detail::ObjectHandle& handle, const Receiver& to, Blob& payload);
  wire::Value outgoing(const OutgoingValue& value, const Receiver& to, Blob& payload);
  wire::Value outgoing_forward(const detail::ObjectHandle& handle, const Receiver& to);
  /// Counts the receiver as a holder of an object that a frame will name.
  void share(const detail::ObjectHandle& handle, const Receiver& to);
  /// Undoes share(), for a frame that does not go out.
  void unshare(ObjectId id, const Receiver& to);

 private:
  /// Waiters of a ready entry whose turn comes after the waiter that runs now. A queue instead of
  /// recursion, so a chain of waiters may be of any length.
  struct Woken {
    detail::ObjectHandle entry;
    std::vector<Waiter> waiters;
  };
  void tell(const wire::NodeMessage& message, BlobView payload = {}) {
    out_.tell(message, payload);
  }
  std::shared_ptr<const Stored> stored(const wire::Value& value, BlobView payload);
  void settle_forward(Entry& entry, detail::ObjectHandle source);
  void finish_settling(Entry& entry);
  void go_on_following(Entry& follower);
  void wake_waiters(Entry& entry);
  void fire_woken();
  static Entry* named_by(const Entry& entry, std::size_t i);
  void tell_promotion(Entry& entry);
  wire::Value record_of(Entry& entry, Blob& payload);
  wire::Value outgoing_entry(Entry& entry, const Receiver& to, Blob& payload);

  Out& out_;
  Lost& lost_;
  StoreUse& store_;
  SchedulingClasses& classes_;
  ProcessIndex self_;
  std::unique_ptr<ObjectTable> objects_;
  std::deque<Woken> woken_;
  bool waking_ = false;  ///< a waiter runs, or WakeLater holds them back
};

}  // namespace troupe::client
