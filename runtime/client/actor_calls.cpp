#include "troupe/runtime/client/actor_calls.hpp"

#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/client/outgoing_value.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe::client {
namespace {

/// Changes outcome `unknown` to `not_executed`: the reporter of a death may not know which calls
/// ran, but calls that were never sent did not.
ErrorInfo of_calls_not_sent(ErrorInfo info) {
  if (info.outcome == Outcome::unknown) info.outcome = Outcome::not_executed;
  return info;
}

}  // namespace

void ActorCalls::check_room(ActorId actor) const {
  const auto at = peers_.find(actor);
  if (at == peers_.end() || at->second.queue.size() + at->second.in_flight.size() < most_) return;
  throw Overloaded(Code::overloaded, std::to_string(most_) +
                                         " calls of this process to one actor have not ended: wait "
                                         "for results first");
}

void ActorCalls::submit(std::unique_ptr<ActorCall>&& call) {
  const auto [at, fresh] = peers_.try_emplace(call->actor);
  Peer& peer = at->second;
  if (fresh) out_.watch(call->actor);
  const ActorCall* last = call.get();
  peer.queue.push_back(std::move(call));
  ++live_;
  try {
    flush(peer);
  } catch (...) {  // out of memory
    if (peer.queue.empty() || peer.queue.back().get() != last) throw;
    call = std::move(peer.queue.back());
    peer.queue.pop_back();
    --live_;
    throw;
  }
}

/// Looks first at the peer of the last call, since the next call is mostly to the same actor.
ActorCalls::Peer* ActorCalls::peer_of(ActorId actor) {
  if (asked_ != nullptr && asked_->first == actor) return &asked_->second;
  const auto at = peers_.find(actor);
  if (at == peers_.end()) return nullptr;
  asked_ = &*at;
  return &at->second;
}

ProcessIndex ActorCalls::open_way(ActorId actor) {
  Peer* known = peer_of(actor);
  if (known == nullptr) return 0;
  Peer& peer = *known;
  if (peer.state != wire::ActorState::alive || peer.full || !peer.queue.empty() ||
      peer.in_flight.size() >= most_)
    return 0;
  peer.in_flight.make_room();
  return peer.worker;
}

void ActorCalls::sent(std::unique_ptr<ActorCall> call) noexcept {
  ++live_;
  Peer* peer = peer_of(call->actor);
  TROUPE_ASSERT(peer != nullptr, "who sends a call ahead has asked for the way");
  peer->in_flight.push_back(std::move(call));
}

void ActorCalls::argument_ready(ActorCall& call) {
  TROUPE_ASSERT(call.waiting > 0, "an argument became ready twice");
  --call.waiting;
  flush(peers_.at(call.actor));
}

void ActorCalls::argument_failed(ActorCall& call, const Error& error) {
  if (!call.argument_error) call.argument_error = std::make_shared<const Error>(error);
  argument_ready(call);
}

void ActorCalls::update(const wire::ActorUpdate& update) {
  const auto found = peers_.find(update.actor);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  // The states of a life are pending, alive, restarting; then the next life begins. An update
  // that is not later than the known state is stale (it may have waited for its channel) and is
  // ignored. Death is final, even when it comes from a restarted control that knows of no life.
  if (peer.state == wire::ActorState::dead) return;
  const bool ends = update.state == wire::ActorState::dead;
  if (update.state == wire::ActorState::alive && peer.state == wire::ActorState::alive &&
      update.incarnation == peer.incarnation && update.worker == peer.worker)
    return delay(update.actor, peer, {update.silent, nullptr, {}});
  if (update.state == wire::ActorState::restarting && peer.endings != 0) {
    --peer.endings;
    peer.ended_life = std::max(peer.ended_life, update.incarnation);
  }
  // Updates `alive` that the agent sent before it answered our requests name the life that ends,
  // or an earlier one: ignore them.
  if (update.state == wire::ActorState::alive &&
      (peer.endings != 0 || update.incarnation <= peer.ended_life))
    return;
  if (!ends && update.incarnation < peer.incarnation) return;
  // The same life under a later worker index: the link to its node was lost and is back.
  const bool again = update.state == wire::ActorState::alive &&
                     update.incarnation == peer.incarnation && peer.last_worker != 0 &&
                     update.worker > peer.last_worker;
  if (!ends && !again && update.incarnation == peer.incarnation && update.state <= peer.state)
    return;
  peer.incarnation = std::max(peer.incarnation, update.incarnation);
  peer.state = update.state;
  peer.next.reset();
  const bool waits = update.state == wire::ActorState::pending;
  delay(update.actor, peer,
        {update.silent, waits ? update.error : nullptr,
         Time(Duration(static_cast<Duration::rep>(update.retry_at_ns)))});
  if (update.state == wire::ActorState::alive) {
    by_worker_[update.worker] = update.actor;
    peer.last_worker = update.worker;
    if (peer.worker != 0 && peer.worker != update.worker) {
      peer.state = wire::ActorState::pending;
      peer.next = update;
      return;
    }
    begin_life(peer, update);
  } else if (update.state == wire::ActorState::dead) {
    peer.error = update.error
                     ? std::make_shared<const Error>(of_calls_not_sent(*update.error))
                     : std::make_shared<const Error>(Code::actor_died, "the actor has ended");
  }
  flush(peer);
}

void ActorCalls::fail_queued(ActorId actor, const Error& error) {
  if (const auto at = peers_.find(actor); at != peers_.end()) fail_all(at->second, error);
}

void ActorCalls::lives_here(ActorId actor, std::uint64_t incarnation, ProcessIndex worker) {
  peers_.try_emplace(actor);
  wire::ActorUpdate alive;
  alive.actor = actor;
  alive.state = wire::ActorState::alive;
  alive.incarnation = incarnation;
  alive.worker = worker;
  update(alive);
}

void ActorCalls::begin_life(Peer& peer, const wire::ActorUpdate& update) {
  peer.state = wire::ActorState::alive;
  peer.worker = update.worker;
  peer.full = false;
}

void ActorCalls::delay(ActorId actor, Peer& peer, Delay delay) {
  if (delay.silent || delay.last_end)
    delayed_.insert(actor);
  else if (peer.delay.silent || peer.delay.last_end)
    delayed_.erase(actor);
  peer.delay = std::move(delay);
}

std::optional<ActorCalls::Delay> ActorCalls::delay_of(const detail::ObjectEntry& result) const {
  for (const ActorId actor : delayed_)
    if (owes(actor, result)) return peers_.at(actor).delay;
  return std::nullopt;
}

void ActorCalls::killed(ActorId actor) {
  Peer& peer = peers_[actor];
  delay(actor, peer, {});
  peer.state = wire::ActorState::dead;
  peer.next.reset();  // or worker_died() would make the actor alive again
  if (!peer.error)
    peer.error = std::make_shared<const Error>(Code::actor_died, "the actor was killed");
  flush(peer);
}

void ActorCalls::ending_life(ActorId actor) {
  const auto [at, fresh] = peers_.try_emplace(actor);
  Peer& peer = at->second;
  if (peer.state == wire::ActorState::dead) return;
  ++peer.endings;
  peer.state = wire::ActorState::restarting;
  peer.next.reset();
  if (fresh) out_.watch(actor);
}

void ActorCalls::writable(ProcessIndex worker) {
  const auto found = by_worker_.find(worker);
  if (found == by_worker_.end()) return;
  Peer& peer = peers_.at(found->second);
  peer.full = false;
  flush(peer);
}

/// Returns the actor that lives in that worker now, or nullptr.
ActorCalls::Peer* ActorCalls::peer_on(ProcessIndex worker) {
  if (lately_ != nullptr && lately_->worker == worker) return lately_;
  const auto found = by_worker_.find(worker);
  if (found == by_worker_.end()) return nullptr;
  Peer& peer = peers_.at(found->second);
  return peer.worker == worker ? lately_ = &peer : nullptr;
}

ActorCall* ActorCalls::in_flight(ProcessIndex worker, std::uint64_t sequence) {
  Peer* peer = peer_on(worker);
  if (peer == nullptr) return nullptr;
  const auto* call = peer->in_flight.answered(sequence);
  return call != nullptr ? call->get() : nullptr;
}

std::unique_ptr<ActorCall> ActorCalls::ended(ProcessIndex worker, std::uint64_t sequence) {
  Peer* peer = peer_on(worker);
  TROUPE_ASSERT(peer != nullptr, "a call of an actor that does not live there ended");
  --live_;
  const std::size_t at = peer->in_flight.find(sequence);
  TROUPE_ASSERT(at != peer->in_flight.size(), "a call that is not in flight ended");
  return peer->in_flight.take(at);
}

std::optional<ActorCalls::Place> ActorCalls::place_of(const detail::ObjectEntry& result) const {
  std::size_t looked = 0;
  for (const auto& [actor, peer] : peers_) {
    const std::size_t sent = peer.in_flight.size();
    for (std::size_t i = 0; i < sent + peer.queue.size(); ++i) {
      if (++looked > kMostLooked) return std::nullopt;
      const ActorCall& call = i < sent ? *peer.in_flight[i] : *peer.queue[i - sent];
      for (const detail::ObjectHandle& made : call.results)
        if (made.entry() == &result) return Place{&call, peer.state, i < sent, i};
    }
  }
  return std::nullopt;
}

bool ActorCalls::owes(ActorId actor, const detail::ObjectEntry& result) const {
  const auto at = peers_.find(actor);
  if (at == peers_.end()) return false;
  const auto gives = [&result](const std::unique_ptr<ActorCall>& call) {
    return std::any_of(call->results.begin(), call->results.end(),
                       [&](const detail::ObjectHandle& made) { return made.entry() == &result; });
  };
  const Peer& peer = at->second;
  for (std::size_t i = 0; i < peer.in_flight.size(); ++i)
    if (gives(peer.in_flight[i])) return true;
  return std::any_of(peer.queue.begin(), peer.queue.end(), gives);
}

/// Returns whether anything but its own calls holds the actor, or a handle holds a result of
/// them.
bool ActorCalls::is_wanted(const Peer& peer) {
  std::uint32_t holds = 0;
  const detail::ObjectEntry* lifetime = nullptr;
  const auto wanted = [&](const ActorCall& call) {
    for (const detail::ObjectHandle& result : call.results)
      if (entry_of(result).promoted || result.entry()->handles.load(std::memory_order_relaxed) > 1)
        return true;
    if (!call.lifetime) return false;
    lifetime = call.lifetime.entry();
    ++holds;
    return false;
  };
  for (std::size_t i = 0; i < peer.in_flight.size(); ++i)
    if (wanted(*peer.in_flight[i])) return true;
  for (const auto& call : peer.queue)
    if (wanted(*call)) return true;
  return lifetime != nullptr && lifetime->handles.load(std::memory_order_relaxed) > holds;
}

bool ActorCalls::let_go_of_unwanted(Time now) {
  if (live_ == 0) {
    for (auto& [actor, peer] : peers_) peer.unwanted_since = Time::max();
    return false;
  }
  for (auto& [actor, peer] : peers_) {
    if ((peer.queue.empty() && peer.in_flight.empty()) || is_wanted(peer)) {
      peer.unwanted_since = Time::max();
      continue;
    }
    peer.unwanted_since = std::min(peer.unwanted_since, now);
    const Duration patience = peer.queue.empty() ? kUnwantedSent : kUnwantedQueued;
    if (now - peer.unwanted_since < patience) continue;
    for (std::size_t i = 0; i < peer.in_flight.size(); ++i) peer.in_flight[i]->lifetime = {};
    for (auto& call : peer.queue) call->lifetime = {};
  }
  return true;
}

void ActorCalls::worker_died(ProcessIndex worker, std::uint64_t started, const Error& reason) {
  const auto found = by_worker_.find(worker);
  if (found == by_worker_.end()) return;
  const ActorId actor = found->second;
  Peer& peer = peers_.at(actor);
  by_worker_.erase(found);
  if (peer.worker == worker && peer.delay.silent) delay(actor, peer, {});
  if (peer.next && peer.next->worker == worker) peer.next.reset();
  if (peer.worker != worker) return;
  peer.worker = 0;
  if (peer.state == wire::ActorState::alive) peer.state = wire::ActorState::restarting;
  while (!peer.in_flight.empty()) {
    std::unique_ptr<ActorCall> call = peer.in_flight.take(peer.in_flight.size() - 1);
    if (call->sequence > started) {
      peer.queue.push_front(std::move(call));
    } else {
      --live_;
      out_.fail(*call, reason);
    }
  }
  if (peer.next) begin_life(peer, *std::exchange(peer.next, std::nullopt));
  flush(peer);  // a dead actor's queue fails at once
}

void ActorCalls::flush(Peer& peer) {
  if (peer.state == wire::ActorState::dead) {
    fail_all(peer, *peer.error);
    return;
  }
  while (!peer.queue.empty() && peer.queue.front()->waiting == 0) {
    ActorCall& call = *peer.queue.front();
    if (peer.queue.size() > 2) peer.queue[2]->fetch_ahead();
    if (call.argument_error) {
      const auto gone = std::move(peer.queue.front());
      peer.queue.pop_front();
      --live_;
      out_.fail(*gone, of_call_not_run(*gone->argument_error));
      continue;
    }
    if (peer.state != wire::ActorState::alive || peer.full) return;
    peer.in_flight.make_room();
    if (!out_.send(peer.worker, call)) {
      peer.full = true;
      return;
    }
    peer.in_flight.push_back(std::move(peer.queue.front()));
    peer.queue.pop_front();
  }
}

void ActorCalls::fail_all(Peer& peer, const Error& error) {
  // A call that still waits for an argument stays, because its waiter points at it. It does not
  // hold back the others.
  std::deque<std::unique_ptr<ActorCall>> waiting;
  std::vector<std::unique_ptr<ActorCall>> gone;
  for (auto& call : peer.queue)
    if (call->waiting != 0)
      waiting.push_back(std::move(call));
    else
      gone.push_back(std::move(call));
  peer.queue.swap(waiting);
  live_ -= gone.size();
  for (const auto& call : gone) out_.fail(*call, error);
}

}  // namespace troupe::client
