/// The calls that this process makes: its tasks and its calls to actors, from the call to the last
/// reply. It decides what a reply does to the values, and when leases and actors are looked at
/// again. TaskManager and ActorCalls have the order of calls, CallSender their frames, Values their
/// results. Serves ClientEngine, under its lock.
///
///     calls.submit(std::move(call), options, results, takes_objects);   // or call(), for an actor
///     if (calls.take_plain(peer, frame, now)) …      // a reply has come; take_reply(): any reply
///     calls.grant(message, now);                     // so has a lease
///     Time next = calls.tick(now);                   // when it is due
///
/// Invariants: CALLS-1 A call that was sent has its records, and a call that was not made has left
/// no waiter. CALLS-2 A call with an argument that ended in an error is not sent: its results end
/// in that error, not executed. CALLS-3 The first reply with a result settles it; a later one gives
/// its value back. CALLS-4 The agent gets the KeptCall of a call before the Fulfil of its results.
/// CALLS-5 A lease that no task wants goes back at once. A grant or an actor's life on a process
/// without a channel waits for the channel. CALLS-6 tick() is due at the earliest of what the tasks,
/// the actors and wake_by() have asked for.
#pragma once

#include "troupe/runtime/client/actor_calls.hpp"
#include "troupe/runtime/client/call_sender.hpp"
#include "troupe/runtime/client/identity.hpp"
#include "troupe/runtime/client/io_loop.hpp"
#include "troupe/runtime/client/peers.hpp"
#include "troupe/runtime/client/recovery.hpp"
#include "troupe/runtime/client/scheduling_classes.hpp"
#include "troupe/runtime/client/tasks.hpp"
#include "troupe/runtime/client/values.hpp"
#include "troupe/runtime/client/work_queue.hpp"
#include "troupe/runtime/wire/messages.hpp"
#include "troupe/runtime/wire/plain.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe::client {

class Calls final : private TaskManager::Out, private ActorCalls::Out {
 public:
  /// What this part needs of the process around it.
  class Out : public CallSender::Out {
   public:
    virtual void tell(const wire::NodeMessage& message, BlobView payload) = 0;
  };
  Calls(Out& out, const Identity& self, Peers& peers, Values& values, Recovery& recovery,
        WorkQueue& work)
      : out_(out),
        self_(self),
        peers_(peers),
        values_(values),
        recovery_(recovery),
        sender_(out, self, peers, values, work) {}
  /// From here on the loop learns of timers and of work for waiting threads.
  void begin(IoLoop& loop) noexcept { loop_ = &loop; }

  TaskManager& tasks() noexcept { return tasks_; }
  ActorCalls& actors() noexcept { return actors_; }
  const ActorCalls& actors() const noexcept { return actors_; }
  SchedulingClasses& classes() noexcept { return classes_; }
  const SchedulingClasses& classes() const noexcept { return classes_; }
  CallSender& sender() noexcept { return sender_; }
  const CallSender& sender() const noexcept { return sender_; }
  /// Returns the number of tasks and calls that are not answered.
  std::size_t live() const noexcept { return tasks_.live() + actors_.live(); }

  // --- making calls
  /// Returns whether objects are among the arguments. Throws for objects of another session. Needs
  /// no lock.
  bool names_objects(const detail::Call& call) const;
  /// Submits a task and makes its results. `takes_objects`: objects are among its arguments. Throws
  /// Overloaded. Precondition: check_amounts() has passed the options.
  void submit(detail::Call&& call, const detail::Request* options,
              std::span<detail::ObjectHandle> results, bool takes_objects);
  /// Calls an actor and makes the results. Throws Overloaded.
  void call(const detail::ActorHandle& actor, detail::Call&& call,
            std::span<detail::ObjectHandle> results, bool takes_objects);
  /// Submits a task once more, to compute a lost value. Its old key may be forgotten.
  void run_again(std::unique_ptr<Task> task);

  /// Returns whether the entry waits for an unfinished call to the actor whose methods run on this
  /// thread.
  bool is_own(const Entry& entry) const;

  // --- what arrives
  /// Takes a plain reply. Returns false when the frame is another message, or broken.
  bool take_plain(Peers::Peer& peer, BlobView frame, Time now) {
    BlobView payload;
    wire::PlainReply reply;
    if (!wire::read_plain(frame, reply, payload)) return false;
    take_plain(peer, reply, payload, now);
    return true;
  }
  /// Handles a reply to a call of this process.
  void take_plain(Peers::Peer& peer, const wire::PlainReply& reply, BlobView payload, Time now) {
    if (!take_light(peer, reply, payload, now))
      take_reply(peer.process, sender_.plain().general(reply), payload, now);
  }
  void take_reply(ProcessIndex worker, const wire::Reply& reply, BlobView payload, Time now);
  /// Settles the results of a task that ran in this process: one value for each result.
  void ended_here(Task& task, std::span<OutgoingValue> values);
  /// Frees the records of the call that ended last, if it was light.
  void drop_spent() noexcept {
    spent_task_.reset();
    spent_call_.reset();
  }
  void hand_back(ProcessIndex worker, const wire::HandBack& calls, Time now);
  void grant(const wire::LeaseGranted& granted, Time now);
  /// Handles LeaseReclaim, also for a lease whose worker's channel is still on its way.
  void reclaim(LeaseId lease, Time now);
  void update(const wire::ActorUpdate& update);
  /// A channel has opened: what has waited for it goes on.
  void go_on(Time now);
  /// The worker's ring has room again.
  void writable(ProcessIndex worker, Time now) {
    tasks_.writable(worker, now);
    actors_.writable(worker);
  }
  /// The worker died, as TaskManager::worker_died() and ActorCalls::worker_died() say.
  void worker_died(ProcessIndex worker, std::uint64_t started, const Error& error, bool alone,
                   Time now) {
    tasks_.worker_died(worker, started, error, alone, now);
    actors_.worker_died(worker, started, error);
  }
  /// No other process can be reached now: what waits for one ends in the error.
  void refuse_unreachable(const Error& error);

  // --- timers
  Time next_tick() const noexcept { return next_tick_; }
  void wake_by(Time when) noexcept { next_tick_ = std::min(next_tick_, when); }
  /// Does what is due. Returns when to call it again.
  Time tick(Time now);

  bool may_come_back(ProcessIndex worker, std::uint64_t sequence) override {
    return sender_.may_come_back(worker, sequence);
  }

 private:
  // TaskManager::Out
  bool send(ProcessIndex worker, Task& task) override { return sender_.send(worker, task); }
  void placed(Task& task) override;
  void request_lease(LeaseKey key, std::uint32_t backlog) override;
  void unused(LeaseKey key) override { classes_.forget(key); }
  void return_lease(LeaseId lease) override { out_.tell(wire::LeaseReturned{lease}, {}); }
  void recall(ProcessIndex worker) override { sender_.recall(worker); }
  void fail(Task& task, const Error& reason) override;
  void claim_came_back() override { notify(); }
  // ActorCalls::Out
  bool send(ProcessIndex worker, ActorCall& call) override;
  void watch(ActorId actor) override { out_.tell(wire::WatchActor{actor}, {}); }
  void fail(ActorCall& call, const Error& reason) override;

  void notify() {
    if (loop_ != nullptr) loop_->notify();
  }
  void set_timer() {
    if (loop_ != nullptr) loop_->set_timer(next_tick_);
  }
  LeaseKey key_for(const detail::Request* options);
  std::uint32_t watch_arguments(const detail::Call& call, Waiter waiter);
  std::uint32_t watch_arguments(Task& task);
  std::uint32_t watch_arguments(ActorCall& call);
  void start(std::unique_ptr<Task>&& task, ProcessIndex sent_to = {});
  void look_later();
  void look_around() noexcept;
  bool take_light(Peers::Peer& peer, const wire::PlainReply& reply, BlobView payload, Time now);
  void end(ProcessIndex worker, bool task, std::uint64_t sequence, Duration ran, Time now,
           bool light);

  Out& out_;
  const Identity& self_;
  Peers& peers_;
  Values& values_;
  Recovery& recovery_;
  CallSender sender_;
  SchedulingClasses classes_;
  TaskManager tasks_{static_cast<TaskManager::Out&>(*this)};
  ActorCalls actors_{static_cast<ActorCalls::Out&>(*this)};
  IoLoop* loop_ = nullptr;
  std::uint32_t sent_since_look_ = 0;
  /// Records of the call that ended last, if it was light (see end()). drop_spent() frees them,
  /// which keeps that work off the way from a reply to the next call.
  std::unique_ptr<Task> spent_task_;
  std::unique_ptr<ActorCall> spent_call_;
  Time next_tick_ = Time::max();
  Time next_look_ = Time::max();  ///< when let_go_of_unwanted() is due
};

}  // namespace troupe::client
