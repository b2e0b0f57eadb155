/// Writes the calls of this process to the processes that run them: into the ring of a worker, or,
/// when the actor lives here, into the queue of this process. Serves Calls, under the engine's lock.
///
///     const auto sequence = sender.send_ahead<Task>(worker, call, 0, 1);   // before its records
///     if (sequence == 0) …                                                 // not plain, or no room
///     if (!sender.send(worker, task)) …                                    // no room in the ring
///
/// Invariants: SENDER-1 The calls to one worker have consecutive numbers from 1, in the order of
/// their frames. SENDER-2 A call without room for its records does not leave. SENDER-3 The counts
/// that a call takes for its receiver are in the agent's ring before its frame is in the receiver's
/// (RUN-4). SENDER-4 Such a frame is built once: behind a full ring it waits, and the caller counts
/// it as sent.
#pragma once

#include "troupe/runtime/client/actor_calls.hpp"
#include "troupe/runtime/client/call_encoder.hpp"
#include "troupe/runtime/client/identity.hpp"
#include "troupe/runtime/client/loopback.hpp"
#include "troupe/runtime/client/peers.hpp"
#include "troupe/runtime/client/plain_calls.hpp"
#include "troupe/runtime/client/tasks.hpp"
#include "troupe/runtime/client/work_queue.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::client {

class CallSender {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    /// Waits until the agent's ring has taken all messages that are queued for it.
    virtual void settle_agent_queue() = 0;
  };
  CallSender(Out& out, const Identity& self, Peers& peers, Values& values, WorkQueue& work)
      : out_(out), self_(self), peers_(peers), work_(work), encoder_(values) {}
  CallSender(const CallSender&) = delete;
  CallSender& operator=(const CallSender&) = delete;

  /// Sends a plain call to a worker that has room for it, before the call's records are made: they
  /// are made while the call is on its way. Returns the call's number; 0: it was not sent and takes
  /// the general path. Memory for the records, a Record and an Entry, is reserved before the call
  /// leaves, so that a call on its way always gets its records. `worker` 0: it is not sent.
  template <class Record>
  std::uint64_t send_ahead(ProcessIndex worker, const detail::Call& call, std::uint64_t actor_low,
                           std::size_t results);
  /// Sends the call and sets its number. Returns false when the ring has no room. Precondition: the
  /// worker has a channel.
  bool send(ProcessIndex worker, Task& task);
  bool send(ProcessIndex worker, ActorCall& call);
  /// Delivers a call to the actor of this process, to which no ring leads, and sets its number.
  void deliver_here(ActorCall& call);
  /// Asks the worker to hand back the calls that it has not begun.
  void recall(ProcessIndex worker);
  /// Returns whether a recall may still bring back the call with this number: the worker is on this
  /// node and has not begun it.
  bool may_come_back(ProcessIndex worker, std::uint64_t sequence) const;

  CallEncoder& encoder() noexcept { return encoder_; }
  PlainCalls& plain() noexcept { return plain_; }
  Loopback& loopback() noexcept { return loopback_; }
  const Loopback& loopback() const noexcept { return loopback_; }

 private:
  using Peer = Peers::Peer;
  bool send_plain(Peer& peer, const detail::Call& call, std::uint64_t actor_low,
                  std::uint32_t attempt, std::uint32_t results);
  bool send_call(ProcessIndex worker, const detail::Call& call, std::uint64_t actor_low,
                 std::uint32_t attempt, std::uint32_t results, std::uint64_t& sequence,
                 bool& plain);

  Out& out_;
  const Identity& self_;
  Peers& peers_;
  WorkQueue& work_;
  CallEncoder encoder_;
  PlainCalls plain_;
  Loopback loopback_;  ///< calls of the actor that lives in this process to itself
};

}  // namespace troupe::client
