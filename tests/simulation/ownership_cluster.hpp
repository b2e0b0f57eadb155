/// Simulates the reference protocol of a cluster in one thread. Each node has a ReferenceTable
/// and processes. Rings and proxy channels are read in any order. FIFO links of different speed
/// connect the nodes. Values are pulled, and processes and whole nodes die, driven by a seed.
///
///     OwnershipCluster world(seed);
///     world.run();
///     EXPECT_EQ(world.broken(), "");
///
/// The world checks:
/// - An object or copy that somebody can still name is not freed. The exception is a ref whose only
///   sender died before the owner knew of the receiver.
/// - No process is told that an object is lost which is not lost.
/// - Every Await is answered, once, within a bounded number of rounds after the last fault.
/// - When an object is forwarded to a lost one, the process that misses its value gets a new value
///   or an error, once. It gets no error while a process knows the call that made the object, even
///   a process that took the call over from a dead one.
/// - When every handle is dropped, no record, count, call or byte is left.
#pragma once

#include "ownership_cluster_types.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

class OwnershipCluster final {
 public:
  explicit OwnershipCluster(std::uint64_t seed) : random_(seed), kept_random_(~seed) {
    const auto count = 3 + random_.below(2);
    for (std::size_t n = 0; n < count; ++n) nodes_.push_back(std::make_unique<Node>(*this, n));
    for (auto& node : nodes_) {
      node->processes.resize(2 + random_.below(2));
      node->until_clean = random_.chance(0.5);
      node->links.resize(count);
      node->speed.resize(count);
      for (std::size_t other = 0; other < count; ++other) {
        node->speed[other] = random_.chance(0.3) ? 0.05 : 0.9;
        if (other != node->self) node->references.add_node(index_of(other));
      }
    }
    travels_ = random_.chance(0.5) ? 0.3 : 0.9;
    notices_ = random_.chance(0.5) ? 0.1 : 0.8;
    process_deaths_ = random_.chance(0.4);
    recompute_is_needed_ = kept_random_.chance(0.2);
    node_deaths_ = random_.chance(0.6) ? 1 + random_.below(count - 2) : 0;
  }

  void run() {
    const auto steps = 150 + random_.below(350);
    for (std::uint64_t i = 0; i < steps && broken_.empty(); ++i) step();
    if (broken_.empty()) end();
  }
  const std::string& broken() const { return broken_; }
  using Seen = cluster::Seen;
  const Seen& seen() const { return seen_; }

 private:
  using Index = ProcessIndex;
  using Kind = wire::Value::Kind;
  static constexpr std::uint64_t kNodes = 100;  // node n has index kNodes + n; processes start at 1
  static Index index_of(std::size_t node) { return Index::of(kNodes + node); }
  static std::size_t node_of(Index index) { return index.value - kNodes; }

  using Who = cluster::Who;
  using Entry = cluster::Entry;
  using ToAgent = cluster::ToAgent;
  using FromAgent = cluster::FromAgent;
  using Process = cluster::Process;
  using Owned = cluster::Owned;
  using Peer = cluster::Peer;
  enum class Phase { scan, settle, poll };
  using Call = cluster::Call;
  static constexpr JobNumber kJob = 1;
  struct Node final : agent::ReferenceTable::Out, agent::LineageCache::Out {
    Node(OwnershipCluster& w, std::size_t n) : world(w), self(n) {}
    OwnershipCluster& world;
    std::size_t self;
    bool alive = true, until_clean = false;
    agent::ReferenceTable references{*this};
    agent::LineageCache kept{references, *this, Bytes{1 << 30}};
    bool wants_recompute = false;         // and no process could compute it
    std::vector<Process> processes;       // index 1 is processes[0]
    std::vector<std::deque<Peer>> links;  // from each other node, in order
    std::vector<double> speed;
    std::set<std::size_t> known_dead;
    Phase phase = Phase::poll;
    std::vector<Index> unscanned;
    std::set<ObjectId> pulling;                          // the table of running transfers
    std::set<std::pair<ObjectId, std::uint64_t>> used;   // copies that a process was told of
    std::set<std::pair<ObjectId, std::uint64_t>> bytes;  // object, copy (0: the first)

    Process& process(Index p) { return processes.at(p.value - 1); }
    void ready(Index p, ObjectId object, const wire::Value& value, BlobView) override {
      world.on_ready(*this, p, object, value);
    }
    void free(const wire::Location& location) override { world.on_free(*this, location); }
    void unreferenced(ActorId) override { world.fail("there are no actors here"); }
    void peer_hold(Index to, ObjectId object, Index holder, std::int32_t delta) override {
      Peer m{Peer::Kind::hold, {}, {}, {}, object, 0, delta, {}};
      m.holder = holder == agent::kSelf ? self : node_of(holder);
      world.send(*this, node_of(to), m);
    }
    void peer_await(Index owner, ObjectId object) override {
      world.send(*this, node_of(owner), {Peer::Kind::await, {}, {}, {}, object, 0, 0, {}});
    }
    void pull(Index owner, ObjectId object, std::uint64_t) override {
      ++world.seen_.pulls;
      if (pulling.insert(object).second)
        world.send(*this, node_of(owner), {Peer::Kind::pull, {}, {}, {}, object, 0, 0, {}});
    }
    void rebuild(Index maker, ObjectId object, ObjectId lost) override {
      say(maker, {FromAgent::Kind::rebuild, object, {}, lost});
    }
    void say(Index p, FromAgent message) {
      if (process(p).alive) process(p).agent.push_back(std::move(message));
    }
    void lineage_over(Index maker, ObjectId object) override {
      if (maker == agent::kSelf) return kept.released(object);
      say(maker, {FromAgent::Kind::over, object, {}});
    }
    void orphaned(ObjectId object, ObjectId lost) override { kept.orphaned(object, lost); }
    std::optional<Index> find_process(JobNumber) override {
      const std::optional<Index> found = world.somebody(*this);
      wants_recompute = wants_recompute || !found;
      return found;
    }
    void send(Index to, const wire::NodeMessage& message, BlobView) override {
      if (const auto* call = std::get_if<wire::KeptCall>(&message)) {
        FromAgent m{FromAgent::Kind::call, {}, {}};
        m.call = std::make_shared<const wire::KeptCall>(*call);
        say(to, std::move(m));
      } else if (const auto* made = std::get_if<wire::MadeBy>(&message)) {
        FromAgent m{FromAgent::Kind::made, made->object, {}};
        m.number = made->call;
        say(to, std::move(m));
      } else if (const auto* rebuild = std::get_if<wire::Rebuild>(&message)) {
        this->rebuild(to, rebuild->object, rebuild->lost);
      }
    }
    void peer_rebuild(Index owner, ObjectId object, ObjectId lost) override {
      Peer m{Peer::Kind::rebuild, {}, {}, {}, object, 0, 0, {}};
      m.lost = lost;
      world.send(*this, node_of(owner), m);
    }
  };
  static std::size_t owner_of(ObjectId id) { return id.high / 16; }
  static Index creator_of(ObjectId id) { return Index::of(id.high % 16); }
  Process& at(Who who) { return nodes_[who.node]->process(who.process); }

  // --- a process

  void tell(Who p, ToAgent message) { at(p).ring.push_back(std::move(message)); }
  void hold(Who p, ObjectId id, Index with, std::int32_t delta) {
    tell(p, {ToAgent::Kind::hold, id, {}, with, delta, false});
  }
  void release(Who p, ObjectId id) {
    Process& self = at(p);
    const auto found = self.table.find(id);
    if (--found->second.handles != 0) return;
    const Entry gone = found->second;
    self.table.erase(found);
    if (gone.promoted) hold(p, id, p.process, -1);
    for (const ObjectId inner : gone.nested) release(p, inner);
  }
  wire::Value value_of(Who p, ObjectId id) {
    wire::Value value;
    const Entry entry = at(p).table.at(id);
    if (!entry.ready) return value;
    if (entry.forward) {
      value.kind = Kind::forwarded;
      value.forward = entry.nested.front();
    } else {
      value.kind = entry.large ? Kind::shared : Kind::inline_bytes;
      value.location.offset = id.low;
      value.refs = entry.nested;
    }
    for (const ObjectId inner : entry.nested) promote(p, inner);
    return value;
  }
  void promote(Who p, ObjectId id) {
    Entry& entry = at(p).table.at(id);
    if (std::exchange(entry.promoted, true)) return;
    tell(p, {ToAgent::Kind::promote, id, value_of(p, id), p.process, 0, false});
    if (!entry.mine) outlive(p, id);
  }
  void share(Who p, ObjectId id, Index with) {
    promote(p, id);
    hold(p, id, with, +1);
  }
  void adopt(Who p, ObjectId id) {
    Entry& entry = at(p).table[id];
    if (entry.handles++ == 0)
      entry.promoted = true;
    else
      hold(p, id, p.process, -1);
  }
  void fill(Who p, ObjectId id) {
    Process& self = at(p);
    std::vector<ObjectId> nested;
    // A recompute target is younger than the objects that could name it.
    const bool alone = self.user.empty() || self.table.at(id).recompute_target;
    for (auto n = alone ? 0 : random_.below(3); n > 0; --n) {
      const ObjectId inner = self.user[random_.below(self.user.size())];
      if (inner.low >= id.low) continue;  // no cycles: a ref is older than what holds it
      nested.push_back(inner);
      ++self.table.at(inner).handles;
    }
    Entry& entry = self.table.at(id);
    entry.forward = nested.size() == 1 && random_.chance(0.8);
    entry.large = random_.chance(0.6);
    entry.nested = std::move(nested);
    entry.ready = true;
    filled_.insert(id);
  }
  void create(Who p) {
    const ObjectId id{p.node * 16 + p.process.value, ++last_};
    Entry& entry = at(p).table[id];
    entry.handles = 1;
    at(p).user.push_back(id);
    if (random_.chance(0.6)) return fill(p, id);
    entry.mine = true;
    ++entry.handles;  // handle of the task that will make it
  }
  bool fulfil_one(Who p) {
    for (const auto& [key, entry] : at(p).table) {
      if (!entry.mine) continue;
      const ObjectId id = key;
      fill(p, id);
      Entry& filled = at(p).table.at(id);
      filled.mine = false;
      const bool promoted = filled.promoted;
      if (promoted) tell(p, {ToAgent::Kind::fulfil, id, value_of(p, id), 0, 0, false});
      if (promoted) outlive(p, id);
      release(p, id);
      return true;
    }
    return false;
  }
  void begin_send(Who p) {
    Process& self = at(p);
    if (self.user.empty()) return;
    const std::size_t node = random_.chance(0.3) ? p.node : random_.below(nodes_.size());
    const Who to{node, Index::of(1 + random_.below(nodes_[node]->processes.size()))};
    if (to == p) return;
    self.sending_to = to;
    for (auto n = 1 + random_.below(3); n > 0; --n)
      self.sending.push_back(self.user[random_.below(self.user.size())]);
    for (const ObjectId id : self.sending) {
      ++self.table.at(id).handles;  // the message holds them until it is sent
      share(p, id, to.node == p.node ? to.process : index_of(to.node));
    }
  }
  void finish_send(Who p) {
    Process& self = at(p);
    const Who to = self.sending_to;
    const std::vector<ObjectId> sent = std::exchange(self.sending, {});
    if (to.node != p.node)
      self.proxies[to].push_back(sent);
    else if (at(to).alive)
      at(to).inbox[p].push_back(sent);
    for (const ObjectId id : sent) release(p, id);
    if (random_.chance(travels_)) drop(p, sent.front());
  }
  bool receive(Who p) {
    std::vector<Who> full;
    for (const auto& [from, queue] : at(p).inbox)
      if (!queue.empty()) full.push_back(from);
    if (full.empty()) return false;
    auto& queue = at(p).inbox[full[random_.below(full.size())]];
    const std::vector<ObjectId> ids = queue.front();
    queue.pop_front();
    for (const ObjectId id : ids) {
      adopt(p, id);
      at(p).user.push_back(id);
      if (owner_of(id) == p.node && creator_of(id) != p.process) ++seen_.came_home;
    }
    return true;
  }
  void await(Who p, ObjectId id, bool fetch) {
    Process& self = at(p);
    Entry& entry = self.table.at(id);
    if (!entry.promoted || entry.ready || entry.mine || entry.awaited || (entry.remote && !fetch))
      return;
    entry.awaited = true;
    ++self.awaits[id];
    tell(p, {ToAgent::Kind::await, id, {}, 0, 0, fetch});
  }
  bool take_ready(Who p) {
    Process& self = at(p);
    if (self.agent.empty()) return false;
    const FromAgent message = self.agent.front();
    self.agent.pop_front();
    if (message.kind != FromAgent::Kind::value) return take_order(p, message);
    std::vector<ObjectId> inner;
    wire::for_each_ref(message.value, [&](ObjectId id) { inner.push_back(id); });
    const auto found = self.table.find(message.object);
    // The handle is gone, or it was dropped and the ref came back. In the second case the earlier
    // Await has been answered too.
    if (found == self.table.end() || (found->second.ready && !found->second.asked)) {
      for (const ObjectId id : inner) hold(p, id, p.process, -1);
      return true;
    }
    Entry& entry = found->second;
    if (message.value.kind == Kind::error) judge_loss(message.object);
    entry.awaited = entry.asked = false;
    if (message.value.kind == Kind::remote) return entry.remote = true;
    entry.ready = true;
    entry.lost = message.value.kind == Kind::error;
    const std::vector<ObjectId> before = std::exchange(entry.nested, inner);
    entry.forward = message.value.kind == Kind::forwarded;
    const bool forward = entry.forward;
    for (const ObjectId id : inner) adopt(p, id);
    for (const ObjectId id : before) release(p, id);
    if (forward) await(p, message.value.forward, true);
    return true;
  }
  /// Asks for another value of an object that is forwarded to a lost object, or to one of which
  /// only a bad copy exists.
  void miss(Who p, bool bad_copy) {
    Process& self = at(p);
    for (auto& [id, entry] : self.table) {
      if (!entry.ready || !entry.forward || entry.asked || !entry.promoted) continue;
      const auto source = self.table.find(entry.nested.front());
      if (source == self.table.end() || !(bad_copy || source->second.lost)) continue;
      ++seen_.missed;
      ++self.awaits[id];
      entry.asked = true;
      asked_.insert(id);
      ToAgent question{ToAgent::Kind::rebuild, id, {}, 0, 0, true};
      question.lost = entry.nested.front();
      return tell(p, question);
    }
  }
  /// Answers the agent's Rebuild of an object that this process made: with one more run, or with
  /// an error when no retry is left.
  bool compute_again(Who p, ObjectId id, ObjectId lost) {
    ToAgent answer{ToAgent::Kind::rebuilt, id, {}, 0, 0, false};
    const auto target = recompute_targets_.find(id);
    if (target != recompute_targets_.end() && target->second != lost)
      return true;  // this was answered before
    if (target != recompute_targets_.end() || random_.chance(0.2)) {
      refused_.insert(id);
      answer.value.kind = Kind::error;
      answer.value.error = Error(Code::object_lost, "no retry is left").shared_info();
      tell(p, answer);
      return true;
    }
    ++seen_.rebuilt;
    make_recompute_target(p, id, answer);
    return true;
  }
  void make_recompute_target(Who p, ObjectId id, ToAgent answer) {
    const ObjectId made{p.node * 16 + p.process.value, ++last_};
    recompute_targets_[id] = made;
    Entry& entry = at(p).table[made];
    entry.handles = 1;
    entry.recompute_target = true;
    entry.mine = random_.chance(0.5);
    if (entry.mine)
      ++entry.handles;
    else
      entry.ready = entry.large = filled_.insert(made).second;
    answer.value.kind = Kind::forwarded;
    answer.value.forward = made;
    promote(p, made);
    tell(p, answer);
    release(p, made);
  }
  /// Tells the agent the call that made the object, so that it can be computed after this process
  /// has died. Its arguments come from other processes or from earlier calls.
  void outlive(Who p, ObjectId id) {
    Process& self = at(p);
    if (!self.table.at(id).forward || !kept_random_.chance(0.7)) return;
    wire::KeptCall call;
    call.number = p.process.value << 32 | ++self.told;
    call.retries_left = -1;
    for (auto n = kept_random_.below(3); n > 0; --n) {
      wire::Value argument;
      argument.kind = Kind::forwarded;
      // An argument is older than the result of its call.
      if (!self.calls.empty() && kept_random_.chance(0.6)) {
        auto earlier = self.calls.begin();
        std::advance(earlier, kept_random_.below(self.calls.size()));
        if (earlier->second.made == 0 || earlier->second.made >= id.low) continue;
        argument.forward = {earlier->first, 0};
        call.made.push_back(static_cast<std::uint32_t>(call.call.arguments.size()));
      } else if (!self.user.empty()) {
        argument.forward = self.user[kept_random_.below(self.user.size())];
        if (argument.forward.low >= id.low) continue;
        promote(p, argument.forward);
      } else {
        continue;
      }
      call.call.arguments.push_back(std::move(argument));
    }
    ToAgent keep{ToAgent::Kind::keep, {}, {}};
    keep.call = std::make_shared<const wire::KeptCall>(std::move(call));
    self.calls[keep.call->number].made = id.low;
    tell(p, keep);
    ToAgent made{ToAgent::Kind::made, id, {}};
    made.number = keep.call->number;
    tell(p, made);
    kept_ids_.insert(id);
  }
  /// Handles a message of the agent: to compute a value again, or to take over a call for that.
  bool take_order(Who p, const FromAgent& message) {
    Process& self = at(p);
    switch (message.kind) {
      case FromAgent::Kind::rebuild:
        if (!message.lost) fail("nobody knows what was lost");
        if (Index(creator_of(message.object)) == p.process && owner_of(message.object) == p.node)
          return compute_again(p, message.object, message.lost);
        return compute_for_another(p, message.object);
      case FromAgent::Kind::made:
        self.calls[message.number].objects.insert(message.object);
        return true;
      case FromAgent::Kind::over:
        for (auto& [number, call] : self.calls) call.objects.erase(message.object);
        return true;
      case FromAgent::Kind::call: break;
      case FromAgent::Kind::value: return false;
    }
    const bool fresh = self.calls.count(message.call->number) == 0;
    wire::each_id(*message.call, [&](ObjectId id, std::size_t, bool made) {
      if (made && self.calls.count(id.high) == 0) fail("a call came before one that it needs");
      if (made) return;
      adopt(p, id);
      if (fresh)
        self.calls[message.call->number].held.push_back(id);
      else
        release(p, id);
    });
    if (fresh) self.calls[message.call->number].taken = true;
    return true;
  }
  bool compute_for_another(Who p, ObjectId id) {
    std::uint64_t number = 0;
    for (const auto& [n, call] : at(p).calls)
      if (call.objects.count(id) != 0) number = n;
    if (number == 0) return fail("it is asked for what it has not taken over"), true;
    ToAgent answer{ToAgent::Kind::rebuilt, id, {}, 0, 0, false};
    if (kept_random_.chance(0.1)) {
      refused_.insert(id);
      answer.value.kind = Kind::error;
      answer.value.error = Error(Code::object_lost, "no retry is left").shared_info();
      tell(p, answer);
      return true;
    }
    ++seen_.entrusted;
    make_recompute_target(p, id, answer);
    return true;
  }
  /// Tells the agent that this process will not name some of its calls any more, or none of them.
  void forget_calls(Who p, bool all) {
    Process& self = at(p);
    for (auto call = self.calls.begin(); call != self.calls.end();) {
      const bool needed = call->second.taken && !call->second.objects.empty();
      if (needed || (!all && kept_random_.chance(0.7))) {
        ++call;
        continue;
      }
      ToAgent forget{ToAgent::Kind::forget, {}, {}};
      forget.number = call->first;
      const std::vector<ObjectId> held = call->second.held;
      call = self.calls.erase(call);
      tell(p, forget);
      for (const ObjectId id : held) release(p, id);
    }
  }
  std::optional<Index> somebody(Node& node) {
    std::vector<Index> able;
    for (Index p = 1; p.value <= node.processes.size(); ++p)
      if (!node.process(p).doomed && !node.process(p).buried) able.push_back(p);
    if (able.empty()) return std::nullopt;
    return able[kept_random_.below(able.size())];
  }
  /// The program takes a ref out of a value.
  void unwrap(Who p) {
    Process& self = at(p);
    if (self.user.empty()) return;
    const Entry& entry = self.table.at(self.user[random_.below(self.user.size())]);
    if (!entry.ready || entry.nested.empty()) return;
    const ObjectId inner = entry.nested[random_.below(entry.nested.size())];
    ++self.table.at(inner).handles;
    self.user.push_back(inner);
  }
  void drop(Who p) {
    if (!at(p).user.empty()) drop(p, at(p).user[random_.below(at(p).user.size())]);
  }
  /// The program drops every handle that it has of the object.
  void drop(Who p, ObjectId id) {
    for (auto left = std::erase(at(p).user, id); left > 0; --left) release(p, id);
  }
  static void die(Process& self) {
    self.alive = false;
    self.table.clear();
    self.user.clear();
    self.sending.clear();
    self.inbox.clear();
    self.agent.clear();
    self.calls.clear();
  }
  void act(Who p) {
    Process& self = at(p);
    if (!self.alive) return;
    if (!self.sending.empty()) {
      // A frame for another node may wait long for its proxy channel. A frame for this node is
      // sent at once.
      if (process_deaths_ && self.sending_to.node != p.node && random_.chance(0.1))
        return die(self);
      return finish_send(p);
    }
    if (recompute_is_needed_ && kept_random_.chance(0.15)) miss(p, true);
    if (recompute_is_needed_ && kept_random_.chance(0.01)) return die(self);
    const auto dice = random_.below(100);
    if (dice < 14) return create(p);
    if (dice < 38) return begin_send(p);
    if (dice < 58) return void(receive(p));
    if (dice < 68) return drop(p), drop(p);
    if (dice < 80) {
      if (!self.user.empty())
        await(p, self.user[random_.below(self.user.size())], random_.chance(0.6));
      return;
    }
    if (dice < 83) return miss(p, random_.chance(0.7));
    if (dice < 90) return void(take_ready(p));
    if (dice < 94) return forget_calls(p, false), unwrap(p);
    if (dice < 98) return void(fulfil_one(p));
    if (process_deaths_ && random_.chance(0.3)) die(self);
  }

  // --- an agent

  void send(Node& from, std::size_t to, const Peer& message) {
    if (nodes_[to]->alive && from.known_dead.count(to) == 0)
      nodes_[to]->links[from.self].push_back(message);
  }
  /// Notes that a ref leaves with a message from this node to another.
  Owned export_to(Node& node, ObjectId id, std::size_t owner, std::size_t to) {
    if (owner != node.self && owner != to) {
      ++seen_.passed_on;
      ++under_way_[{id, node.self, to}];
      if (random_.chance(0.3)) marked_ = node.self;
    }
    if (owner != owner_of(id)) fail("a ref goes out with a wrong owner");
    return {id, owner};
  }
  std::size_t node_at(const Node& node, Index owner) const {
    return owner == agent::kSelf ? node.self : node_of(owner);
  }
  void read_one(Node& node, Index p) {
    const ToAgent m = node.process(p).ring.front();
    node.process(p).ring.pop_front();
    if (m.value.kind == Kind::shared) node.bytes.insert({m.object, 0});
    switch (m.kind) {
      case ToAgent::Kind::promote: node.references.promote(p, m.object, m.value, {}); break;
      case ToAgent::Kind::fulfil: node.references.fulfil(m.object, m.value, {}); break;
      case ToAgent::Kind::hold: node.references.hold(m.object, m.process, m.delta, p); break;
      case ToAgent::Kind::await: node.references.await(m.object, p, m.fetch); break;
      case ToAgent::Kind::rebuild: node.references.rebuild(m.object, p, m.lost); break;
      case ToAgent::Kind::rebuilt: node.references.rebuilt(p, m.object, m.value, {}); break;
      case ToAgent::Kind::keep: node.kept.keep(p, kJob, *m.call, {}); break;
      case ToAgent::Kind::made: node.kept.made(p, {m.object, m.number, 0, -1}); break;
      case ToAgent::Kind::forget: node.kept.forget(p, m.number); break;
    }
  }
  void read_proxies(Node& node, Index p, bool all) {
    for (auto& [to, queue] : node.process(p).proxies) {
      if (!all && random_.chance(0.3)) continue;  // no credit for that process now
      while (!queue.empty()) {
        const std::vector<ObjectId> ids = queue.front();
        queue.pop_front();
        carry(node, {node.self, p}, to, ids);
      }
    }
  }
  void carry(Node& node, Who from, Who to, const std::vector<ObjectId>& ids) {
    Peer frame;
    frame.from = from;
    frame.to = to;
    const bool dropped = node.known_dead.count(to.node) != 0 ||
                         (node.process(from.process).doomed && random_.chance(0.3));
    for (const ObjectId id : ids) {
      if (dropped) {
        node.references.hold(id, index_of(to.node), -1, from.process);
        continue;
      }
      const Index owner = node.references.export_to(id, index_of(to.node), from.process);
      frame.refs.push_back(export_to(node, id, node_at(node, owner), to.node));
    }
    if (!dropped) send(node, to.node, frame);
  }
  void read_link(Node& node, std::size_t from) {
    const Peer m = node.links[from].front();
    node.links[from].pop_front();
    const Index sender = index_of(from);
    for (const Owned& ref : m.refs) {
      const bool ours = ref.owner == node.self;
      node.references.import_from(ref.object, ours ? agent::kSelf : index_of(ref.owner), sender);
    }
    switch (m.kind) {
      case Peer::Kind::frame: {
        Process& to = node.process(m.to.process);
        if (to.buried) return;
        std::vector<ObjectId> ids;
        for (const Owned& ref : m.refs) {
          node.references.hold(ref.object, m.to.process, +1);
          ids.push_back(ref.object);
        }
        if (to.alive) to.inbox[m.from].push_back(ids);
        return;
      }
      case Peer::Kind::hold: {
        if (m.holder != from && m.delta > 0) --under_way_[{m.object, m.holder, from}];
        const Index holder = m.holder == node.self ? agent::kSelf : index_of(m.holder);
        return node.references.peer_hold(sender, m.object, holder, m.delta);
      }
      case Peer::Kind::await: return node.references.await(m.object, sender);
      case Peer::Kind::rebuild: return node.references.rebuild(m.object, sender, m.lost);
      case Peer::Kind::ready:
        return node.references.ready_from_owner(sender, m.object, m.value, {});
      case Peer::Kind::pull: return serve_pull(node, from, m.object);
      case Peer::Kind::data: {
        node.pulling.erase(m.object);
        wire::Location copy;
        copy.offset = m.object.low;
        copy.generation = ++copies_;
        node.bytes.insert({m.object, copy.generation});
        return node.references.pulled(m.object, copy);
      }
      case Peer::Kind::refused:
        node.pulling.erase(m.object);
        return node.references.pull_failed(m.object, Error(Code::object_lost, "not here"));
    }
  }
  void serve_pull(Node& node, std::size_t to, ObjectId object) {
    const wire::Value* value = node.references.value_of(object);
    const bool here = value != nullptr && value->kind == Kind::shared;
    send(node, to, {here ? Peer::Kind::data : Peer::Kind::refused, {}, {}, {}, object, 0, 0, {}});
  }
  bool readable(Node& node, Index p) {
    return !node.process(p).doomed && !node.process(p).ring.empty();
  }
  void agent_move(Node& node, bool calm) {
    if (!node.alive) return;
    for (std::size_t other = 0; other < nodes_.size(); ++other) {
      if (!nodes_[other]->alive && (calm || random_.chance(notices_))) notice_node(node, other);
      if (!node.links[other].empty() && (calm || random_.chance(node.speed[other])))
        read_link(node, other);
    }
    switch (node.phase) {
      case Phase::scan: return scan(node, calm);
      case Phase::settle: {
        bool unread = false;
        for (const Process& process : node.processes) unread |= process.doomed;
        node.kept.carry_out();
        if (std::exchange(node.wants_recompute, false) && !nobody_is_left(node))
          node.wants_recompute = true;
        if (!unread) node.references.settle();
        node.phase = Phase::poll;
        return;
      }
      case Phase::poll:
        for (Index p = 1; p.value <= node.processes.size(); ++p) notice_death(node, p, calm);
        node.phase = Phase::scan;
        node.unscanned.clear();
        for (Index p = 1; p.value <= node.processes.size(); ++p) node.unscanned.push_back(p);
        return;
    }
  }
  /// Half of the nodes read until every ring is empty at one moment. The others read each ring
  /// once, in any order. Proxy channels are read before or after.
  void scan(Node& node, bool calm) {
    if (node.until_clean) {
      std::vector<Index> full;
      for (Index p = 1; p.value <= node.processes.size(); ++p)
        if (readable(node, p)) full.push_back(p);
      const Index any = Index::of(1 + random_.below(node.processes.size()));
      if (!node.process(any).doomed) read_proxies(node, any, calm);
      if (full.empty()) return void(node.phase = Phase::settle);
      return read_one(node, full[random_.below(full.size())]);
    }
    if (node.unscanned.empty()) return void(node.phase = Phase::settle);
    const auto which = random_.below(node.unscanned.size());
    const Index p = node.unscanned[which];
    node.unscanned.erase(node.unscanned.begin() + static_cast<std::ptrdiff_t>(which));
    if (node.process(p).doomed) return;
    const bool proxies_first = random_.chance(0.5);
    if (proxies_first) read_proxies(node, p, calm);
    while (readable(node, p)) read_one(node, p);
    if (!proxies_first) read_proxies(node, p, calm);
  }
  /// The connection of a dead process closes first, and the process is reaped later. Its rings
  /// are not read in between.
  void notice_death(Node& node, Index p, bool calm) {
    Process& process = node.process(p);
    if (process.alive || process.buried) return;
    if (!process.doomed && random_.chance(0.7)) return void(process.doomed = true);
    if (!calm && !random_.chance(0.4)) return;
    read_proxies(node, p, true);
    while (!process.ring.empty()) read_one(node, p);
    process.doomed = false;
    process.buried = true;
    node.references.process_died(p, Error(Code::worker_died, "killed"));
    node.kept.process_died(p);
  }
  /// Tells the waiting objects that no process is left that could take over a call.
  bool nobody_is_left(Node& node) {
    for (const Process& process : node.processes)
      if (!process.buried) return false;
    without_recompute_.insert(node.self);
    node.kept.job_over(kJob, "nobody is left");
    return true;
  }
  void kill_node(std::size_t which) {
    Node& node = *nodes_[which];
    if (!std::exchange(node.alive, false)) return;
    --node_deaths_;
    for (Process& process : node.processes) {
      die(process);
      process.ring.clear();
      process.proxies.clear();
    }
    for (auto& other : nodes_) {  // some of its last messages still arrive
      auto& link = other->links[which];
      if (!link.empty()) link.resize(random_.below(link.size() + 1));
    }
  }
  void notice_node(Node& node, std::size_t dead) {
    if (!node.known_dead.insert(dead).second) return;
    node.links[dead].clear();
    for (const auto& [ref, count] : under_way_)
      if (count > 0 && ref.by == dead && nodes_[ref.to]->alive && owner_of(ref.object) == node.self)
        seen_.excused += excused_.insert(ref.object).second ? 1 : 0;
    std::vector<ObjectId> over;
    for (const ObjectId object : node.pulling)
      if (owner_of(object) == dead) over.push_back(object);
    const Error why(Code::unavailable, "the node died");
    const bool transfers_first = random_.chance(0.5);
    if (!transfers_first) node.references.node_died(index_of(dead), why);
    for (const ObjectId object : over) {
      node.pulling.erase(object);
      node.references.pull_failed(object, why);
    }
    if (transfers_first) node.references.node_died(index_of(dead), why);
  }

  void on_ready(Node& node, Index p, ObjectId object, const wire::Value& value) {
    if (p >= kNodes) return answer_node(node, node_of(p), object, value);
    if (p == agent::kSelf || p.value > node.processes.size()) return fail("an answer to nobody");
    Process& process = node.process(p);
    if (++process.answers[object] > process.awaits[object]) fail("an await was answered twice");
    if (value.kind == Kind::shared) node.used.insert({object, value.location.generation});
    node.say(p, {FromAgent::Kind::value, object, value});
  }
  void answer_node(Node& node, std::size_t to, ObjectId object, const wire::Value& value) {
    Peer m;
    m.kind = Peer::Kind::ready;
    m.object = object;
    m.value = value;
    if (value.kind == Kind::shared) {
      m.value.kind = Kind::remote;
      m.value.location = {};
      m.value.remote_bytes = 10'000;
    }
    wire::for_each_ref(value, [&](ObjectId id) {
      const Index owner = node.references.owner_of(id).value_or(agent::kSelf);
      m.refs.push_back(export_to(node, id, node_at(node, owner), to));
      ++seen_.nested_remote;
    });
    send(node, to, m);
  }
  void judge_loss(ObjectId object) {
    ++seen_.lost;
    Node& owner = *nodes_[owner_of(object)];
    const bool maker_lives = owner.process(creator_of(object)).alive;
    const bool nobody =
        kept_ids_.count(object) == 0 || without_recompute_.count(owner_of(object)) != 0;
    const bool cannot =
        asked_.count(object) != 0 && ((!maker_lives && nobody) || refused_.count(object) != 0);
    const bool never_made = cannot || (filled_.count(object) == 0 && !maker_lives);
    if (owner.alive && !never_made) ++seen_.cut_off;
    if (owner.alive && !never_made && excused_.count(object) == 0)
      fail("a live object was lost: " + std::to_string(object.low));
  }
  void on_free(Node& node, const wire::Location& location) {
    ++seen_.frees;
    for (const auto& [object, copy] : node.bytes) {
      if (object.low != location.offset || copy != location.generation) continue;
      if (copy == 0 && named_anywhere(object) && excused_.count(object) == 0)
        fail("object " + std::to_string(object.low) + " is in use");
      if (copy != 0 && named_at(node, object) && node.used.count({object, copy}) != 0)
        fail("a copy of " + std::to_string(object.low) + " is in use");
      node.bytes.erase({object, copy});
      return;
    }
    fail("bytes were freed twice");
  }

  static bool names(const wire::Value& value, ObjectId id) {
    bool found = false;
    wire::for_each_ref(value, [&](ObjectId inner) { found = found || inner == id; });
    return found;
  }
  static bool names(const std::deque<std::vector<ObjectId>>& queue, ObjectId id) {
    for (const auto& ids : queue)
      for (const ObjectId one : ids)
        if (one == id) return true;
    return false;
  }
  /// Returns whether a process of this node has a handle, or a published message that will be
  /// read names the object.
  bool named_at(const Node& node, ObjectId id) const {
    for (const Process& process : node.processes) {
      for (const auto& m : process.ring)
        if (names(m.value, id)) return true;
      for (const auto& [to, queue] : process.proxies)
        if (process.alive && node.known_dead.count(to.node) == 0 && nodes_[to.node]->alive &&
            names(queue, id))
          return true;
      if (!process.alive) continue;
      if (process.table.count(id) != 0) return true;
      for (const auto& [from, queue] : process.inbox)
        if (names(queue, id)) return true;
      for (const auto& m : process.agent)
        if (names(m.value, id) || (m.call && names(*m.call, id))) return true;
    }
    return false;
  }
  static bool names(const wire::KeptCall& call, ObjectId id) {
    bool found = false;
    wire::each_id(
        call, [&](ObjectId one, std::size_t, bool made) { found = found || (one == id && !made); });
    return found;
  }
  bool named_anywhere(ObjectId id) const {
    for (const auto& node : nodes_) {
      if (!node->alive) continue;
      if (named_at(*node, id)) return true;
      for (const auto& link : node->links)
        for (const Peer& m : link)
          if (m.kind == Peer::Kind::frame && node->process(m.to.process).alive)
            for (const Owned& ref : m.refs)
              if (ref.object == id) return true;
    }
    return false;
  }

  void step() {
    Node& node = *nodes_[random_.below(nodes_.size())];
    if (node_deaths_ > 0 && random_.chance(0.006)) kill_node(node.self);
    if (node_deaths_ > 0 && marked_ && random_.chance(0.15)) kill_node(*std::exchange(marked_, {}));
    if (!node.alive) return;
    if (random_.chance(0.45))
      agent_move(node, false);
    else
      act({node.self, Index::of(1 + random_.below(node.processes.size()))});
  }

  // --- the end: no more faults

  template <class F>
  void for_each_process(F&& f) {
    for (auto& node : nodes_)
      for (Index p = 1; node->alive && p.value <= node->processes.size(); ++p)
        if (node->process(p).alive) f(Who{node->self, p});
  }
  bool round(bool let_go) {
    bool quiet = true;
    for_each_process([&](Who p) {
      Process& self = at(p);
      if (!self.sending.empty()) finish_send(p);
      while (receive(p) || take_ready(p) || fulfil_one(p)) quiet = false;
      std::vector<ObjectId> ids;
      for (const auto& [id, entry] : self.table) ids.push_back(id);
      for (const ObjectId id : ids) await(p, id, true);
      miss(p, false);
      while (let_go && !self.user.empty()) drop(p);
      if (let_go) forget_calls(p, true);
      if (!self.ring.empty()) quiet = false;
    });
    for (auto& node : nodes_) {
      for (int i = 0; i < 12; ++i) agent_move(*node, true);
      if (!node->alive) continue;
      for (const auto& link : node->links) quiet = quiet && link.empty();
    }
    return quiet;
  }
  void end() {
    int calm = 0;
    for (int rounds = 0; calm < 8 && broken_.empty(); ++rounds) {
      calm = round(false) ? calm + 1 : 0;
      if (rounds > 400) return fail("it does not come to rest");
    }
    for_each_process([&](Who p) { check_answers(p); });
    calm = 0;
    for (int rounds = 0; calm < 24 && broken_.empty(); ++rounds) {
      calm = round(true) ? calm + 1 : 0;
      if (rounds > 800) return fail("it does not come to rest when all is let go");
    }
    for (auto& node : nodes_)
      if (node->alive && broken_.empty()) check_empty(*node);
  }
  void check_answers(Who p) {
    const Process& self = at(p);
    for (const auto& [id, count] : self.awaits)
      if (owner_of(id) == p.node && (self.answers.count(id) == 0 || self.answers.at(id) != count))
        return fail("an await was not answered");
    for (const auto& [id, entry] : self.table)
      if (!entry.ready || entry.asked)
        return fail("a process never learns what became of an object");
  }
  void check_empty(Node& node) {
    if (node.references.total_holds() != 0) return fail("counts are left");
    if (node.references.size() != 0)
      return fail(std::to_string(node.references.size()) + " records left");
    if (node.references.settle()) return fail("something is left to settle");
    if (!node.bytes.empty())
      return fail(std::to_string(node.bytes.size()) + " objects' bytes left");
    if (!node.pulling.empty()) return fail("a pull is left");
    if (node.kept.size() != 0 || node.kept.bytes() != 0) return fail("a kept call is left");
  }
  void fail(const std::string& why) {
    if (broken_.empty()) broken_ = why;
  }

  Random random_, kept_random_;
  double travels_ = 0;  ///< how often a ref that was sent is dropped
  double notices_ = 0;  ///< how soon a node learns of another's death
  bool process_deaths_ = false;
  bool recompute_is_needed_ = false;  ///< processes die, and their results are missed
  std::uint64_t node_deaths_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::set<ObjectId> filled_;
  std::set<ObjectId> asked_, refused_;              ///< to be computed again; impossible
  std::map<ObjectId, ObjectId> recompute_targets_;  ///< object -> its recompute target
  std::set<ObjectId> kept_ids_;                     ///< objects whose calls the agent keeps
  std::set<std::size_t> without_recompute_;
  /// Refs that a node has passed on and whose receivers the owner does not know yet. When the
  /// owner learns of that node's death, the remaining ones may be lost.
  std::map<cluster::Passed, int> under_way_;
  std::optional<std::size_t> marked_;  ///< passed on a ref lately; likelier to die
  std::set<ObjectId> excused_;
  std::uint64_t last_ = 0, copies_ = 0;
  Seen seen_;
  std::string broken_;
};

}  // namespace troupe::simulation
