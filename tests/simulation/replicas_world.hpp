/// Simulates objects with replicas at other nodes in one thread. Each node has a ReferenceTable
/// and Replicas. FIFO links of different speed connect them. Refs are passed on, also inside
/// values. Fewer nodes die than an object has copies, and a further one dies whenever all copies
/// are complete again. A seed drives it.
///
///     ReplicasWorld world(seed);
///     world.run();
///     EXPECT_EQ(world.broken(), "");
///
/// The world checks:
/// - An object that was put with replicas is never lost.
/// - The last bytes of an object that somebody can still name are not freed. The exception is a ref
///   whose only sender died before the owner knew of the receiver, or sent it to the owner itself.
/// - Every put is answered. A put that succeeds has its copies.
/// - Every Await is answered after the last fault, and there are as many copies as nodes allow.
/// - When every handle is dropped, no record, count, copy or byte is left.
/// - With names: an object with a name is not lost either, even without another holder.
#pragma once

#include "tests/simulation/played_names.hpp"
#include "troupe/runtime/agent/replicas.hpp"
#include "troupe/runtime/base/random.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::simulation {

class ReplicasWorld : private PlayedNames::Host {
 public:
  struct Seen {  // what the schedules did, to judge their coverage
    std::uint64_t puts = 0, refused = 0, found = 0, lent = 0, deaths = 0, orphans = 0, excused = 0;
    std::uint64_t restored = 0, repaired = 0, named = 0, by_name = 0;
  };

  explicit ReplicasWorld(std::uint64_t seed, bool names = false) : random_(seed) {
    const std::size_t count = 3 + random_.below(3);
    copies_ = 2 + (count > 3 ? random_.below(2) : 0);
    deaths_ = random_.chance(0.8) ? 1 + random_.below(copies_ - 1) : 0;
    for (std::size_t n = 0; n < count; ++n)
      nodes_.push_back(std::make_unique<Node>(*this, n, names));
    for (auto& node : nodes_) {
      node->links.resize(count);
      node->references.ask_of_bytes(
          [&bytes = node->bytes](const wire::Location& at) { return bytes.count(at.offset) != 0; });
      node->replicas.start(id_of(node->self));
      for (std::size_t other = 0; other < count; ++other) {
        node->speed.push_back(random_.chance(0.3) ? 0.05 : 0.9);
        if (other != node->self) node->references.add_node(index_of(other));
      }
    }
    notices_ = random_.chance(0.5) ? 0.02 : 0.5;
    restless_ = random_.chance(0.5);
    if (names)
      names_ =
          std::make_unique<PlayedNames>(static_cast<PlayedNames::Host&>(*this), count, random_);
  }

  void run() {
    const auto steps = 200 + random_.below(400);
    for (std::uint64_t i = 0; i < steps && broken_.empty(); ++i) step();
    if (broken_.empty()) end();
  }
  const std::string& broken() const { return broken_; }
  const Seen& seen() const { return seen_; }

 private:
  using Index = ProcessIndex;
  using Kind = wire::Value::Kind;
  static constexpr Index kProcess = 1;
  static constexpr std::uint64_t kNodes = 100;
  static constexpr Duration kRound = std::chrono::milliseconds(100);
  static Index index_of(std::size_t node) { return Index::of(kNodes + node); }
  static std::size_t node_of(Index index) { return index.value - kNodes; }
  static NodeId id_of(std::size_t node) { return {7, node + 1}; }
  static std::size_t node_of(NodeId id) { return id.low - 1; }
  static std::size_t owner_of(ObjectId id) { return id.high - 1; }

  struct Frame {
    std::vector<wire::OwnedRef> refs;
  };
  using Message = std::variant<Frame, wire::PeerMessage>;
  struct Entry {
    bool usable = true, awaited = false, remote = false, ready = false;
  };
  struct Node final : agent::ReferenceTable::Out, agent::Replicas::Out {
    Node(ReplicasWorld& w, std::size_t n, bool names)
        : world(w),
          self(n),
          replicas(references, *this,
                   {.round = kRound,
                    .longest_round = 2 * kRound,
                    .names = names,
                    .repair_after = w.repair_after_,
                    .repairs_at_once = 2}) {}
    ReplicasWorld& world;
    std::size_t self;
    bool alive = true;
    agent::ReferenceTable references{*this};
    agent::Replicas replicas;
    std::vector<std::deque<Message>> links;  // from each other node, in order
    std::vector<double> speed;
    std::set<std::size_t> known_dead;
    std::map<ObjectId, Entry> table;                         // of its one process
    std::deque<std::pair<ObjectId, wire::Value>> answers;    // to it
    std::map<std::uint64_t, ObjectId> puts;                  // by request
    std::map<ObjectId, std::size_t> pulling;                 // the table of running transfers
    std::map<std::uint64_t, ObjectId> bytes;                 // by number: their object
    std::map<std::uint64_t, std::pair<ObjectId, int>> lent;  // the copy, and its number of uses
    std::vector<ObjectId> returned;

    // ReferenceTable::Out
    void ready(Index p, ObjectId object, const wire::Value& value, BlobView) override {
      if (p == agent::kSelf) return replicas.arrived(object, value);
      if (p == kProcess) return answers.emplace_back(object, value), void();
      world.send(*this, node_of(p), wire::PeerMessage(world.answer_of(*this, object, value)));
    }
    void free(const wire::Location& at) override { world.on_free(*this, at.offset); }
    void unreferenced(ActorId) override { world.fail("there are no actors here"); }
    void peer_hold(Index to, ObjectId object, Index holder, std::int32_t delta) override {
      const NodeId who = id_of(holder == agent::kSelf ? self : node_of(holder));
      world.send(*this, node_of(to), wire::PeerMessage(wire::PeerHold{object, who, delta}));
    }
    void peer_await(Index owner, ObjectId object) override {
      if (references.is_dead(owner)) return replicas.look(owner, object);
      world.send(*this, node_of(owner), wire::PeerMessage(wire::PeerAwait{object}));
    }
    void pull(Index owner, ObjectId object, std::uint64_t size) override {
      if (references.is_dead(owner)) return replicas.fetch(owner, object, size);
      pull_copy(id_of(node_of(owner)), object, size);
    }
    void peer_rebuild(Index owner, ObjectId object, ObjectId lost) override {
      world.send(*this, node_of(owner), wire::PeerMessage(wire::PeerRebuild{object, lost}));
    }
    void copies_over(ObjectId object) override { replicas.over(object); }
    void met(ObjectId object) override { replicas.met(object); }
    // Replicas::Out
    void send(NodeId to, const wire::PeerMessage& message) override {
      world.send(*this, node_of(to), message);
    }
    Index index_of(NodeId node) override { return ReplicasWorld::index_of(node_of(node)); }
    std::vector<agent::Replicas::Candidate> other_nodes() override {
      std::vector<agent::Replicas::Candidate> others;
      for (std::size_t n = 0; n < links.size(); ++n)
        if (n != self && known_dead.count(n) == 0)
          others.push_back({id_of(n), world.random_.below(100), true});
      return others;
    }
    void replicated(Index, const wire::Replicated& answer) override {
      world.on_replicated(*this, answer);
    }
    void found_here(Index owner, ObjectId object) override {
      const auto copy = references.held_here(wire::copy_of(object));
      world.take_value(*this, owner, agent::kSelf, world.answer_of(*this, object, *copy.value));
    }
    void lend(ObjectId object) override {
      ++world.seen_.lent;
      const wire::Value* value = references.value_of(wire::copy_of(object));
      const wire::Location at = value->location;
      auto& [copy, uses] = lent[at.offset];
      copy = wire::copy_of(object);
      ++uses;
      references.hold(copy, agent::kSelf, +1);
      references.pulled(object, at);
    }
    void pull_copy(NodeId from, ObjectId copy, std::uint64_t) override {
      if (!pulling.emplace(copy, node_of(from)).second) return;
      if (known_dead.count(node_of(from)) != 0) return failed_.push_back(copy);
      world.send(*this, node_of(from), wire::PeerMessage(wire::PullRequest{0, copy, 0, 0, {}}));
    }
    void not_found(Index owner, ObjectId object, std::optional<std::uint64_t> bytes) override {
      if (references.knows(object) && world.may_excuse_.count(object) == 0)
        world.fail("no copy of " + std::to_string(object.low & 0xffff) + " was found");
      const Error why(Code::object_lost, "no copy was found");
      if (bytes) return references.pull_failed(object, why);
      wire::Value lost;
      lost.kind = Kind::error;
      lost.error = why.shared_info();
      references.ready_from_owner(owner, object, lost, {});
    }
    void ask_name_of(ObjectId object) override { world.names_->ask_name_of(self, object); }
    std::vector<ObjectId> failed_;  ///< pulls from nodes known to be dead
  };

  // --- a process

  void put(Node& node) {
    const ObjectId id{node.self + 1, ++last_ | wire::kHasCopies};
    wire::Value value;
    value.kind = random_.chance(0.7) ? Kind::shared : Kind::inline_bytes;
    for (const auto& [inner, entry] : node.table)
      if (entry.usable && value.refs.size() < 2 && random_.chance(0.2)) value.refs.push_back(inner);
    if (value.kind == Kind::shared) value.location = new_bytes(node, id);
    node.table[id].usable = false;
    node.references.promote(kProcess, id, value, {});
    node.puts[++requests_] = id;
    const std::uint64_t patience = random_.chance(0.1) ? 400'000'000 : 60'000'000'000;
    node.replicas.want(kProcess, {requests_, id, static_cast<std::uint32_t>(copies_), patience},
                       now_);
  }
  void on_replicated(Node& node, const wire::Replicated& answer) {
    const ObjectId id = node.puts.extract(answer.request).mapped();
    if (answer.error) {
      ++seen_.refused;
      node.returned.push_back(id);  // its process drops it
      node.table.erase(id);
      return;
    }
    ++seen_.puts;
    node.table.at(id).usable = true;
    put_.insert(id);
    std::size_t here = 0;
    for (const auto& other : nodes_) here += other->alive && has_copy(*other, id) ? 1 : 0;
    if (here < copies_ && dead_ == 0) fail("a put has too few copies");
  }
  bool has_copy(const Node& node, ObjectId id) const {
    return node.references.value_of(node.self == owner_of(id) ? id : wire::copy_of(id)) != nullptr;
  }
  void adopt(Node& node, ObjectId id) {
    if (!node.table.try_emplace(id).second) node.references.hold(id, kProcess, -1);
  }
  void drop(Node& node, ObjectId id) {
    if (!node.table.at(id).usable) return;
    node.table.erase(id);
    node.references.hold(id, kProcess, -1);
  }
  void send_refs(Node& node) {
    const std::size_t to = random_.below(nodes_.size());
    if (to == node.self || node.known_dead.count(to) != 0) return;
    Frame frame;
    std::vector<ObjectId> ids;
    for (const auto& [id, entry] : node.table)
      if (entry.usable && ids.size() < 3 && random_.chance(restless_ ? 0.9 : 0.3))
        ids.push_back(id);
    for (const ObjectId id : ids) node.references.hold(id, index_of(to), +1, kProcess);
    for (const ObjectId id : ids) {
      const Index owner = node.references.export_to(id, index_of(to), kProcess);
      frame.refs.push_back({id, id_of(owner == agent::kSelf ? node.self : node_of(owner))});
    }
    if (!ids.empty()) send(node, to, std::move(frame));
    for (const ObjectId id : ids)
      if (random_.chance(restless_ ? 0.97 : 0.6)) drop(node, id);
  }
  void await(Node& node, ObjectId id, bool fetch) {
    Entry& entry = node.table.at(id);
    if (!entry.usable || entry.awaited || entry.ready || (entry.remote && !fetch)) return;
    entry.awaited = true;
    node.references.await(id, kProcess, fetch);
  }
  bool take_answer(Node& node) {
    if (node.answers.empty()) return false;
    const auto [id, value] = node.answers.front();
    node.answers.pop_front();
    const auto found = node.table.find(id);
    const bool wanted = found != node.table.end() && !found->second.ready;
    if (value.kind == Kind::error && found != node.table.end()) {
      if (may_excuse_.count(id) == 0)
        fail("object " + std::to_string(id.low & 0xffff) + " is lost: " + value.error->message);
      ++seen_.excused;
    }
    if (wanted) {
      found->second.awaited = false;
      found->second.remote = value.kind == Kind::remote;
      found->second.ready = value.kind != Kind::remote;
    }
    wire::for_each_ref(value, [&](ObjectId inner) {
      if (wanted)
        adopt(node, inner);
      else
        node.references.hold(inner, kProcess, -1);
    });
    return true;
  }
  /// Gives an object a name, finds one by its name, or removes a name.
  void use_names(Node& node) {
    const auto dice = random_.below(100);
    if (dice < 40) {
      for (const auto& [id, entry] : node.table)
        if (entry.usable && random_.chance(0.3) && node.references.value_of(id) != nullptr) {
          const Index owner = node.references.owner_of(id).value_or(index_of(node.self));
          return names_->detach(node.self, id, id_of(node_of(owner)));
        }
    } else if (dice < 48) {
      names_->reset(node.self);
    } else if (!names_->all().empty()) {
      auto at = names_->all().begin();
      std::advance(at, static_cast<std::ptrdiff_t>(random_.below(names_->all().size())));
      const ObjectId id = at->second.object;
      return dice < 85 ? names_->find(node.self, id) : names_->forget(node.self, id);
    }
  }
  // PlayedNames::Host
  void hold_named(std::size_t node, ObjectId object, std::int32_t delta) override {
    nodes_[node]->references.hold(object, agent::kSelf, delta);
  }
  void found(std::size_t node, const control::ObjectName& what) override {
    ++seen_.by_name;
    Node& at = *nodes_[node];
    if (node_of(what.owner) != node)
      at.references.import_from(what.object, index_of(node_of(what.owner)), agent::kSelf);
    at.references.hold(what.object, kProcess, +1);
    adopt(at, what.object);
  }
  void on_name(std::size_t node, ObjectId object, bool has_one) override {
    nodes_[node]->replicas.on_name(object, has_one, now_);
  }
  void forgotten(ObjectId object) override { excuse(object); }
  /// Excuses the loss of an object.
  void excuse(ObjectId object) {
    may_excuse_.insert(object);
    excused_.insert(object);
  }
  void act(Node& node) {
    if (names_ && random_.chance(0.3)) return use_names(node);
    const auto dice = random_.below(100);
    std::vector<ObjectId> ids;
    for (const auto& [id, entry] : node.table) ids.push_back(id);
    if (restless_ && (last_ >= 3 || dice < 40)) return last_ < 3 ? put(node) : send_refs(node);
    if (dice < 12) return put(node);
    if (dice < 40) return send_refs(node);
    if (dice < 60) return void(take_answer(node));
    if (ids.empty()) return;
    const ObjectId one = ids[random_.below(ids.size())];
    if (dice < 80) return await(node, one, random_.chance(0.6));
    drop(node, one);
  }

  // --- an agent

  void send(Node& from, std::size_t to, Message message) {
    if (nodes_[to]->alive && from.known_dead.count(to) == 0)
      nodes_[to]->links[from.self].push_back(std::move(message));
  }
  wire::Location new_bytes(Node& node, ObjectId object) {
    wire::Location at;
    at.offset = ++bytes_;
    node.bytes[at.offset] = wire::original_of(object);
    return at;
  }
  wire::PeerReady answer_of(Node& node, ObjectId object, const wire::Value& value) {
    wire::PeerReady ready{object, value, {}};
    wire::for_each_ref(value, [&](ObjectId id) {
      const Index owner = node.references.owner_of(id).value_or(index_of(node.self));
      ready.refs.push_back({id, id_of(node_of(owner))});
    });
    if (value.kind == Kind::shared) {
      ready.value.kind = Kind::remote;
      ready.value.location = {};
      ready.value.remote_bytes = 10'000;
    }
    return ready;
  }
  Index owner_index(const Node& node, NodeId owner) const {
    return node_of(owner) == node.self ? agent::kSelf : index_of(node_of(owner));
  }
  void take_value(Node& node, Index owner, Index by, const wire::PeerReady& ready) {
    for (const wire::OwnedRef& ref : ready.refs)
      node.references.import_from(ref.object, owner_index(node, ref.owner), by);
    node.references.ready_from_owner(owner, ready.object, ready.value, {});
  }
  ObjectId served(const Node& node, ObjectId object) const {
    return node.references.value_of(object) == nullptr ? wire::original_of(object) : object;
  }
  void read(Node& node, std::size_t from) {
    const Message message = std::move(node.links[from].front());
    node.links[from].pop_front();
    const Index sender = index_of(from);
    if (const auto* frame = std::get_if<Frame>(&message)) {
      for (const wire::OwnedRef& ref : frame->refs)
        node.references.import_from(ref.object, owner_index(node, ref.owner), sender);
      for (const wire::OwnedRef& ref : frame->refs) {
        node.references.hold(ref.object, kProcess, +1);
        adopt(node, ref.object);
      }
      return;
    }
    on_peer(node, from, std::get<wire::PeerMessage>(message));
  }
  void on_peer(Node& node, std::size_t from, const wire::PeerMessage& message) {
    const Index sender = index_of(from);
    if (const auto* hold = std::get_if<wire::PeerHold>(&message)) {
      node.references.peer_hold(sender, hold->object, owner_index(node, hold->holder), hold->delta);
    } else if (const auto* await = std::get_if<wire::PeerAwait>(&message)) {
      if (wire::is_copy(await->object))
        node.replicas.on_await(id_of(from), await->object);
      else
        node.references.await(await->object, sender, false);
    } else if (const auto* rebuild = std::get_if<wire::PeerRebuild>(&message)) {
      node.references.rebuild(rebuild->object, sender, rebuild->lost);
    } else if (const auto* ready = std::get_if<wire::PeerReady>(&message)) {
      const bool found = ready->value.kind != Kind::error;
      const auto owner = node.replicas.answered(id_of(from), ready->object, found);
      seen_.found += owner ? 1 : 0;
      take_value(node, owner.value_or(sender), sender, *ready);
    } else if (const auto* request = std::get_if<wire::PullRequest>(&message)) {
      const wire::Value* value = node.references.value_of(served(node, request->object));
      if (value != nullptr && value->kind == Kind::shared)
        send(node, from, wire::PeerMessage(wire::PullData{0, 0, request->object.low}));
      else
        send(node, from, wire::PeerMessage(wire::PullRefused{request->object.low, {}}));
      pull_ids_[request->object.low] = request->object;
    } else if (const auto* data = std::get_if<wire::PullData>(&message)) {
      const ObjectId object = pull_ids_.at(data->bytes);
      if (node.pulling.erase(object) == 0) return;
      const bool ours = node.replicas.pulled(object, id_of(from));
      node.references.pulled(ours ? wire::original_of(object) : object, new_bytes(node, object));
    } else if (const auto* refused = std::get_if<wire::PullRefused>(&message)) {
      pull_failed(node, pull_ids_.at(refused->transfer), from);
    } else if (const auto* keep = std::get_if<wire::PeerKeep>(&message)) {
      node.replicas.on_keep(id_of(from), *keep, now_);
    } else if (const auto* kept = std::get_if<wire::PeerKept>(&message)) {
      const bool again = !kept->error && put_.count(kept->object) != 0;
      seen_.restored += again ? 1 : 0;
      seen_.repaired += again && owner_of(kept->object) != node.self ? 1 : 0;
      node.replicas.on_kept(id_of(from), *kept);
    } else if (const auto* find = std::get_if<wire::PeerFind>(&message)) {
      node.replicas.on_find(id_of(from), find->object);
    } else if (const auto* held = std::get_if<wire::PeerHeld>(&message)) {
      node.replicas.on_held(id_of(from), *held);
    } else if (const auto* unused = std::get_if<wire::PeerUnused>(&message)) {
      node.replicas.on_unused(id_of(from), *unused, now_);
    } else if (const auto* keeping = std::get_if<wire::PeerKeeping>(&message)) {
      node.replicas.on_keeping(id_of(from), *keeping);
    }
  }
  void pull_failed(Node& node, ObjectId object, std::size_t from) {
    if (node.pulling.erase(object) == 0) return;
    const bool dead = node.known_dead.count(from) != 0;
    const Error why(dead ? Code::unavailable : Code::object_lost, "not here");
    if (!node.replicas.pull_failed(object, id_of(from), why))
      node.references.pull_failed(object, why);
  }
  void agent_move(Node& node, bool calm) {
    if (!node.alive) return;
    for (std::size_t from = 0; from < nodes_.size(); ++from) {
      if (!nodes_[from]->alive && node.known_dead.count(from) == 0 &&
          (calm || random_.chance(notices_)))
        notice(node, from);
      while (!node.links[from].empty() && (calm || random_.chance(node.speed[from])))
        read(node, from);
    }
    if (names_) names_->move(node.self, calm);
    for (const ObjectId object : std::exchange(node.failed_, {}))
      if (const auto at = node.pulling.find(object); at != node.pulling.end())
        pull_failed(node, object, at->second);
    for (const ObjectId id : std::exchange(node.returned, {}))
      node.references.hold(id, wire::is_copy(id) ? agent::kSelf : kProcess, -1);
    if (calm || random_.chance(0.7)) node.replicas.carry_out(now_);
    if (calm || random_.chance(0.5)) node.references.settle();
  }
  void notice(Node& node, std::size_t dead) {
    node.known_dead.insert(dead);
    node.links[dead].clear();
    if (names_) names_->noticed(node.self);
    std::vector<ObjectId> over;
    for (const auto& [object, from] : node.pulling)
      if (from == dead) over.push_back(object);
    const Error why(Code::unavailable, "the node died");
    const bool transfers_first = random_.chance(0.5);
    if (!transfers_first) {
      node.references.node_died(index_of(dead), why);
      node.replicas.node_died(id_of(dead), now_);
    }
    for (const ObjectId object : over) pull_failed(node, object, dead);
    if (transfers_first) {
      node.references.node_died(index_of(dead), why);
      node.replicas.node_died(id_of(dead), now_);
    }
  }
  void kill(Node& node) {
    --deaths_;
    ++dead_;
    ++seen_.deaths;
    node.alive = false;
    if (names_) {  // an object is released with its keeper's name while its owner lives
      names_->died(node.self);
      for (const auto& [name, what] : names_->all())
        if (what.keeper == id_of(node.self) && what.owner != what.keeper) excuse(what.object);
    }
    node.references.each([&](const agent::ReferenceTable::Seen& seen) {
      const bool passed_on = std::any_of(seen.holders.begin(), seen.holders.end(),
                                         [](const auto& one) { return one.first >= kNodes; });
      if (seen.owner != agent::kSelf && passed_on) may_excuse_.insert(seen.object);
    });
    for (auto& other : nodes_) {  // some of its last messages still arrive
      auto& link = other->links[node.self];
      if (!link.empty()) link.resize(random_.below(link.size() + 1));
      // A ref on its way to its owner is counted only by its sender.
      for (const Message& message : link)
        if (const auto* frame = std::get_if<Frame>(&message))
          for (const wire::OwnedRef& ref : frame->refs)
            if (node_of(ref.owner) == other->self) may_excuse_.insert(ref.object);
    }
  }

  void on_free(Node& node, std::uint64_t number) {
    if (const auto lent = node.lent.find(number); lent != node.lent.end()) {
      if (lent->second.second-- > 0) return node.returned.push_back(lent->second.first);
      node.lent.erase(lent);
    }
    const auto gone = node.bytes.extract(number);
    if (!gone) return fail("bytes were freed twice");
    const ObjectId object = gone.mapped();
    if (node.self == owner_of(object) && may_excuse_.count(object) != 0) ended_.insert(object);
    for (const auto& other : nodes_)
      if (other->alive)
        for (const auto& [one, whose] : other->bytes)
          if (whose == object) return;
    if (put_.count(object) == 0 || !named_anywhere(object)) return;
    const bool excused = nodes_[owner_of(object)]->alive && may_excuse_.count(object) != 0;
    if (excused || ended_.count(object) != 0 || excused_.count(object) != 0) return;
    fail("object " + std::to_string(object.low & 0xffff) + " is in use");
  }
  bool named_anywhere(ObjectId id) const {
    if (names_ && names_->has(id)) return true;
    for (const auto& node : nodes_) {
      if (!node->alive) continue;
      if (node->table.count(id) != 0) return true;
      for (const auto& link : node->links)
        for (const Message& message : link)
          if (const auto* frame = std::get_if<Frame>(&message))
            for (const wire::OwnedRef& ref : frame->refs)
              if (ref.object == id) return true;
    }
    return false;
  }

  void step() {
    now_ += std::chrono::milliseconds(random_.below(60));
    Node& node = *nodes_[random_.below(nodes_.size())];
    if (!node.alive) return;
    if (deaths_ == 0 && dead_ > 0 && dead_ + 2 < nodes_.size() && random_.chance(0.02) &&
        are_noticed() && is_whole())
      deaths_ = 1;
    if (deaths_ > 0 && random_.chance(0.008)) return kill(node);
    if (random_.chance(0.5))
      agent_move(node, false);
    else
      act(node);
  }

  /// Returns whether each known object has as many copies as if no node had died.
  bool is_whole() const {
    const std::size_t most = std::min<std::size_t>(copies_, nodes_.size() - dead_);
    return std::all_of(put_.begin(), put_.end(), [&](const ObjectId id) {
      return may_excuse_.count(id) != 0 || !is_known(id) || holders_of(id) >= most;
    });
  }
  /// Returns whether every node knows of every death. Messages of dead nodes are not read after
  /// that.
  bool are_noticed() const {
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
      return !node->alive || node->known_dead.size() == dead_;
    });
  }
  /// Returns whether the object can be named by a process, or by a record as part of a value.
  bool is_known(ObjectId id) const {
    return named_anywhere(id) || std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
             return node->alive && node->references.knows(id);
           });
  }
  std::size_t holders_of(ObjectId id) const {
    return static_cast<std::size_t>(
        std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& node) {
          if (!node->alive) return false;
          const ObjectId as = node->self == owner_of(id) ? id : wire::copy_of(id);
          const wire::Value* value = node->references.value_of(as);
          return value != nullptr && value->kind != Kind::error && value->kind != Kind::remote;
        }));
  }

  // --- the end: no more faults

  void round(bool let_go) {
    now_ += std::chrono::milliseconds(100);
    for (auto& node : nodes_) {
      if (!node->alive) continue;
      agent_move(*node, true);
      while (take_answer(*node)) {
      }
      std::vector<ObjectId> ids;
      for (const auto& [id, entry] : node->table) ids.push_back(id);
      for (const ObjectId id : ids) {
        if (let_go)
          drop(*node, id);
        else
          await(*node, id, true);
      }
    }
  }
  void end() {
    // Most nodes learn of a death at once. A search for a copy that is gone ends after ten
    // seconds.
    for (int i = 0; i < 60 || (i < 150 && (is_waiting() || !is_whole())); ++i)
      if (broken_.empty()) round(false);
    for (auto& node : nodes_) {
      if (!node->alive) continue;
      if (!node->puts.empty()) fail("a put was not answered");
      for (const auto& [id, entry] : node->table)
        if (!entry.ready) fail("an await was not answered");
      seen_.orphans += node->replicas.kept();
      if (node->replicas.repairing() != 0) fail("a copy is still being made");
    }
    if (broken_.empty() && !is_whole()) fail("there are too few copies");
    for (int i = 0; i < 400 && broken_.empty() && !is_empty(); ++i) {
      if (names_) forget_all();
      round(true);
    }
    for (auto& node : nodes_)
      if (node->alive && broken_.empty()) check_empty(*node);
  }
  /// Removes all names, on behalf of any node that is alive.
  void forget_all() {
    const auto alive =
        std::find_if(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->alive; });
    for (const auto& [name, what] : std::map(names_->all())) {
      ++seen_.named;
      names_->forget((*alive)->self, what.object);
    }
  }
  bool is_waiting() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
      return node->alive && (node->replicas.repairing() != 0 ||
                             std::any_of(node->table.begin(), node->table.end(),
                                         [](const auto& one) { return !one.second.ready; }));
    });
  }
  bool is_empty() const {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
      return !node->alive || (node->references.size() == 0 && node->bytes.empty() &&
                              node->replicas.searches() == 0);
    });
  }
  void check_empty(Node& node) {
    if (node.references.total_holds() != 0) return fail("counts are left");
    if (node.replicas.kept() != 0) return fail("a copy is left");
    if (node.references.size() != 0)
      return fail(std::to_string(node.references.size()) + " records left");
    if (!node.bytes.empty()) return fail("bytes are left");
    if (node.replicas.owned() != 0) return fail("an object with copies is left");
    if (node.replicas.searches() != 0) return fail("a search is left");
    if (!node.pulling.empty()) return fail("a pull is left");
  }
  void fail(const std::string& why) {
    if (broken_.empty()) broken_ = why;
  }

  Random random_;
  Duration repair_after_ = (random_.chance(0.5) ? 3 : 30) * kRound;
  double notices_ = 0;
  bool restless_ = false;  ///< few objects, whose refs are passed on and dropped all the time
  std::uint64_t copies_ = 2, deaths_ = 0, dead_ = 0;
  Time now_{std::chrono::seconds(1)};
  std::vector<std::unique_ptr<Node>> nodes_;
  std::set<ObjectId> put_;  ///< whose put was acknowledged to its process
  std::map<std::uint64_t, ObjectId> pull_ids_;
  /// Objects that a dead node passed on, and whose owner may not have known. They may be lost.
  std::set<ObjectId> may_excuse_;
  std::set<ObjectId> excused_;  ///< lost their name while a process may have found it
  std::set<ObjectId> ended_;    ///< of those, released by their owners: all copies go
  std::unique_ptr<PlayedNames> names_;
  std::uint64_t last_ = 0, bytes_ = 0, requests_ = 0;
  Seen seen_;
  std::string broken_;
};

}  // namespace troupe::simulation
