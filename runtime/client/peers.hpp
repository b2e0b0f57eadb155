/// The processes that this process talks to over rings: their channels, by slot of the doorbell
/// and by process, and what waits for a channel that is on its way. Serves ClientEngine, under its
/// lock. It reads and writes no frame, and decides nothing about calls.
///
///     auto opened = peers.open(message, std::move(descriptors));  // the agent announced a channel
///     if (Peers::Peer* peer = peers.of(process)) peer->channel.send(head, payload);
///     peers.heard(*peer);                                         // for each frame that came
///     auto next = peers.remove(*peer);                            // it died: the slot is free
///
/// Invariants: PEER-1 A slot has one channel at a time. A channel for a slot in use waits until the
/// slot's peer is removed, in order of arrival. PEER-2 A channel of a process that has died before
/// is refused, once. PEER-3 A grant or an actor's life on a process without a channel waits until
/// a channel opens, and is gone with the process. PEER-4 No function returns a peer that is dead,
/// except at() and any(). The last peer and the watched one are alive. PEER-5 The far end of this
/// process's channel to itself is found by its slot alone.
#pragma once

#include "troupe/runtime/client/outgoing_value.hpp"
#include "troupe/runtime/client/wakeup_coalescer.hpp"
#include "troupe/runtime/ring/channel.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe::client {

class Peers {
 public:
  struct Peer {
    ProcessIndex process;
    ProcessIndex holder;     ///< the holder that refs sent there are counted for
    bool remote = false;     ///< lives on another node; the agent carries its frames
    std::uint32_t slot = 0;  ///< slot on our doorbell
    ring::Channel channel;
    /// The receiver of the next frame.
    Receiver receiver() const noexcept {
      Receiver to{.holder = holder, .by_reference = remote};
      if (remote) return to;
      to.frame = channel.sent() + 1;
      to.waiting = static_cast<std::uint32_t>(channel.waiting());
      return to;
    }
    std::uint64_t sent = 0;     ///< number of calls sent, to a worker
    std::uint64_t started = 0;  ///< highest call begun, from a caller
    std::uint64_t completed = 0;
    bool dead = false;
    bool refused = false;  ///< the agent took its lease back: calls are handed back
    /// The far end of a channel of this process to itself, which it has when it leases itself.
    /// Frames arrive here. All are sent and counted at the other end, since the numbers of calls
    /// must differ.
    bool far_end = false;
  };
  /// A channel for a slot whose earlier peer is not yet known to have died.
  struct PendingChannel {
    wire::Channel message;
    std::vector<Fd> descriptors;
  };
  struct PendingGrant {
    wire::LeaseGranted grant;
    bool reclaimed = false;  ///< LeaseReclaim has come already
  };

  /// This process's doorbell. Empty until the engine makes one.
  ring::Doorbell& bell() noexcept { return bell_; }
  const ring::Doorbell& bell() const noexcept { return bell_; }
  /// Calls drain with each slot that has news, until there is none.
  template <class F>
  void each_ready(F drain) {
    while (bell_.take(ready_slots_)) {
      std::vector<std::uint32_t> slots = std::exchange(ready_slots_, {});
      for (const std::uint32_t slot : slots) drain(slot);
      ready_slots_ = std::move(slots);  // reuse its memory
    }
  }

  // --- channels
  /// Opens the channel that the agent announced. Returns nullptr when it waits, or when its process
  /// is dead. Errors: the message is broken, or the channel cannot be opened.
  Result<Peer*> open(const wire::Channel& message, std::vector<Fd> descriptors);
  /// Removes a peer. Returns the channel that has waited for its slot longest, to be opened.
  std::optional<PendingChannel> remove(Peer& peer);
  /// Notes the death of a process whose channel is still on its way.
  void died_before(ProcessIndex process) { died_before_.insert(process); }
  /// Reads nothing more from the peer, which lives on until remove().
  void give_up(Peer& peer) noexcept;

  /// Returns the peer of a slot, also a dead one and a far end; nullptr: there is none.
  Peer* at(std::uint32_t slot) const noexcept {
    return slot < slots_.size() ? slots_[slot].get() : nullptr;
  }
  /// Returns the peer with this process, also a dead one.
  Peer* any(ProcessIndex process) const {
    const auto found = by_process_.find(process);
    return found == by_process_.end() ? nullptr : found->second;
  }
  Peer* find(ProcessIndex process) const {
    Peer* peer = any(process);
    return peer == nullptr || peer->dead ? nullptr : peer;
  }
  /// As find(), and mostly quicker.
  Peer* of(ProcessIndex process) const {
    return last_ != nullptr && last_->process == process ? last_ : find(process);
  }
  /// Returns whether a call that this process has begun is not answered. The calls of one caller
  /// have consecutive numbers.
  bool has_unanswered() const noexcept;
  /// Publishes that this call, and those before it, have begun.
  void begin_call(ProcessIndex from, std::uint64_t sequence) {
    Peer* peer = of(from);
    if (peer == nullptr) return;
    peer->started = std::max(peer->started, sequence);
    peer->channel.count_started(peer->started);
  }

  // --- the peer that spoke last
  void heard(Peer& peer) noexcept {
    heard_ = &peer;
    last_ = peer.far_end ? nullptr : &peer;
  }
  /// Watches the peer that spoke last, or after enough messages another one. Returns whether a peer
  /// has spoken since the last call. By the leader of the I/O loop.
  bool watch() noexcept;
  /// Returns whether the last peer went to sleep on another CPU than this thread's.
  bool is_last_elsewhere() const noexcept;
  /// Wakes a caller that sleeps, for a reply. `may_wait`: more calls wait here, and the callers
  /// share this process's CPU; then the wake-up may be put off.
  void wake_for_reply(Peer& peer, bool may_wait);
  /// Wakes the caller whose wake-up was put off, if there is one.
  void wake_late() noexcept;

  // --- what waits for a channel
  void wait(const wire::LeaseGranted& grant) { pending_grants_.push_back({grant, false}); }
  void wait(const wire::ActorUpdate& update) { pending_updates_.push_back(update); }
  /// Notes LeaseReclaim for a grant that waits. It comes only once.
  void reclaim(LeaseId lease);
  /// Forgets what waits for a channel with this process.
  void drop_waiting(ProcessIndex process);
  std::vector<PendingGrant> take_grants() { return std::exchange(pending_grants_, {}); }
  std::vector<wire::ActorUpdate> take_updates() { return std::exchange(pending_updates_, {}); }
  const std::vector<wire::ActorUpdate>& updates() const noexcept { return pending_updates_; }

 private:
  void look_away(const Peer& peer) noexcept;

  ring::Doorbell bell_;
  std::vector<std::uint32_t> ready_slots_;
  std::vector<std::unique_ptr<Peer>> slots_;  ///< by slot of our doorbell
  std::map<ProcessIndex, Peer*> by_process_;
  std::set<ProcessIndex> died_before_;           ///< before their channel arrived
  std::deque<PendingChannel> pending_channels_;  ///< in order of arrival, for each slot
  std::vector<PendingGrant> pending_grants_;
  std::vector<wire::ActorUpdate> pending_updates_;
  WakeupCoalescer wakeups_;         ///< for a worker's callers
  Peer* heard_ = nullptr;           ///< the last peer to send since watch()
  Peer* last_ = nullptr;            ///< the last peer to send, if it is not dead
  std::uint32_t heard_others_ = 0;  ///< how often that was not the watched peer
};

}  // namespace troupe::client
