/// Simulates the reference protocol of one node in one thread. Processes create, share, nest,
/// await and drop objects and die. FIFO rings connect them with each other and with the agent's
/// ReferenceTable. A seed drives it.
///
///     Ownership world(seed, Mutant::none);
///     world.run();
///     EXPECT_EQ(world.broken(), "");
///
/// The world checks that nothing is freed which somebody can still name, that the table is empty
/// once nobody holds anything, and that every Await of a living process is answered once.
#pragma once

#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/base/random.hpp"

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// The planted mistakes, which the simulation must find.
enum class Mutant {
  none,
  no_ageing,           ///< frees an object at its first look with zero counts
  hold_after_message,  ///< the receiver is counted after the message was published
  death_keeps_counts,  ///< keeps the counts of dead processes
  surplus_kept,        ///< a receiver with a count keeps the second one
  settles_over_unread  ///< frees while the ring of a dying process is unread
};

class Ownership final : private agent::ReferenceTable::Out {
 public:
  Ownership(std::uint64_t seed, Mutant mutant)
      : random_(seed), mutant_(mutant), processes_(kProcesses + 1) {
    until_clean_ = random_.chance(0.5);
  }

  void run() {
    const auto steps = 40 + random_.below(160);
    for (std::uint64_t i = 0; i < steps && broken_.empty(); ++i) step();
    if (broken_.empty()) end();
  }
  const std::string& broken() const { return broken_; }
  std::uint64_t frees() const { return frees_; }

 private:
  using Index = ProcessIndex;
  static constexpr std::uint64_t kProcesses = 4;

  struct Entry {  // an object in the process's own table
    int handles = 0;
    bool promoted = false, ready = false, awaited = false;
    bool mine = false;  // pending: this process will fulfil it
    std::vector<ObjectId> nested;
    bool forward = false;  // takes the value of its one nested ref
  };
  struct ToAgent {
    enum class Kind { promote, fulfil, hold, await } kind = Kind::hold;
    ObjectId object;
    wire::Value value;
    Index process = 0;
    std::int32_t delta = 0;
  };
  struct FromAgent {
    ObjectId object;
    wire::Value value;
  };
  struct Process {
    bool alive = true, doomed = false, buried = false;
    std::map<ObjectId, Entry> table;
    std::vector<ObjectId> user;  // one element per handle of the program
    std::deque<ToAgent> ring;
    std::deque<FromAgent> agent;
    std::map<Index, std::deque<std::vector<ObjectId>>> inbox;  // by sender
    std::vector<ObjectId> sending;                             // counted, not yet published
    Index sending_to = 0;
    std::map<ObjectId, int> awaits, answers;
  };
  enum class Phase { scan, settle, poll };
  Process& at(Index p) { return processes_[p.value]; }

  // --- a process

  void release(Index p, ObjectId id) {
    Process& self = at(p);
    const auto at = self.table.find(id);
    if (--at->second.handles != 0) return;
    const Entry gone = at->second;
    self.table.erase(at);
    if (gone.promoted) self.ring.push_back({ToAgent::Kind::hold, id, {}, p, -1});
    for (const ObjectId inner : gone.nested) release(p, inner);
  }
  wire::Value value_of(Index p, ObjectId id) {
    wire::Value value;
    const Entry entry = at(p).table.at(id);
    if (!entry.ready) return value;
    if (entry.forward) {
      value.kind = wire::Value::Kind::forwarded;
      value.forward = entry.nested.front();
    } else {
      value.kind = wire::Value::Kind::shared;
      value.location.offset = id.low;
      value.refs = entry.nested;
    }
    for (const ObjectId inner : entry.nested) promote(p, inner);
    return value;
  }
  void promote(Index p, ObjectId id) {
    Process& self = at(p);
    if (self.table.at(id).promoted) return;
    self.table.at(id).promoted = true;
    const wire::Value value = value_of(p, id);
    self.ring.push_back({ToAgent::Kind::promote, id, value, p, 0});
  }
  void share(Index p, ObjectId id, Index with) {
    promote(p, id);
    at(p).ring.push_back({ToAgent::Kind::hold, id, {}, with, +1});
  }
  void adopt(Index p, ObjectId id) {
    Process& self = at(p);
    Entry& entry = self.table[id];
    const bool fresh = entry.handles++ == 0;
    if (fresh) entry.promoted = true;
    if (!fresh && mutant_ != Mutant::surplus_kept)
      self.ring.push_back({ToAgent::Kind::hold, id, {}, p, -1});
  }
  void fill(Index p, ObjectId id) {
    Process& self = at(p);
    std::vector<ObjectId> nested;
    for (auto n = self.user.empty() ? 0 : random_.below(3); n > 0; --n) {
      const ObjectId inner = self.user[random_.below(self.user.size())];
      if (inner.low >= id.low) continue;  // no cycles: a ref is older than what holds it
      nested.push_back(inner);
      ++self.table.at(inner).handles;
    }
    Entry& entry = self.table.at(id);
    entry.nested = nested;
    entry.forward = nested.size() == 1 && random_.chance(0.4);
    entry.ready = true;
    filled_.insert(id);
  }
  void create(Index p) {
    Process& self = at(p);
    const ObjectId id{p.value, ++last_};
    Entry& entry = self.table[id];
    entry.handles = 1;
    self.user.push_back(id);
    if (random_.chance(0.6)) return fill(p, id);
    entry.mine = true;
    ++entry.handles;  // handle of the task that will make it
  }
  void fulfil(Index p, ObjectId id) {
    fill(p, id);
    at(p).table.at(id).mine = false;
    if (at(p).table.at(id).promoted) {
      const wire::Value value = value_of(p, id);
      at(p).ring.push_back({ToAgent::Kind::fulfil, id, value, p, 0});
    }
    release(p, id);
  }
  void fulfil_one(Index p) {
    for (const auto& [id, entry] : at(p).table)
      if (entry.mine) return fulfil(p, id);
  }
  void begin_send(Index p) {
    Process& self = at(p);
    if (self.user.empty()) return;
    self.sending_to = Index::of(1 + random_.below(kProcesses));
    if (self.sending_to == p) return void(self.sending_to = 0);
    for (auto n = 1 + random_.below(3); n > 0; --n)
      self.sending.push_back(self.user[random_.below(self.user.size())]);
    for (const ObjectId id : self.sending) {
      ++self.table.at(id).handles;  // the message holds them until it is sent
      if (mutant_ != Mutant::hold_after_message) share(p, id, self.sending_to);
    }
  }
  void finish_send(Index p) {
    Process& self = at(p);
    const Index to = std::exchange(self.sending_to, Index{});
    const std::vector<ObjectId> sent = std::exchange(self.sending, {});
    if (at(to).alive) at(to).inbox[p].push_back(sent);
    if (mutant_ == Mutant::hold_after_message) late_holds_.push_back({p, to, sent});
    if (mutant_ != Mutant::hold_after_message)
      for (const ObjectId id : sent) release(p, id);
  }
  void receive(Index p) {
    Process& self = at(p);
    const auto from = Index::of(1 + random_.below(kProcesses));
    auto& queue = self.inbox[from];
    if (queue.empty()) return;
    const std::vector<ObjectId> ids = queue.front();
    queue.pop_front();
    for (const ObjectId id : ids) {
      adopt(p, id);
      self.user.push_back(id);
      if (random_.chance(0.5)) await(p, id);
    }
  }
  void await(Index p) {
    const std::vector<ObjectId>& user = at(p).user;
    if (!user.empty()) await(p, user[random_.below(user.size())]);
  }
  void await(Index p, ObjectId id) {
    Process& self = at(p);
    Entry& entry = self.table.at(id);
    if (!entry.promoted || entry.ready || entry.mine || entry.awaited) return;
    entry.awaited = true;
    ++self.awaits[id];
    self.ring.push_back({ToAgent::Kind::await, id, {}, p, 0});
  }
  void take_ready(Index p) {
    Process& self = at(p);
    if (self.agent.empty()) return;
    const FromAgent message = self.agent.front();
    self.agent.pop_front();
    std::vector<ObjectId> inner = message.value.refs;
    if (message.value.kind == wire::Value::Kind::forwarded) inner.push_back(message.value.forward);
    const auto at = self.table.find(message.object);
    // The handle is gone, or it was dropped and the ref came back. In the second case the earlier
    // Await has been answered too.
    if (at == self.table.end() || at->second.ready) {
      for (const ObjectId id : inner) self.ring.push_back({ToAgent::Kind::hold, id, {}, p, -1});
      return;
    }
    if (message.value.kind == wire::Value::Kind::error &&
        (processes_[message.object.high].alive || filled_.count(message.object) != 0))
      return fail("a live object was lost");
    at->second.ready = true;
    at->second.nested = inner;
    at->second.forward = message.value.kind == wire::Value::Kind::forwarded;
    for (const ObjectId id : inner) adopt(p, id);
  }
  void drop(Index p) {
    Process& self = at(p);
    if (self.user.empty()) return;
    const auto at = random_.below(self.user.size());
    const ObjectId id = self.user[at];
    self.user.erase(self.user.begin() + static_cast<std::ptrdiff_t>(at));
    release(p, id);
  }
  void die(Index p) {
    Process& self = at(p);
    self.alive = false;
    self.table.clear();
    self.user.clear();
    self.sending.clear();
    self.inbox.clear();
    self.agent.clear();
  }
  void act(Index p) {
    Process& self = at(p);
    if (!self.alive) return;
    for (auto at = late_holds_.begin(); at != late_holds_.end(); ++at)
      if (at->from == p) {
        const Late late = std::move(*at);
        late_holds_.erase(at);
        for (const ObjectId id : late.ids) share(p, id, late.to);
        for (const ObjectId id : late.ids) release(p, id);
        return;
      }
    if (self.sending_to != 0) return finish_send(p);
    const auto dice = random_.below(100);
    if (dice < 15) return create(p);
    if (dice < 40) return begin_send(p);
    if (dice < 60) return receive(p);
    if (dice < 70) return drop(p), drop(p);
    if (dice < 80) return await(p);
    if (dice < 90) return take_ready(p);
    if (dice < 98) return fulfil_one(p);
    if (random_.chance(0.3)) die(p);
  }

  // --- the agent: Node::loop, one move at a time

  void read_one(Index p) {
    const ToAgent m = at(p).ring.front();
    at(p).ring.pop_front();
    switch (m.kind) {
      case ToAgent::Kind::promote: references_.promote(p, m.object, m.value, {}); break;
      case ToAgent::Kind::fulfil: references_.fulfil(m.object, m.value, {}); break;
      case ToAgent::Kind::hold: references_.hold(m.object, m.process, m.delta); break;
      case ToAgent::Kind::await: references_.await(m.object, p); break;
    }
  }
  void read_all(Index p) {
    while (!at(p).ring.empty()) read_one(p);
  }
  bool readable(Index p) const {
    return !processes_[p.value].doomed && !processes_[p.value].ring.empty();
  }
  void agent_move() {
    switch (phase_) {
      case Phase::scan: return scan();
      case Phase::settle: {
        phase_ = Phase::poll;
        bool unread = false;
        for (Index p = 1; p <= kProcesses; ++p) unread |= at(p).doomed;
        if (unread && mutant_ != Mutant::settles_over_unread) return;
        references_.settle();
        if (mutant_ == Mutant::no_ageing) references_.settle();
        return;
      }
      case Phase::poll:
        for (Index p = 1; p <= kProcesses; ++p) notice_death(p);
        phase_ = Phase::scan;
        unscanned_.clear();
        for (Index p = 1; p <= kProcesses; ++p) unscanned_.push_back(p);
        return;
    }
  }
  /// Half of the schedules read until every ring is empty at one moment. The others read each
  /// ring once, in any order. The table must be correct with both.
  void scan() {
    if (until_clean_) {
      std::vector<Index> full;
      for (Index p = 1; p <= kProcesses; ++p)
        if (readable(p)) full.push_back(p);
      if (full.empty()) return void(phase_ = Phase::settle);
      return read_one(full[random_.below(full.size())]);
    }
    if (unscanned_.empty()) return void(phase_ = Phase::settle);
    const auto at = random_.below(unscanned_.size());
    const Index p = unscanned_[at];
    unscanned_.erase(unscanned_.begin() + static_cast<std::ptrdiff_t>(at));
    if (readable(p)) read_all(p);
  }
  /// The connection of a dead process closes first, and the process is reaped later. Its ring is
  /// not read in between.
  void notice_death(Index p) {
    Process& process = at(p);
    if (process.alive || process.buried) return;
    if (!process.doomed && random_.chance(0.7)) return void(process.doomed = true);
    if (!random_.chance(0.15)) return;
    process.doomed = false;
    process.buried = true;
    read_all(p);
    if (mutant_ != Mutant::death_keeps_counts)
      references_.process_died(p, Error(Code::worker_died, "killed"));
  }

  void ready(Index p, ObjectId object, const wire::Value& value, BlobView) override {
    if (p == agent::kSelf || p > kProcesses) return fail("an answer to nobody");
    if (++at(p).answers[object] > at(p).awaits[object]) fail("an await was answered twice");
    if (at(p).alive) at(p).agent.push_back({object, value});
  }
  void free(const wire::Location& location) override {
    ++frees_;
    if (!freed_.insert(location.offset).second) fail("an object was freed twice");
    if (alive(location.offset)) fail("object " + std::to_string(location.offset) + " is in use");
  }
  void unreferenced(ActorId) override { fail("there are no actors here"); }

  static bool names(const wire::Value& value, std::uint64_t low) {
    for (const ObjectId id : value.refs)
      if (id.low == low) return true;
    return value.kind == wire::Value::Kind::forwarded && value.forward.low == low;
  }
  /// Returns whether a process has a handle, or a published message that will be read names the
  /// object.
  bool alive(std::uint64_t low) const {
    for (const Process& process : processes_) {
      for (const auto& m : process.ring)
        if (names(m.value, low)) return true;
      if (!process.alive) continue;
      for (const auto& [id, entry] : process.table)
        if (id.low == low) return true;
      for (const auto& [from, queue] : process.inbox)
        for (const auto& ids : queue)
          for (const ObjectId id : ids)
            if (id.low == low) return true;
      for (const auto& m : process.agent)
        if (names(m.value, low)) return true;
    }
    return false;
  }

  void step() {
    if (random_.chance(0.35))
      agent_move();
    else
      act(Index::of(1 + random_.below(kProcesses)));
  }
  void end() {
    for (int round = 0; round < 400 && broken_.empty(); ++round) {
      for (Index p = 1; p <= kProcesses; ++p) wind_down(p);
      for (int i = 0; i < 12; ++i) agent_move();
      if (round > 40 && references_.size() == 0 && quiet()) break;
    }
    if (!broken_.empty()) return;
    if (references_.total_holds() != 0) return fail("counts are left");
    if (references_.size() != 0)
      return fail(std::to_string(references_.size()) + " records are left");
    if (references_.settle()) return fail("something is left to settle");
    for (const Process& process : processes_)
      if (process.alive && process.awaits != process.answers) fail("an await was not answered");
  }
  void wind_down(Index p) {
    Process& self = at(p);
    if (!self.alive) return;
    while (self.sending_to != 0 || !late_holds_.empty()) {
      const auto before = late_holds_.size();
      if (self.sending_to == 0 && before == 0) break;
      act(p);
      if (self.sending_to == 0 && late_holds_.size() == before) break;
    }
    while (!self.agent.empty() && broken_.empty()) take_ready(p);
    for (auto& [from, queue] : self.inbox) {
      for (const auto& ids : std::exchange(queue, {}))
        for (const ObjectId id : ids) {
          adopt(p, id);
          self.user.push_back(id);
        }
    }
    for (bool more = true; more;) {
      more = false;
      for (const auto& [id, entry] : self.table)
        if (entry.mine) {
          fulfil(p, id);
          more = true;
          break;
        }
    }
    while (!self.user.empty()) drop(p);
  }
  bool quiet() const {
    for (const Process& process : processes_)
      if (!process.ring.empty() || !process.agent.empty()) return false;
    return true;
  }
  void fail(const std::string& why) {
    if (broken_.empty()) broken_ = why;
  }

  struct Late {
    Index from, to;
    std::vector<ObjectId> ids;
  };
  Random random_;
  Mutant mutant_;
  bool until_clean_;
  std::vector<Process> processes_;  // index 0 is the agent and stays empty
  agent::ReferenceTable references_{*this};
  Phase phase_ = Phase::poll;
  std::vector<Index> unscanned_;
  std::vector<Late> late_holds_;
  std::set<ObjectId> filled_;
  std::set<std::uint64_t> freed_;
  std::uint64_t last_ = 0;
  std::uint64_t frees_ = 0;
  std::string broken_;
};

}  // namespace troupe::simulation
