/// A simulated cluster: control with its store on node 0, an agent on every other node. The agents
/// host actors that control places and restarts; the world watches that none can serve twice.
///
///     ClusterSimulation cluster({.seed = 7, .nodes = 5, .delivery = sim::Delivery::reliable});
///     auto report = cluster.world.run({60s, 150s, [&] { return cluster.everybody_is_back(); }});
#pragma once

#include "tests/simulation/kernel/world.hpp"
#include "troupe/runtime/control/cutoff.hpp"
#include "troupe/runtime/control/membership.hpp"
#include "troupe/runtime/control/memory_store.hpp"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace troupe::control {

/// Control asks an agent to host an actor; a higher number replaces a lower one.
struct HostActor {
  Epoch epoch = 0;
  int actor = 0;
  std::uint64_t incarnation = 0;
};
/// An agent that registered again tells what it hosts.
struct Hosting {
  NodeId node;
  Epoch epoch = 0;
  std::vector<std::pair<int, std::uint64_t>> actors;
};
using ClusterMessage = std::variant<std::monostate, RegisterNode, Heartbeat, ToAgent, AskControl,
                                    ControlAnswer, HostActor, Hosting>;

inline void trace_into(sim::Trace& trace, const ClusterMessage& message) {
  trace.mix(message.index());
  if (const auto* beat = std::get_if<Heartbeat>(&message))
    trace.mix(beat->epoch).mix(beat->sequence).mix(beat->roster);
  if (const auto* agent = std::get_if<ToAgent>(&message)) trace.mix(agent->index());
  if (const auto* host = std::get_if<HostActor>(&message))
    trace.mix(static_cast<std::uint64_t>(host->actor)).mix(host->incarnation);
}

inline NodeId sim_node_id(sim::NodeIndex index) {
  return NodeId{1, index};
}
inline sim::NodeIndex sim_index(NodeId id) {
  return static_cast<sim::NodeIndex>(id.low);
}

/// Control's disk as the kernel knows it. Commits are atomic here; torn ones are
/// store_crash_test's.
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
  static constexpr int kActors = 6;

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
      auto recovered = Membership::recover(*store_, {}, env.now());
      env.check(recovered.ok(), "control cannot read its store");
      if (!recovered.ok()) return;
      members_.emplace(std::move(*recovered));
      next_incarnation_ = store_->epoch() << 32;
      env.set_timer(kTick, members_->next_tick());
    }
    void on_message(Env& env, sim::NodeIndex from, ClusterMessage message) override {
      env.count_call();
      if (const auto* reg = std::get_if<RegisterNode>(&message)) {
        run(env, members_->on_register(*reg, env.now()));
      } else if (const auto* beat = std::get_if<Heartbeat>(&message)) {
        run(env, members_->on_heartbeat(*beat, env.now()));
      } else if (const auto* hosting = std::get_if<Hosting>(&message)) {
        if (!members_->is_current(sim_node_id(from), hosting->epoch)) return;
        for (const auto& [actor, incarnation] : hosting->actors) {
          Place& place = places_[actor];
          if (place.incarnation < incarnation) place = {from, hosting->epoch, incarnation};
        }
      }
    }
    void on_timer(Env& env, std::uint64_t id) override {
      if (id == kTick) {
        run(env, members_->on_tick(env.now()));
        env.set_timer(kTick, members_->next_tick());
        place_new_actors(env);
        return;
      }
      env.check(store_->commit(group_).ok(), "a commit failed");
      for (auto& event : queue_.finish()) carry_out(env, event);
      write(env);
    }
    void on_connection(Env& env, sim::NodeIndex peer, bool up) override {
      if (!up) run(env, members_->on_closed(sim_node_id(peer), env.now()));
    }
    const Membership* members() const { return members_ ? &*members_ : nullptr; }

   private:
    static constexpr std::uint64_t kTick = 1, kDisk = 2;
    struct Place {
      sim::NodeIndex node = 0;
      Epoch epoch = 0;
      std::uint64_t incarnation = 0;
    };

    void run(Env& env, Membership::Out out) {
      for (auto& event : out.at_once) carry_out(env, event);
      queue_.add(std::move(out));
      for (auto& event : queue_.released()) carry_out(env, event);
      write(env);
    }
    void write(Env& env) {
      if (!queue_.has_work()) return;
      group_ = queue_.begin();
      env.set_timer(kDisk, env.now() + simulation_.disk->latency);
    }
    void carry_out(Env& env, const MembershipEvent& event) {
      if (const auto* send = std::get_if<SendToAgent>(&event)) {
        if (const auto* registered = std::get_if<Registered>(&send->message))
          simulation_.epoch_given(env, send->node, registered->epoch);
        env.send(sim_index(send->node), send->message);
      } else if (const auto* probe = std::get_if<Probe>(&event)) {
        const bool gone = !simulation_.lives(sim_index(probe->node), probe->session);
        run(env, members_->on_probe(probe->node, probe->epoch, gone, env.now()));
      } else if (const auto* dead = std::get_if<NodeDead>(&event)) {
        simulation_.died(env, *dead);
        for (auto& [actor, place] : places_)
          if (place.node == sim_index(dead->node) && place.epoch == dead->epoch) host(env, actor);
      } else if (const auto* up = std::get_if<NodeUp>(&event)) {
        simulation_.came_up(env, *up);
      }
    }
    /// Places the actor on a random registered node under a new incarnation.
    void host(Env& env, int actor) {
      std::vector<NodeRecord> up;
      for (const auto& record : members_->nodes())
        if (record.registered && record.state == NodeState::up) up.push_back(record);
      Place& place = places_[actor];
      place = {0, 0, ++next_incarnation_};
      if (up.empty()) return;  // place_new_actors tries again
      const NodeRecord& target = up[env.random().below(up.size())];
      place.node = sim_index(target.description.id);
      place.epoch = target.epoch;
      env.send(place.node, HostActor{target.epoch, actor, place.incarnation});
    }
    /// Only the first control of all makes actors; later ones hear of them from the agents.
    void place_new_actors(Env& env) {
      if (store_->epoch() == 1 && places_.empty())
        for (int actor = 0; actor < kActors; ++actor) places_[actor];
      for (auto& [actor, place] : places_)
        if (place.epoch == 0) host(env, actor);
    }

    ClusterSimulation& simulation_;
    std::unique_ptr<Store> store_;
    std::optional<Membership> members_;
    CommitQueue<MembershipEvent> queue_;
    std::vector<Batch> group_;
    std::map<int, Place> places_;
    std::uint64_t next_incarnation_ = 0;
  };

  class Agent : public sim::Node<ClusterMessage> {
   public:
    explicit Agent(ClusterSimulation& simulation, sim::NodeIndex self)
        : simulation_(simulation), self_(self) {}

    void on_start(Env& env) override {
      session_ = SessionId{env.random()(), env.self()};
      cutoff_.emplace(CutoffOptions{}, sim_node_id(self_), session_);
      clock_offset_ = env.now() - env.world().now();
      run(env, cutoff_->start(env.now()));
      env.set_timer(1, cutoff_->next_tick());
    }
    void on_message(Env& env, sim::NodeIndex from, ClusterMessage message) override {
      env.count_call();
      if (const auto* control = std::get_if<ToAgent>(&message)) {
        handle(env, *control);
      } else if (const auto* ask = std::get_if<AskControl>(&message)) {
        run(env, cutoff_->on_ask(*ask, env.now()));
      } else if (const auto* answer = std::get_if<ControlAnswer>(&message)) {
        run(env, cutoff_->on_answer(*answer, env.now()));
      } else if (const auto* host = std::get_if<HostActor>(&message)) {
        if (from == 0 && host->epoch == cutoff_->epoch()) hosted_[host->actor] = host->incarnation;
      }
    }
    void on_timer(Env& env, std::uint64_t) override {
      run(env, cutoff_->on_tick(env.now()));
      env.set_timer(1, cutoff_->next_tick());
    }
    void on_connection(Env& env, sim::NodeIndex peer, bool up) override {
      if (peer == 0 && !up) run(env, cutoff_->on_closed(env.now()));
    }
    const Cutoff& cutoff() const { return *cutoff_; }
    SessionId session() const { return session_; }
    Duration clock_offset() const { return clock_offset_; }
    const std::map<int, std::uint64_t>& hosted() const { return hosted_; }

   private:
    void handle(Env& env, const ToAgent& message) {
      if (const auto* registered = std::get_if<Registered>(&message)) {
        run(env, cutoff_->on_registered(*registered, env.now()));
        Hosting hosting{sim_node_id(env.self()), cutoff_->epoch(), {}};
        for (const auto& entry : hosted_) hosting.actors.push_back(entry);
        env.send(0, hosting);
      } else if (const auto* answer = std::get_if<HeartbeatAnswer>(&message)) {
        run(env, cutoff_->on_heartbeat_answer(*answer, env.now()));
      } else if (const auto* roster = std::get_if<Roster>(&message)) {
        run(env, cutoff_->on_roster(*roster, env.now()));
      } else if (const auto* fence = std::get_if<Fence>(&message)) {
        run(env, cutoff_->on_fence(*fence, env.now()));
      }
    }
    void run(Env& env, const Cutoff::Out& out) {
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
    std::optional<Cutoff> cutoff_;
    SessionId session_;
    Duration clock_offset_{};
    std::map<int, std::uint64_t> hosted_;
  };

  // --- what the world knows

  Agent* agent(sim::NodeIndex i) { return i == 0 ? nullptr : static_cast<Agent*>(world.node(i)); }
  Time clock_of(sim::NodeIndex i) { return world.now() + agent(i)->clock_offset(); }
  bool may_serve(sim::NodeIndex i) {
    return world.alive(i) && agent(i)->cutoff().may_serve(clock_of(i));
  }
  bool lives(sim::NodeIndex i, SessionId session) {
    return world.alive(i) && agent(i)->session() == session;
  }
  /// An actor that two processes could serve at this very moment (a stopped one, if it woke now).
  std::string served_twice() {
    std::map<int, sim::NodeIndex> serving;
    for (sim::NodeIndex i = 1; i < world.node_count(); ++i) {
      if (!may_serve(i)) continue;
      for (const auto& entry : agent(i)->hosted()) {
        const auto [at, first] = serving.emplace(entry.first, i);
        if (!first)
          return "actor " + std::to_string(entry.first) + " lives on node " +
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
    env.check(!world.alive(i) || agent(i)->cutoff().epoch() != dead.epoch || !may_serve(i),
              "a node that may still serve was declared dead");
    if (on_death) on_death(i);
  }
  bool everybody_is_back() {
    if (!world.alive(0)) return false;
    const Membership* members = static_cast<Control*>(world.node(0))->members();
    if (members == nullptr) return false;
    for (sim::NodeIndex i = 1; i < world.node_count(); ++i) {
      if (!world.alive(i)) return false;
      const auto record = members->find(sim_node_id(i));
      const Cutoff& cutoff = agent(i)->cutoff();
      if (!record || !record->registered || record->state != NodeState::up ||
          record->epoch != cutoff.epoch() || !cutoff.hears_control(clock_of(i)))
        return false;
    }
    return true;
  }

  sim::World<ClusterMessage> world;
  std::shared_ptr<ControlDisk> disk;
  int deaths = 0, exits = 0;
  std::function<void(sim::NodeIndex)> on_death;

 private:
  std::unique_ptr<sim::Node<ClusterMessage>> make(sim::NodeIndex i) {
    if (i == 0) return std::make_unique<Control>(*this);
    return std::make_unique<Agent>(*this, i);
  }
  std::map<Epoch, NodeId> epochs_;
  std::set<Epoch> fenced_;
};

}  // namespace troupe::control
