/// Bodies of World; include world.hpp instead.
#pragma once

#include "tests/simulation/kernel/world.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::sim {

template <class M>
World<M>::World(const WorldOptions& options, Factory factory)
    : options_(options),
      factory_(std::move(factory)),
      scope_(options.seed, options.plan.buggify),
      faults_(options.seed ^ 0x6661756c74ULL),
      workload_(options.seed ^ 0x776f726bULL),
      network_(options.nodes, options.delivery, options_.plan, Random(options.seed ^ 0x6e6574ULL),
               report_.faults),
      members_(options.nodes) {
  report_.seed = options.seed;
  report_.nodes = options.nodes;
  Random setup(options.seed ^ 0x7365747570ULL);
  for (Member& member : members_) {
    member.random = Random(setup());
    member.contacts.resize(options.nodes);
    member.clock_offset = std::chrono::milliseconds(1000 + setup.below(1'000'000'000));
  }
}

template <class M>
void World<M>::at(Duration when, Call call) {
  Event event{.kind = Kind::call};
  event.tag = calls_.size();
  calls_.push_back(std::move(call));
  push(Time{} + when, std::move(event));
}

template <class M>
Report World<M>::run(const Phases& phases) {
  for (NodeIndex i = 0; i < members_.size(); ++i)
    if (!members_[i].started) start(i);
  schedule_tick();
  const Time heal_at = now_ + phases.faults_for;
  while (report_.violation.empty() && !heap_.empty() && heap_.next() <= heal_at) step();
  if (report_.violation.empty()) {
    now_ = std::max(now_, heal_at);
    heal();
    const Time limit = now_ + phases.liveness_within;
    while (report_.violation.empty() && !phases.done()) {
      if (heap_.empty() || heap_.next() > limit) {
        fail("liveness: the work was not done in bounded time after the faults had stopped");
        break;
      }
      step();
    }
  }
  report_.faults.hit(Fault::buggify, scope_.buggified());
  report_.virtual_time = now_ - Time{};
  report_.trace = trace_.mix(report_.faults.total()).mix(report_.calls).value();
  return report_;
}

template <class M>
std::uint32_t World<M>::take_slot() {
  if (free_.empty()) {
    if (slot_count_ % kChunk == 0) slots_.push_back(std::make_unique<Event[]>(kChunk));
    return slot_count_++;
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

template <class M>
void World<M>::push(Time at, Event&& event) {
  const std::uint32_t slot = take_slot();
  event_at(slot) = std::move(event);
  heap_.push(std::max(at, now_), slot);
}

template <class M>
void World<M>::step() {
  now_ = heap_.next();
  const std::uint32_t slot = heap_.pop();
  Event& event = event_at(slot);
  execute(event);
  if (event.kind == Kind::message) event.message = M{};
  free_.push_back(slot);
  if (report_.events > options_.most_events) fail("livelock: events without an end");
  for (const auto& invariant : invariants_) {
    std::string broken = invariant();
    if (!broken.empty()) fail(std::move(broken));
  }
}

template <class M>
void World<M>::execute(Event& event) {
  ++report_.events;
  switch (event.kind) {
    case Kind::call: calls_[event.tag](); break;
    case Kind::resume:
      if (members_[event.node].paused && members_[event.node].incarnation == event.to_life)
        resume(event.node);
      break;
    case Kind::restart:
      if (!alive(event.node) && members_[event.node].incarnation == event.to_life)
        start(event.node);
      break;
    case Kind::uncut:
      network_.remove(event.tag);
      release_held();
      break;
    case Kind::tick:
      if (!faulting_) break;
      schedule_tick();
      if (options_.muted.count(ticks_++) != 0) break;
      for (int attempt = 0; attempt < 4; ++attempt) {
        double sum = 0;
        for (double w : options_.plan.weight) sum += w;
        double at = faults_.uniform() * sum;
        std::size_t kind = 0;
        while (kind + 1 < fault_kinds && at >= options_.plan.weight[kind])
          at -= options_.plan.weight[kind++];
        if (sum <= 0 || inject(static_cast<Fault>(kind))) break;
      }
      break;
    case Kind::timer:
      if (members_[event.node].paused &&
          !(members_[event.node].alone && members_[event.node].node->goes_on(event.tag))) {
        members_[event.node].timers[event.tag] = kHeld;
        members_[event.node].held.push_back(std::move(event));
      } else {
        fire(event.node, event.tag);
      }
      break;
    case Kind::message:
    case Kind::connection: deliver(event); break;
  }
}

template <class M>
void World<M>::deliver(Event& event) {
  if (event.kind == Kind::message) {
    const bool waits = !blocked_.empty() && blocked_.count(route_key(event.from, event.node)) != 0;
    if (waits || network_.blocked(event.from, event.node)) {
      if (options_.delivery == Delivery::reliable)
        blocked_[route_key(event.from, event.node)].push_back(std::move(event));
      return;
    }
    if (!network_.survived(event.from, event.node, event.tag)) return;
  }
  Member& member = members_[event.node];
  if (event.kind == Kind::connection && event.up && network_.would_block(event.from, event.node))
    return push(now_ + std::chrono::milliseconds(500), std::move(event));  // retry
  if (event.kind == Kind::connection && event.up && alive(event.node) && alive(event.from))
    network_.open(event.node, event.from);
  if (!alive(event.node) || member.incarnation != event.to_life) return;
  if (member.paused) {
    member.held.push_back(std::move(event));
    return;
  }
  arrive(event);
}

template <class M>
void World<M>::trace_arrival(const Event& event) {
  trace_.mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()))
      .mix(static_cast<std::uint64_t>(event.kind) | static_cast<std::uint64_t>(event.up) << 8 |
           static_cast<std::uint64_t>(event.from) << 16 |
           static_cast<std::uint64_t>(event.node) << 40);
}

template <class M>
void World<M>::fire(NodeIndex i, std::uint64_t id) {
  members_[i].timers.erase(id);
  trace_.mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()))
      .mix(id << 8 | static_cast<std::uint64_t>(i));
  Env<M> env(*this, i);
  members_[i].node->on_timer(env, id);
  finish_call(i);
}

template <class M>
void World<M>::arrive(Event& event) {
  Member& member = members_[event.node];
  Env<M> env(*this, event.node);
  trace_arrival(event);
  if (event.kind == Kind::connection) {
    member.node->on_connection(env, event.from, event.up);
  } else {
    trace_into(trace_, event.message);
    if (options_.delivery == Delivery::reliable) {
      const Network::Life life = network_.life_of(event.node, event.from, event.from_life);
      if (life == Network::Life::outdated) return;
      if (life == Network::Life::restarted) member.node->on_peer_restarted(env, event.from);
    }
    member.node->on_message(env, event.from, std::move(event.message));
  }
  finish_call(event.node);
}

template <class M>
void World<M>::finish_call(NodeIndex i) {
  if (!members_[i].exiting) return;
  members_[i].exiting = false;
  end_process(i, false, Fault::count_);
}

template <class M>
void World<M>::send(NodeIndex from, NodeIndex to, M&& message) {
  TROUPE_ASSERT(to < members_.size(), "a message to a node that does not exist");
  members_[from].contacts[to] = true;
  members_[to].contacts[from] = true;
  const Network::Fate fate = network_.route(from, to, now_, faulting_);
  if (fate.lost) return;
  Event event{.kind = Kind::message};
  event.node = to;
  event.from = from;
  event.to_life = members_[to].incarnation;
  event.from_life = members_[from].incarnation;
  event.tag = fate.connection;
  event.message = std::move(message);
  if (fate.twice) push(fate.again, Event(event));
  push(fate.at, std::move(event));
}

template <class M>
void World<M>::set_timer(NodeIndex i, std::uint64_t id, Time at) {
  const Time due = std::max(at - members_[i].clock_offset, now_);
  const auto [armed, is_new] = members_[i].timers.try_emplace(id, kHeld);
  if (armed->second != kHeld) return heap_.move(armed->second, due);
  armed->second = take_slot();
  Event& event = event_at(armed->second);
  event.kind = Kind::timer;
  event.node = i;
  event.to_life = members_[i].incarnation;
  event.tag = id;
  heap_.push(due, armed->second);
}

template <class M>
void World<M>::set_timer_by(NodeIndex i, std::uint64_t id, Time at) {
  const auto armed = members_[i].timers.find(id);
  if (armed != members_[i].timers.end() &&
      (armed->second == kHeld || heap_.at(armed->second) <= at - members_[i].clock_offset))
    return;
  set_timer(i, id, at);
}

template <class M>
void World<M>::cancel_timer(NodeIndex i, std::uint64_t id) {
  const auto armed = members_[i].timers.find(id);
  if (armed == members_[i].timers.end()) return;
  drop_timer(armed->second);
  members_[i].timers.erase(armed);
}

template <class M>
void World<M>::drop_timer(std::uint32_t slot) {
  if (slot == kHeld) return;
  heap_.erase(slot);
  free_.push_back(slot);
}

template <class M>
void World<M>::start(NodeIndex i) {
  Member& member = members_[i];
  TROUPE_ASSERT(member.node == nullptr, "a running node is started again");
  if (member.started) ++member.incarnation;
  member.started = true;
  member.node = factory_(i);
  trace_.mix(static_cast<std::uint64_t>(now_.time_since_epoch().count())).mix(i).mix("start");
  // Messages of the former life still arrive. A connection that was dropped while this node was
  // dead opens now, even to a node with which it has never spoken. Nothing else would open it.
  for (NodeIndex peer = 0; peer < members_.size(); ++peer)
    if (alive(peer) && peer != i) network_.open(i, peer);
  announce(i, true);
  Env<M> env(*this, i);
  member.node->on_start(env);
  finish_call(i);
}

template <class M>
void World<M>::announce(NodeIndex i, bool up) {
  for (NodeIndex peer = 0; peer < members_.size(); ++peer) {
    if (!members_[i].contacts[peer] || !alive(peer) || peer == i ||
        (!up && network_.would_block(i, peer)))
      continue;
    Event event{.kind = Kind::connection, .up = up};
    event.node = peer;
    event.from = i;
    event.to_life = members_[peer].incarnation;
    push(now_ + std::chrono::milliseconds(1), std::move(event));
  }
}

template <class M>
void World<M>::end_process(NodeIndex i, bool silent, Fault kind) {
  Member& member = members_[i];
  if (!alive(i)) return;
  if (kind != Fault::count_) report_.faults.hit(kind);
  trace_.mix(static_cast<std::uint64_t>(now_.time_since_epoch().count())).mix(i).mix("end");
  member.node.reset();
  for (const auto& [id, slot] : member.timers) drop_timer(slot);
  member.timers.clear();
  member.held.clear();
  member.paused = member.alone = member.asleep = false;
  member.asleep_timers.clear();
  member.exiting = false;
  network_.forget_lives_seen_by(i);
  for (NodeIndex peer = 0; peer < members_.size() && !blocked_.empty(); ++peer)
    blocked_.erase(route_key(i, peer));
  if (!silent) announce(i, false);
  if (member.disk != nullptr) {
    if (!silent) {
      member.disk->on_process_death();
    } else {
      damage(i, faults_.chance(0.5) ? Fault::torn_write : Fault::lost_unsynced);
    }
  }
  if (!options_.restart) return;
  Event event{.kind = Kind::restart};
  event.node = i;
  event.to_life = member.incarnation;
  const bool fast = kind == Fault::restart_fast || !faulting_;
  push(now_ + (fast ? random_span(std::chrono::milliseconds(50))
                    : random_span(options_.plan.longest_down)),
       std::move(event));
}

template <class M>
bool World<M>::damage(NodeIndex victim, Fault fault) {
  Disk* disk = members_[victim].disk.get();
  const bool did = disk != nullptr && disk->inject(fault, faults_);
  if (did) report_.faults.hit(fault);
  return did;
}

template <class M>
void World<M>::pause(NodeIndex i, Duration length, Fault kind) {
  if (!alive(i) || members_[i].paused) return;
  report_.faults.hit(kind);
  stop(i, length);
}

template <class M>
bool World<M>::stand_still(NodeIndex i, Duration length) {
  if (!alive(i) || members_[i].paused) return false;
  stop(i, length);
  return true;
}

template <class M>
bool World<M>::stop_alone(NodeIndex i, Duration length) {
  if (!alive(i) || members_[i].paused) return false;
  members_[i].alone = true;
  stop(i, length);
  return true;
}

template <class M>
bool World<M>::sleep(NodeIndex i, Duration length) {
  Member& member = members_[i];
  if (!alive(i) || member.paused) return false;
  member.asleep = true;
  member.asleep_since = now_;
  for (const auto& [id, slot] : member.timers) {
    member.asleep_timers.emplace_back(id, heap_.at(slot) - now_);
    drop_timer(slot);
  }
  member.timers.clear();
  stop(i, length);
  return true;
}

template <class M>
void World<M>::wake_up(NodeIndex i) {
  Member& member = members_[i];
  if (!std::exchange(member.asleep, false)) return;
  const Duration slept = now_ - member.asleep_since;
  member.clock_offset -= slept;
  member.slept += slept;
  for (const auto& [id, left] : std::exchange(member.asleep_timers, {}))
    set_timer(i, id, node_now(i) + left - (member.node->counts_sleep(id) ? slept : Duration{}));
}

template <class M>
void World<M>::stop(NodeIndex i, Duration length) {
  members_[i].paused = true;
  Event event{.kind = Kind::resume};
  event.node = i;
  event.to_life = members_[i].incarnation;
  push(now_ + length, std::move(event));
}

template <class M>
void World<M>::resume(NodeIndex i) {
  members_[i].paused = members_[i].alone = false;
  members_[i].resumed = now_;
  wake_up(i);
  std::deque<Event> held = std::move(members_[i].held);
  members_[i].held.clear();
  // These events waited in the process's socket buffers, so cuts and closed connections do not
  // affect them.
  for (Event& event : held) {
    if (!alive(i) || members_[i].incarnation != event.to_life) return;
    if (members_[i].paused) {
      members_[i].held.push_back(std::move(event));
    } else if (event.kind != Kind::timer) {
      arrive(event);
    } else if (const auto armed = members_[i].timers.find(event.tag);
               armed != members_[i].timers.end() && armed->second == kHeld) {
      fire(i, event.tag);
    }
  }
}

template <class M>
void World<M>::cut(Cut cut, Duration length) {
  Event event{.kind = Kind::uncut};
  event.tag = network_.add(std::move(cut));
  push(now_ + length, std::move(event));
}

template <class M>
void World<M>::isolate(NodeIndex i, Duration length) {
  Cut alone;
  alone.inside.assign(members_.size(), false);
  alone.inside[i] = true;
  alone.kind = Fault::isolate;
  cut(std::move(alone), length);
}

template <class M>
void World<M>::release_held() {
  for (auto at = blocked_.begin(); at != blocked_.end();) {
    const auto from = static_cast<NodeIndex>(at->first >> 32);
    const auto to = static_cast<NodeIndex>(at->first);
    if (network_.would_block(from, to)) {
      ++at;
      continue;
    }
    std::deque<Event> events = std::move(at->second);
    at = blocked_.erase(at);
    for (Event& event : events) {
      const Network::Fate fate = network_.route(from, to, now_, false);
      push(fate.at, std::move(event));
    }
  }
}

template <class M>
void World<M>::drop_connection(NodeIndex a, NodeIndex b, Duration down, Fault kind) {
  network_.close(a, b, kind, now_ + down);
  for (const bool up : {false, true}) {
    for (const NodeIndex node : {a, b}) {
      if (options_.delivery == Delivery::reliable || !alive(node)) continue;
      Event event{.kind = Kind::connection, .up = up};
      event.node = node;
      event.from = node == a ? b : a;
      event.to_life = members_[node].incarnation;
      push(up ? now_ + down : now_, std::move(event));
    }
  }
}

template <class M>
void World<M>::heal() {
  faulting_ = false;
  scope_.calm();
  network_.heal();
  release_held();
  trace_.mix("heal");
  for (NodeIndex i = 0; i < members_.size(); ++i) {
    if (members_[i].paused) resume(i);
    if (members_[i].disk != nullptr) members_[i].disk->heal();
    if (!alive(i) && options_.restart) start(i);
  }
}

template <class M>
void World<M>::schedule_tick() {
  const double mean = static_cast<double>(options_.plan.between_events.count());
  const double wait = -std::log(1.0 - faults_.uniform()) * mean;
  push(now_ + Duration(1 + static_cast<Duration::rep>(wait)), Event{.kind = Kind::tick});
}

template <class M>
bool World<M>::inject(Fault fault) {
  return strike(fault, static_cast<NodeIndex>(faults_.below(members_.size())));
}

template <class M>
bool World<M>::strike(Fault fault, NodeIndex victim) {
  const std::size_t n = members_.size();
  const auto other = static_cast<NodeIndex>((victim + 1 + faults_.below(n > 1 ? n - 1 : 1)) % n);
  switch (fault) {
    case Fault::slow_route:
      network_.slow_down(victim, other, now_ + random_span(options_.plan.longest_partition),
                         random_span(std::chrono::milliseconds(500)));
      return true;
    case Fault::connection_drop:
      drop_connection(victim, other, random_span(std::chrono::milliseconds(500)));
      return true;
    case Fault::connection_flap:
      for (int i = 0; i < 8; ++i)
        at((now_ - Time{}) + i * std::chrono::milliseconds(20), [this, victim, other] {
          drop_connection(victim, other, random_span(std::chrono::milliseconds(15)),
                          Fault::connection_flap);
        });
      return true;
    case Fault::partition_one_way:
    case Fault::partition_two_way:
    case Fault::partition_rolling:
    case Fault::isolate: cut_randomly(fault, victim); return true;
    case Fault::stall:
    case Fault::pause:
      if (!alive(victim) || members_[victim].paused) return false;
      pause(victim,
            random_span(fault == Fault::stall ? Duration(std::chrono::milliseconds(900))
                                              : options_.plan.longest_pause),
            fault);
      return true;
    case Fault::kill:
    case Fault::restart_fast:
    case Fault::crash:
      if (!alive(victim)) return false;
      end_process(victim, fault == Fault::crash, fault);
      return true;
    case Fault::kill_many:
      for (NodeIndex i = 0; i < n; ++i)
        if (faults_.chance(0.4)) end_process(i, false, Fault::kill_many);
      return true;
    case Fault::clock_jump: {
      const std::int64_t hour = 3'600'000'000'000;
      members_[victim].wall_offset +=
          static_cast<std::int64_t>(faults_.below(2 * static_cast<std::uint64_t>(hour))) - hour;
      report_.faults.hit(fault);
      return true;
    }
    case Fault::bit_flip:
    case Fault::disk_full:
    case Fault::slow_disk: return damage(victim, fault);
    default: return false;  // decided per message, or part of a crash
  }
}

template <class M>
void World<M>::cut_randomly(Fault fault, NodeIndex victim) {
  const std::size_t n = members_.size();
  if (fault == Fault::partition_rolling) {
    const Duration each = random_span(options_.plan.longest_partition / 4);
    for (std::size_t i = 0; i < n && i < 8; ++i) {
      const auto alone = static_cast<NodeIndex>((victim + i) % n);
      at((now_ - Time{}) + each * static_cast<int>(i), [this, n, alone, each, fault] {
        if (!faulting_) return;
        Cut one;
        one.inside.assign(n, false);
        one.inside[alone] = true;
        one.kind = fault;
        cut(std::move(one), each);
      });
    }
    return;
  }
  Cut made;
  made.inside.assign(n, false);
  made.inside[victim] = true;
  made.kind = fault;
  if (fault != Fault::isolate)
    for (std::size_t i = 0; i < n; ++i) made.inside[i] = made.inside[i] || faults_.chance(0.4);
  made.one_way = fault == Fault::partition_one_way;
  made.inbound = faults_.chance(0.5);
  cut(std::move(made), random_span(options_.plan.longest_partition));
}

}  // namespace troupe::sim
