/// The calls of other processes to this one: takes them in, answers them, and hands back those that
/// will not run here. Serves ClientEngine, under its lock.
///
///     if (callers.take_plain(peer, frame)) …               // a plain call has come; take(): any call
///     callers.work().next(call, actor, resume);            // the worker's thread runs it
///     callers.reply_plain(call->from, reply, value);       // and answers; reply(): any result
///
/// Invariants: CALLER-1 A call is answered to the process that it came from: over its ring, or at
/// once when that is this process. The answer to a caller that is gone frees the value's place in
/// memory. CALLER-2 The counts that a result takes for its receiver are in the agent's ring before
/// its frame is in the receiver's (RUN-4). CALLER-3 A caller is told how many of its calls are
/// answered before the last reply of a call is in its ring. CALLER-4 The calls of a caller whose
/// lease was taken away, or that is gone, are refused. Only a process where nothing runs returns the
/// lease of a silent holder.
#pragma once

#include "troupe/runtime/client/calls.hpp"
#include "troupe/runtime/client/identity.hpp"
#include "troupe/runtime/client/io_loop.hpp"
#include "troupe/runtime/client/outgoing_value.hpp"
#include "troupe/runtime/client/peers.hpp"
#include "troupe/runtime/client/values.hpp"
#include "troupe/runtime/client/work_queue.hpp"
#include "troupe/runtime/wire/plain.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::client {

class Callers final : private WorkQueue::Out {
 public:
  Callers(Calls::Out& out, const Identity& self, Peers& peers, Values& values, Calls& calls)
      : out_(out), self_(self), peers_(peers), values_(values), calls_(calls) {}
  /// From here on the loop learns of work for waiting threads.
  void begin(IoLoop& loop) noexcept { loop_ = &loop; }
  WorkQueue& work() noexcept { return work_; }
  const WorkQueue& work() const noexcept { return work_; }

  // --- calls
  /// Takes a plain call. Returns false when the frame is another message, or broken.
  bool take_plain(const Peers::Peer& peer, BlobView frame);
  void take(const Peers::Peer& peer, wire::Call&& call, BlobView payload);
  /// Returns the lease in the place of its silent holder, if nothing runs here. The holder's later
  /// calls are handed back. A worker that runs does not answer.
  void leave_silent_holder(const wire::LeaseReclaim& question);

  // --- answers
  /// Sends the last result of a call: a value without refs of at most kInlineValue bytes. A call
  /// without results is answered without a value.
  void reply_plain(ProcessIndex to, const wire::PlainReply& reply, BlobView value) {
    work_.answered();
    if (Peers::Peer* peer = peers_.of(to)) {
      peer->channel.count_completed(++peer->completed);
      if (peer->channel.post(wire::write_plain(reply, frame_), value))
        peers_.wake_for_reply(*peer, work_.has_calls() && loop_->shares_cpu());
    } else if (to == self_.process) {
      calls_.take_reply(to, calls_.sender().plain().general(reply), value, steady_now());
    }
  }
  /// Sends one result of a call under way.
  void reply(ProcessIndex to, std::uint64_t sequence, std::uint32_t index, bool last, Duration ran,
             const OutgoingValue& value);

 private:
  // WorkQueue::Out
  void hand_back(ProcessIndex caller, const wire::HandBack& calls) override;
  void drop_refs(const wire::Call& call) override { values_.drop_refs(call); }
  bool is_refused(ProcessIndex caller) override;
  void tell_blocked(bool is_blocked) override;

  void queue(const Peers::Peer& peer, std::shared_ptr<Incoming> incoming) {
    if (work_.take(std::move(incoming), peer.refused) && loop_ != nullptr) loop_->notify();
  }

  Calls::Out& out_;
  const Identity& self_;
  Peers& peers_;
  Values& values_;
  Calls& calls_;
  IoLoop* loop_ = nullptr;
  WorkQueue work_{static_cast<WorkQueue::Out&>(*this)};
  wire::FrameWriter writer_;
  wire::PlainFrame frame_;
  Blob payload_;  ///< scratch for results
};

}  // namespace troupe::client
