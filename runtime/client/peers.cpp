#include "troupe/runtime/client/peers.hpp"

#include "troupe/runtime/base/machine.hpp"

#include <algorithm>
#include <string>

namespace troupe::client {
namespace {

/// The number of messages from unwatched peers after which the watch moves to another peer.
/// Moving it costs as much as two messages of an unwatched peer.
constexpr std::uint32_t kWatchAfterMessages = 8;

Error broken(std::string what) {
  return Error(Code::unavailable, std::move(what));
}

}  // namespace

Result<Peers::Peer*> Peers::open(const wire::Channel& message, std::vector<Fd> descriptors) {
  // Without a slot the processes that wait for this channel would wait for ever.
  if (message.my_slot >= ring::kMaxSlots)
    return broken("this process talks to " + std::to_string(ring::kMaxSlots - 2) +
                  " others at once, workers and actors, which is the most: let go of actors, or "
                  "let tasks call some of them");
  if (descriptors.size() != 3 || message.side > 1)
    return broken("the node's agent sent a broken channel");
  if (died_before_.erase(message.peer) != 0) return nullptr;
  if (slots_.size() <= message.my_slot) slots_.resize(message.my_slot + 1);
  if (slots_[message.my_slot]) {  // PeerDied of the slot's last peer is on its way over the ring
    pending_channels_.push_back({message, std::move(descriptors)});
    return nullptr;
  }
  auto memory = ring::ChannelMemory::attach(std::move(descriptors[0]));
  auto bell = ring::Doorbell::attach(std::move(descriptors[1]), std::move(descriptors[2]));
  if (!memory || !bell)
    return broken(std::string("a channel could not be opened: ") +
                  (memory ? bell.error() : memory.error()).what());
  auto peer = std::make_unique<Peer>();
  peer->process = message.peer;
  peer->remote = message.remote;
  peer->slot = message.my_slot;
  peer->holder = message.holder != 0 ? message.holder : message.peer;
  peer->channel =
      ring::Channel(std::move(*memory), static_cast<int>(message.side),
                    std::make_shared<ring::Doorbell>(std::move(*bell)), message.peer_slot);
  peer->channel.close_fd();
  peer->far_end = !by_process_.try_emplace(message.peer, peer.get()).second;
  slots_[message.my_slot] = std::move(peer);
  return slots_[message.my_slot].get();
}

std::optional<Peers::PendingChannel> Peers::remove(Peer& peer) {
  const std::uint32_t slot = peer.slot;
  look_away(peer);
  by_process_.erase(peer.process);
  slots_[slot].reset();
  const auto next = std::find_if(
      pending_channels_.begin(), pending_channels_.end(),
      [slot](const PendingChannel& pending) { return pending.message.my_slot == slot; });
  if (next == pending_channels_.end()) return std::nullopt;
  PendingChannel channel = std::move(*next);
  pending_channels_.erase(next);
  return channel;
}

void Peers::give_up(Peer& peer) noexcept {
  peer.dead = true;
  look_away(peer);
}

/// Forgets a peer from which nothing more is read.
void Peers::look_away(const Peer& peer) noexcept {
  if (heard_ == &peer) heard_ = nullptr;
  if (last_ == &peer) last_ = nullptr;
  if (bell_.watched() == &peer.channel.input()) bell_.unwatch();
}

bool Peers::has_unanswered() const noexcept {
  return std::any_of(slots_.begin(), slots_.end(), [](const std::unique_ptr<Peer>& peer) {
    return peer && !peer->dead && peer->started > peer->completed;
  });
}

// --- the peer that spoke last

bool Peers::watch() noexcept {
  Peer* heard = std::exchange(heard_, nullptr);
  if (heard == nullptr) return false;
  if (bell_.watched() == &heard->channel.input()) {
    heard_others_ = 0;
  } else if (bell_.watched() == nullptr || ++heard_others_ == kWatchAfterMessages) {
    bell_.watch(heard->slot, heard->channel.input());
    heard_others_ = 0;
  }
  return true;
}

bool Peers::is_last_elsewhere() const noexcept {
  if (last_ == nullptr) return false;
  const int there = last_->channel.peer_doorbell().slept_on();
  return there >= 0 && there != this_cpu();
}

void Peers::wake_for_reply(Peer& peer, bool may_wait) {
  ring::Doorbell& bell = peer.channel.peer_doorbell();
  if (may_wait && bell.slept_on() == this_cpu() &&
      wakeups_.puts_off(peer.process, LazyTime(&steady_now)))
    return;
  bell.wake_sleeper();
  wake_late();
}

void Peers::wake_late() noexcept {
  const ProcessIndex caller = wakeups_.take();
  if (caller == 0) return;
  if (Peer* peer = of(caller)) peer->channel.peer_doorbell().wake_sleeper();
}

// --- what waits for a channel

void Peers::reclaim(LeaseId lease) {
  for (PendingGrant& pending : pending_grants_)
    if (pending.grant.lease == lease) pending.reclaimed = true;
}

void Peers::drop_waiting(ProcessIndex process) {
  std::erase_if(pending_grants_,
                [&](const PendingGrant& pending) { return pending.grant.worker == process; });
  std::erase_if(pending_updates_,
                [&](const wire::ActorUpdate& update) { return update.worker == process; });
}

}  // namespace troupe::client
