/// A simulated cluster of control (membership, directory of actors, store) on node 0 and an agent
/// on every other node. Agents spawn, name and kill actors, and control places and restarts them.
/// The world checks that no two processes can serve one actor, that no life is used twice, and
/// that no acknowledged detached actor is lost.
///
///     ClusterSimulation cluster({.seed = 7, .nodes = 5, .delivery = sim::Delivery::reliable});
///     auto report = cluster.world.run({60s, 150s, [&] { return cluster.everybody_is_back(); }});
#pragma once

#include "tests/simulation/kernel/world.hpp"
#include "troupe/runtime/control/directory.hpp"
#include "troupe/runtime/control/membership.hpp"
#include "troupe/runtime/control/memory_store.hpp"
#include "troupe/runtime/control/self_fencing.hpp"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace troupe::control {

/// Messages from agents to control.
struct LifeStarted {
  ActorId actor;
  std::uint64_t incarnation = 0;
  Epoch epoch = 0;
};
struct StartRefused {
  ActorId actor;
  std::uint64_t incarnation = 0;
};
struct ActorEnded {
  ActorId actor;
  std::uint64_t incarnation = 0;
  Epoch epoch = 0;
};
struct KillLife {
  ActorId actor;
};
/// Control's Link refuses messages of this process below that epoch.
struct Refused {
  Epoch least = 0;
};
using ClusterMessage =
    std::variant<std::monostate, RegisterNode, Heartbeat, ToAgent, AskControl, ControlAnswer,
                 NodeHosts, LifeStarted, StartRefused, ActorEnded, SpawnActor, KillLife,
                 StartActorAt, StopActorAt, ActorReply, Refused>;
using ControlEvent = std::variant<MembershipEvent, DirectoryEvent>;

inline void trace_into(sim::Trace& trace, const ClusterMessage& message) {
  trace.mix(message.index());
  if (const auto* beat = std::get_if<Heartbeat>(&message))
    trace.mix(beat->epoch).mix(beat->sequence).mix(beat->roster);
  if (const auto* agent = std::get_if<ToAgent>(&message)) trace.mix(agent->index());
  if (const auto* start = std::get_if<StartActorAt>(&message))
    trace.mix(start->spec->id.low).mix(start->incarnation);
  if (const auto* stop = std::get_if<StopActorAt>(&message))
    trace.mix(stop->actor.low).mix(stop->incarnation);
}

inline NodeId sim_node_id(sim::NodeIndex index) {
  return NodeId{1, index};
}
inline sim::NodeIndex sim_index(NodeId id) {
  return static_cast<sim::NodeIndex>(id.low);
}

/// Control's disk as the simulator's kernel sees it. Commits are atomic here; store_crash_test
/// covers torn ones.
class ControlDisk : public sim::Disk {
 public:
  explicit ControlDisk(std::uint64_t seed) : store(std::make_shared<MemoryDisk>(seed)) {}
  bool inject(sim::Fault fault, Random& random) override {
    if (fault != sim::Fault::slow_disk) return false;
    latency = std::chrono::milliseconds(100 + random.below(3000));
    return true;
  }
  void heal() override { latency = std::chrono::milliseconds(2); }
  std::shared_ptr<MemoryDisk> store;
  Duration latency = std::chrono::milliseconds(2);
};

class ClusterSimulation {
 public:
  using Env = sim::Env<ClusterMessage>;

  explicit ClusterSimulation(const sim::WorldOptions& options)
      : world(options, [this](sim::NodeIndex i) { return make(i); }) {
    disk = std::make_shared<ControlDisk>(options.seed);
    world.attach_disk(0, disk);
    world.add_invariant([this] { return served_twice(); });
  }

  class Control : public sim::Node<ClusterMessage> {
   public:
    explicit Control(ClusterSimulation& simulation) : simulation_(simulation) {}

    void on_start(Env& env) override {
      StoreOptions options;
      options.identity = SessionId{1, 1};
      auto opened = open_memory_store(simulation_.disk->store, options);
      env.check(opened.ok(), "control cannot open its store");
      if (!opened.ok()) return;
      store_ = std::move(*opened);
      members_.emplace(Membership::recover(*store_, {}, env.now()).value());
      std::vector<std::pair<NodeId, Epoch>> awaited;
      for (const auto& record : members_->nodes())
        awaited.emplace_back(record.description.id, record.epoch);
      actors_.emplace(Directory::recover(*store_, {}, std::move(awaited)).value());
      run(env, actors_->start());
      env.set_timer(kTick, members_->next_tick());
    }
    void on_message(Env& env, sim::NodeIndex from, ClusterMessage message) override {
      env.count_call();
      const NodeId node = sim_node_id(from);
      const Time now = env.now();
      if (const auto* reg = std::get_if<RegisterNode>(&message)) {
        run(env, members_->on_register(*reg, now));
      } else if (const auto* beat = std::get_if<Heartbeat>(&message)) {
        run(env, members_->on_heartbeat(*beat, now));
      } else if (const auto* hosting = std::get_if<NodeHosts>(&message)) {
        if (members_->is_current(node, hosting->epoch))
          run(env, actors_->on_node_hosts(*hosting, now));
      } else if (const auto* started = std::get_if<LifeStarted>(&message)) {
        if (members_->is_current(node, started->epoch))
          run(env, actors_->on_started(started->actor, started->incarnation, node, started->epoch,
                                       1, now));
      } else if (const auto* ended = std::get_if<ActorEnded>(&message)) {
        if (members_->is_current(node, ended->epoch))
          run(env, actors_->on_died(ended->actor, ended->incarnation,
                                    Error(Code::worker_died, "killed"), false, now));
      } else if (const auto* refused = std::get_if<StartRefused>(&message)) {
        run(env, actors_->on_start_failed(refused->actor, refused->incarnation, std::nullopt));
      } else if (const auto* spawn = std::get_if<SpawnActor>(&message)) {
        run(env, actors_->on_spawn(*spawn, now));
      } else if (const auto* kill = std::get_if<KillLife>(&message)) {
        run(env, actors_->on_kill(kill->actor, false, env.now()));
      }
    }
    void on_timer(Env& env, std::uint64_t id) override {
      if (id == kTick) {
        run(env, members_->on_tick(env.now()));
        run(env, actors_->on_tick(env.now()));
        env.set_timer(kTick, members_->next_tick());
        for (const auto& place : std::exchange(unplaced_, {})) choose_node(env, place);
        return;
      }
      env.check(store_->commit(group_).ok(), "a commit failed");
      queue_.finish();
      carry_out_all(env);
      write(env);
    }
    void on_connection(Env& env, sim::NodeIndex peer, bool up) override {
      if (!up) run(env, members_->on_closed(sim_node_id(peer), env.now()));
    }
    const Membership* members() const { return members_ ? &*members_ : nullptr; }
    const Directory* actors() const { return actors_ ? &*actors_ : nullptr; }

   private:
    static constexpr std::uint64_t kTick = 1, kDisk = 2;

    /// All cores share one queue of writes, since a message of one core may depend on an earlier
    /// write of another.
    template <class Event>
    void run(Env& env, Output<Event> out) {
      Output<ControlEvent> all;
      all.writes = std::move(out.writes);
      for (auto& event : out.after_sync) all.after_sync.emplace_back(std::move(event));
      for (const auto& event : out.at_once) carry_out(env, event);
      queue_.add(std::move(all));
      carry_out_all(env);
      write(env);
    }
    void carry_out_all(Env& env) {
      while (const auto event = queue_.pop()) carry_out(env, *event);
    }
    void write(Env& env) {
      if (!queue_.has_work()) return;
      group_ = queue_.begin();
      env.set_timer(kDisk, env.now() + simulation_.disk->latency);
    }
    void carry_out(Env& env, const ControlEvent& event) {
      std::visit([&](const auto& one) { carry_out(env, one); }, event);
    }
    void carry_out(Env& env, const MembershipEvent& event) {
      if (const auto* send = std::get_if<SendToAgent>(&event)) {
        if (const auto* registered = std::get_if<Registered>(&send->message))
          simulation_.epoch_given(env, send->node, registered->epoch);
        env.send(sim_index(send->node), send->message);
      } else if (const auto* probe = std::get_if<Probe>(&event)) {
        const sim::NodeIndex node = sim_index(probe->node);
        const bool gone = !simulation_.lives(node, probe->session) &&
                          simulation_.machine_down != std::optional(node);
        run(env, members_->on_probe(probe->node, probe->epoch, gone, env.now()));
      } else if (const auto* dead = std::get_if<NodeDead>(&event)) {
        simulation_.died(env, *dead);
        run(env, actors_->on_node_dead(dead->node, dead->epoch, dead->why, env.now()));
      } else if (const auto* up = std::get_if<NodeUp>(&event)) {
        simulation_.came_up(env, *up);
      } else if (const auto* dead_already = std::get_if<FenceProcess>(&event)) {
        env.send(sim_index(dead_already->node), Refused{dead_already->epoch + 1});
      }
    }
    void carry_out(Env& env, const DirectoryEvent& event) {
      if (const auto* place = std::get_if<PlaceActor>(&event)) {
        choose_node(env, *place);
      } else if (const auto* start = std::get_if<StartActorAt>(&event)) {
        env.send(sim_index(start->node), *start);
      } else if (const auto* stop = std::get_if<StopActorAt>(&event)) {
        env.send(sim_index(stop->node), *stop);
      } else if (const auto* reply = std::get_if<ActorReply>(&event)) {
        simulation_.acknowledged(*reply);
        env.send(sim_index(reply->to), *reply);
      }
    }
    void choose_node(Env& env, const PlaceActor& place) {
      std::vector<NodeRecord> up;
      for (const auto& record : members_->nodes())
        if (record.registered && record.state == NodeState::up) up.push_back(record);
      if (up.empty()) {
        unplaced_.push_back(place);
        return;
      }
      const NodeRecord& target = up[env.random().below(up.size())];
      run(env,
          actors_->on_placed(place.actor, place.incarnation, target.description.id, target.epoch));
    }

    ClusterSimulation& simulation_;
    std::unique_ptr<Store> store_;
    std::optional<Membership> members_;
    std::optional<Directory> actors_;
    CommitQueue<ControlEvent> queue_;
    std::vector<Batch> group_;
    std::vector<PlaceActor> unplaced_;
  };

  class Agent : public sim::Node<ClusterMessage> {
   public:
    explicit Agent(ClusterSimulation& simulation, sim::NodeIndex self)
        : simulation_(simulation), self_(self) {}

    void on_start(Env& env) override {
      session_ = SessionId{env.random()(), env.self()};
      self_fencing_.emplace(SelfFencingOptions{}, sim_node_id(self_), session_);
      clock_offset_ = env.now() - env.world().now();
      run(env, self_fencing_->start(env.now()));
      env.set_timer(kTick, self_fencing_->next_tick());
      env.set_timer(kWork, env.now() + std::chrono::seconds(1));
    }
    void on_message(Env& env, sim::NodeIndex, ClusterMessage message) override {
      env.count_call();
      if (const auto* control = std::get_if<ToAgent>(&message)) {
        handle(env, *control);
      } else if (const auto* ask = std::get_if<AskControl>(&message)) {
        run(env, self_fencing_->on_ask(*ask, env.now()));
      } else if (const auto* answer = std::get_if<ControlAnswer>(&message)) {
        run(env, self_fencing_->on_answer(*answer, env.now()));
      } else if (const auto* refused = std::get_if<Refused>(&message)) {
        if (self_fencing_->epoch() < refused->least)
          run(env, self_fencing_->on_refused("it is dead", env.now()));
      } else if (const auto* start = std::get_if<StartActorAt>(&message)) {
        // Obeys only the control with the highest epoch, and nothing that is meant for another
        // life of this node.
        if (start->epoch != self_fencing_->epoch() ||
            start->incarnation >> 32 < self_fencing_->control_epoch()) {
          env.send(0, StartRefused{start->spec->id, start->incarnation});
          return;
        }
        simulation_.life_begins(env, start->spec->id, start->incarnation, session_);
        hosted_[start->spec->id] = {*start->spec, start->incarnation, 1, 0};
        env.send(0, LifeStarted{start->spec->id, start->incarnation, self_fencing_->epoch()});
      } else if (const auto* stop = std::get_if<StopActorAt>(&message)) {
        const auto at = hosted_.find(stop->actor);
        if (stop->epoch == self_fencing_->epoch() && at != hosted_.end() &&
            at->second.incarnation == stop->incarnation) {
          hosted_.erase(at);
          env.send(0, ActorEnded{stop->actor, stop->incarnation, self_fencing_->epoch()});
        }
      }
    }
    void on_timer(Env& env, std::uint64_t id) override {
      if (id == kTick) {
        run(env, self_fencing_->on_tick(env.now()));
        env.set_timer(kTick, self_fencing_->next_tick());
      } else {
        work(env);
        env.set_timer(kWork, env.now() + std::chrono::milliseconds(500 + env.random().below(4000)));
      }
    }
    void on_connection(Env& env, sim::NodeIndex peer, bool up) override {
      if (peer == 0 && !up) run(env, self_fencing_->on_closed(env.now()));
    }
    const SelfFencing& self_fencing() const { return *self_fencing_; }
    SessionId session() const { return session_; }
    Duration clock_offset() const { return clock_offset_; }
    const std::map<ActorId, HostedActor>& hosted() const { return hosted_; }

   private:
    static constexpr std::uint64_t kTick = 1, kWork = 2;
    /// Spawns an actor, kills one, or loses a worker.
    void work(Env& env) {
      if (self_fencing_->epoch() == 0 || !env.world().faulting()) return;
      const double dice = env.random().uniform();
      if (dice < 0.6) {
        SpawnActor spawn;
        spawn.from = sim_node_id(self_);
        spawn.spec = simulation_.new_spec(env.random());
        spawn.get_if_exists = env.random().chance(0.8);
        env.send(0, spawn);
      } else if (!hosted_.empty()) {
        auto at = hosted_.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(env.random().below(hosted_.size())));
        if (dice < 0.75) {
          simulation_.killed(at->first);
          env.send(0, KillLife{at->first});
        } else {
          env.send(0, ActorEnded{at->first, at->second.incarnation, self_fencing_->epoch()});
          hosted_.erase(at);
        }
      }
    }
    void handle(Env& env, const ToAgent& message) {
      if (const auto* registered = std::get_if<Registered>(&message)) {
        run(env, self_fencing_->on_registered(*registered, env.now()));
        NodeHosts hosting{
            sim_node_id(self_), self_fencing_->epoch(), self_fencing_->control_epoch(), {}};
        hosting.number = registered->number;
        for (const auto& entry : hosted_) hosting.actors.push_back(entry.second);
        env.send(0, hosting);
      } else if (const auto* answer = std::get_if<HeartbeatAnswer>(&message)) {
        run(env, self_fencing_->on_heartbeat_answer(*answer, env.now()));
      } else if (const auto* roster = std::get_if<Roster>(&message)) {
        run(env, self_fencing_->on_roster(*roster, env.now()));
      } else if (const auto* fence = std::get_if<Fence>(&message)) {
        run(env, self_fencing_->on_fence(*fence, env.now()));
      }
    }
    void run(Env& env, const SelfFencing::Out& out) {
      for (const auto& event : out) {
        if (const auto* beat = std::get_if<SendToControl>(&event)) {
          env.send(0, beat->message);
        } else if (const auto* peer = std::get_if<SendToPeer>(&event)) {
          if (const auto* ask = std::get_if<AskControl>(&peer->message))
            env.send(sim_index(peer->node), *ask);
          else
            env.send(sim_index(peer->node), std::get<ControlAnswer>(peer->message));
        } else if (const auto* reconnect = std::get_if<Reconnect>(&event)) {
          RegisterNode message;
          message.node.id = sim_node_id(env.self());
          message.node.beside_control = env.self() == 1;
          message.epoch = reconnect->epoch;
          message.session = session_;
          message.number = reconnect->number;
          env.send(0, message);
        } else {
          ++simulation_.exits;
          env.exit();
        }
      }
    }
    ClusterSimulation& simulation_;
    sim::NodeIndex self_;
    std::optional<SelfFencing> self_fencing_;
    SessionId session_;
    Duration clock_offset_{};
    std::map<ActorId, HostedActor> hosted_;
  };

  // --- what the world knows

  Agent* agent(sim::NodeIndex i) { return i == 0 ? nullptr : static_cast<Agent*>(world.node(i)); }
  Time clock_of(sim::NodeIndex i) { return world.now() + agent(i)->clock_offset(); }
  bool may_serve(sim::NodeIndex i) {
    return world.alive(i) && agent(i)->self_fencing().may_serve(clock_of(i));
  }
  bool lives(sim::NodeIndex i, SessionId session) {
    return world.alive(i) && agent(i)->session() == session;
  }
  /// Returns an actor that two processes could serve at this moment. A stopped process counts as
  /// if it ran now.
  std::string served_twice() {
    std::map<ActorId, sim::NodeIndex> serving;
    for (sim::NodeIndex i = 1; i < world.node_count(); ++i) {
      if (!may_serve(i)) continue;
      for (const auto& entry : agent(i)->hosted()) {
        const auto [at, first] = serving.emplace(entry.first, i);
        if (!first)
          return "actor " + std::to_string(entry.first.low) + " lives on node " +
                 std::to_string(at->second) + " and on node " + std::to_string(i);
      }
    }
    return {};
  }
  void epoch_given(Env& env, NodeId node, Epoch epoch) {
    const auto [at, first] = epochs_.emplace(epoch, node);
    env.check(first || at->second == node, "one epoch was given to two nodes");
    env.check(fenced_.count(epoch) == 0, "a fenced epoch was given again");
  }
  void came_up(Env& env, const NodeUp& up) {
    env.check(fenced_.count(up.epoch) == 0, "a fenced epoch came back");
  }
  void died(Env& env, const NodeDead& dead) {
    ++deaths;
    fenced_.insert(dead.epoch);
    const auto i = sim_index(dead.node);
    env.check(!world.alive(i) || agent(i)->self_fencing().epoch() != dead.epoch || !may_serve(i),
              "a node that may still serve was declared dead");
    if (on_death) on_death(i);
  }
  ActorSpec new_spec(Random& random) {
    ActorSpec spec;
    spec.id = ActorId{3, ++last_actor_};
    spec.max_restarts = 1'000'000;
    spec.detached = random.chance(0.5);
    if (random.chance(0.6)) spec.name = "name" + std::to_string(random.below(5));
    specs_[spec.id] = spec;
    return spec;
  }
  void acknowledged(const ActorReply& reply) {
    if (reply.created && specs_.at(reply.actor).detached) acknowledged_.insert(reply.actor);
  }
  void killed(ActorId actor) { killed_.insert(actor); }
  void life_begins(Env& env, ActorId actor, std::uint64_t incarnation, SessionId session) {
    const auto [at, first] = lives_.emplace(incarnation, std::pair(actor, session));
    env.check(first || at->second == std::pair(actor, session),
              "one incarnation was started in two processes");
  }
  /// Returns whether the directory is right: every acknowledged detached actor that nobody killed
  /// lives where the directory says, names lead to living actors, and no agent hosts an actor
  /// that the directory does not place there.
  bool actors_are_right() {
    const Directory* actors = static_cast<Control*>(world.node(0))->actors();
    if (actors == nullptr || actors->awaits_nodes()) return false;
    for (const ActorId id : acknowledged_) {
      if (killed_.count(id) != 0) continue;
      const auto location = actors->find(id);
      if (!location) world.fail("an acknowledged detached actor is not known any more");
      if (!location || location->state != ActorState::alive) return false;
    }
    for (const auto& [spec, location] : actors->list()) {
      if (location.state == ActorState::dead) continue;
      if (location.state != ActorState::alive) return false;
      const auto& hosted = agent(sim_index(location.node))->hosted();
      const auto at = hosted.find(spec.id);
      if (at == hosted.end() || at->second.incarnation != location.incarnation) return false;
    }
    for (sim::NodeIndex i = 1; i < world.node_count(); ++i)
      for (const auto& entry : agent(i)->hosted()) {
        const auto location = actors->find(entry.first);
        if (!location || location->node != sim_node_id(i)) return false;
      }
    return true;
  }
  bool everybody_is_back() {
    if (!world.alive(0)) return false;
    const Membership* members = static_cast<Control*>(world.node(0))->members();
    if (members == nullptr) return false;
    for (sim::NodeIndex i = 1; i < world.node_count(); ++i) {
      if (!world.alive(i)) return false;
      const auto record = members->find(sim_node_id(i));
      const SelfFencing& self_fencing = agent(i)->self_fencing();
      if (!record || !record->registered || record->state != NodeState::up ||
          record->epoch != self_fencing.epoch() || !self_fencing.hears_control(clock_of(i)))
        return false;
    }
    return actors_are_right();
  }

  sim::World<ClusterMessage> world;
  std::shared_ptr<ControlDisk> disk;
  int deaths = 0, exits = 0;
  std::function<void(sim::NodeIndex)> on_death;
  /// A machine that is down. Nothing on it answers a probe, and no other process reports the end
  /// of its process.
  std::optional<sim::NodeIndex> machine_down;

 private:
  std::unique_ptr<sim::Node<ClusterMessage>> make(sim::NodeIndex i) {
    if (i == 0) return std::make_unique<Control>(*this);
    return std::make_unique<Agent>(*this, i);
  }
  std::uint64_t last_actor_ = 0;
  std::map<ActorId, ActorSpec> specs_;
  std::set<ActorId> acknowledged_, killed_;
  std::map<std::uint64_t, std::pair<ActorId, SessionId>> lives_;
  std::map<Epoch, NodeId> epochs_;
  std::set<Epoch> fenced_;
};

}  // namespace troupe::control
