// Tests Membership and SelfFencing step by step; the simulator tests them together.
#include "troupe/runtime/control/membership.hpp"
#include "troupe/runtime/control/memory_store.hpp"
#include "troupe/runtime/control/self_fencing.hpp"

#include <gtest/gtest.h>

namespace troupe::control::membership_test {
namespace {

using namespace std::chrono_literals;

NodeId node_id(std::uint64_t n) {
  return NodeId{1, n};
}

RegisterNode hello(std::uint64_t n, Epoch epoch = 0, std::uint64_t life = 1) {
  RegisterNode message;
  message.node.id = node_id(n);
  message.node.name = "n" + std::to_string(n);
  message.node.resources.custom = {{"license", 5}};
  message.node.labels = {{"zone", "a"}};
  message.node.beside_control = n == 1;
  message.epoch = epoch;
  message.session = SessionId{n, life};
  message.number = 1;
  return message;
}

template <class Event>
std::vector<Event> pick(const std::vector<MembershipEvent>& events) {
  std::vector<Event> found;
  for (const auto& event : events)
    if (const auto* match = std::get_if<Event>(&event)) found.push_back(*match);
  return found;
}
template <class Message>
std::vector<Message> sent(const std::vector<MembershipEvent>& events) {
  std::vector<Message> found;
  for (const auto& send : pick<SendToAgent>(events))
    if (const auto* match = std::get_if<Message>(&send.message)) found.push_back(*match);
  return found;
}

/// Members 1 to n. Each sends heartbeats every second and applies each roster, except the mute
/// ones.
struct Cluster {
  Time now = Time{} + 1000s;
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>(1);
  std::unique_ptr<Store> store = open_memory_store(disk, {}).value();
  Membership members = Membership::recover(*store, {}, now).value();
  std::vector<MembershipEvent> events;
  std::set<std::uint64_t> mute;

  void run(Membership::Out out) {
    ASSERT_TRUE(store->commit({&out.writes, 1}).ok());
    for (auto& event : out.at_once) events.push_back(std::move(event));
    for (auto& event : out.after_sync) events.push_back(std::move(event));
  }
  void join(std::uint64_t count) {
    for (std::uint64_t n = 1; n <= count; ++n) run(members.on_register(hello(n), now));
  }
  void restart() {
    store.reset();
    store = open_memory_store(disk, {}).value();
    members = Membership::recover(*store, {}, now).value();
    events.clear();
  }
  void beat(std::uint64_t n) {
    const auto record = members.find(node_id(n));
    if (record && mute.count(n) == 0)
      run(members.on_heartbeat({node_id(n), record->epoch, 1, members.roster().version}, now));
  }
  void pass(Duration span, std::uint64_t count) {
    for (const Time end = now + span; now < end;) {
      now += 250ms;
      for (std::uint64_t n = 1; n <= count; ++n) beat(n);
      run(members.on_tick(now));
    }
  }
};

TEST(Membership, EpochsAreDurableAndNeverGivenTwice) {
  Cluster c;
  c.join(2);
  EXPECT_EQ(sent<Registered>(c.events).size(), 2u);
  c.run(c.members.on_register(hello(1), c.now));  // repeated: it gets the same epoch
  EXPECT_EQ(c.members.find(node_id(1))->epoch, 1u);
  c.run(c.members.on_register(hello(1, 0, 2), c.now));  // a new process in place of node 1's
  EXPECT_EQ(pick<NodeDead>(c.events).size(), 1u);
  EXPECT_EQ(c.members.find(node_id(1))->epoch, 3u);
  c.restart();
  EXPECT_EQ(c.members.find(node_id(1))->epoch, 3u);
  EXPECT_EQ(c.members.find(node_id(1))->description, hello(1).node);
  c.run(c.members.on_register(hello(5), c.now));
  EXPECT_EQ(c.members.find(node_id(5))->epoch, 4u);
}

TEST(Membership, TheDeadAreFencedForEver) {
  Cluster c;
  c.join(3);
  c.run(c.members.on_leaving({node_id(3), 3}, c.now));
  EXPECT_EQ(pick<NodeDead>(c.events).at(0).why, "it has left");
  for (int life = 0; life < 2; ++life) {
    c.events.clear();
    c.run(c.members.on_heartbeat({node_id(3), 3, 9, 0}, c.now));
    EXPECT_EQ(sent<Fence>(c.events).at(0).epoch, 3u);
    c.run(c.members.on_register(hello(3, 3), c.now));
    EXPECT_EQ(sent<Fence>(c.events).size(), 2u);
    EXPECT_FALSE(c.members.is_current(node_id(3), 3));
    c.restart();
  }
}

TEST(Membership, SilenceIsSuspectThenDeadOnceAMajorityHasPromised) {
  Cluster c;
  c.join(4);
  c.pass(2s, 4);
  c.mute = {4};
  c.events.clear();
  c.pass(3250ms, 4);
  EXPECT_EQ(pick<NodeSuspect>(c.events).size(), 1u);
  c.pass(6s, 4);
  EXPECT_TRUE(pick<NodeDead>(c.events).empty());
  c.pass(1250ms, 4);
  EXPECT_EQ(pick<NodeDead>(c.events).at(0).why, "it was silent for 10 s");
}

TEST(Membership, ASuspectThatSpeaksIsForgiven) {
  Cluster c;
  c.join(3);
  c.mute = {3};
  c.pass(8s, 3);
  EXPECT_EQ(c.members.roster().fenced.size(), 1u);
  c.mute = {};
  c.pass(30s, 3);
  EXPECT_TRUE(c.members.roster().fenced.empty());
  EXPECT_EQ(pick<NodeHeard>(c.events).size(), 1u);
  EXPECT_TRUE(pick<NodeDead>(c.events).empty());
}

TEST(Membership, WithoutAMajorityNobodyDiesBeforeAgentsStopCarryingOn) {
  Cluster c;
  c.join(5);
  c.mute = {2, 3, 4};
  c.pass(60s, 5);
  EXPECT_TRUE(pick<NodeDead>(c.events).empty());
  c.pass(6s, 5);
  EXPECT_EQ(pick<NodeDead>(c.events).size(), 3u);
}

TEST(Membership, ControlsOwnLatenessIsAddedToEveryDeadline) {
  Cluster c;
  c.join(3);
  c.pass(1s, 3);
  c.events.clear();
  c.now += 30s;  // control was stopped, and has not even read the messages in its sockets
  c.run(c.members.on_tick(c.now));
  EXPECT_TRUE(c.events.empty());
  c.pass(20s, 3);
  EXPECT_TRUE(pick<NodeDead>(c.events).empty());
}

TEST(Membership, ItKnowsSinceWhenAllHaveBeenHeard) {
  Cluster c;
  const Time started = c.now;
  c.join(3);
  c.pass(10s, 3);
  EXPECT_EQ(c.members.all_heard_since(), started);
  c.mute = {3};
  c.pass(1750ms, 3);
  EXPECT_EQ(c.members.all_heard_since(), started);
  c.pass(750ms, 3);
  EXPECT_EQ(c.members.all_heard_since(), c.now);
  const Time heard_again = c.now;
  c.mute = {};
  c.pass(5s, 3);
  EXPECT_EQ(c.members.all_heard_since(), heard_again);
  c.now += 30s;  // control was stopped
  c.run(c.members.on_tick(c.now));
  EXPECT_EQ(c.members.all_heard_since(), c.now);
  c.pass(5s, 3);
  c.run(c.members.on_closed(node_id(2), c.now));
  EXPECT_EQ(c.members.all_heard_since(), c.now);
  c.pass(5s, 3);
  c.run(c.members.on_register(hello(2, 2), c.now));  // its link broke, which was not noticed here
  EXPECT_EQ(c.members.all_heard_since(), c.now);
}

TEST(Membership, AClosedConnectionKillsOnlyWhenTheProcessIsGone) {
  Cluster c;
  c.join(3);
  c.events.clear();
  c.run(c.members.on_closed(node_id(2), c.now));
  EXPECT_EQ(pick<Probe>(c.events).at(0).session, (SessionId{2, 1}));
  EXPECT_EQ(pick<NodeSuspect>(c.events).size(), 1u);
  c.run(c.members.on_probe(node_id(2), 2, false, c.now));
  EXPECT_TRUE(pick<NodeDead>(c.events).empty());
  c.run(c.members.on_probe(node_id(2), 1, true, c.now));  // about another epoch
  EXPECT_TRUE(pick<NodeDead>(c.events).empty());
  c.run(c.members.on_probe(node_id(2), 2, true, c.now));
  EXPECT_EQ(pick<NodeDead>(c.events).at(0).why, "its process is gone");
}

TEST(Membership, ANodeThatFallsSilentIsProbedToo) {
  Cluster c;
  c.join(3);
  c.pass(2s, 3);
  c.mute = {3};  // its connection was down when its process ended, so no connection closes
  c.events.clear();
  c.pass(3250ms, 3);
  ASSERT_FALSE(pick<Probe>(c.events).empty());
  EXPECT_EQ(pick<Probe>(c.events).at(0).node, node_id(3));
  c.run(c.members.on_probe(node_id(3), 3, false, c.now));
  EXPECT_TRUE(pick<NodeDead>(c.events).empty()) << "it is stopped, or cut off";
  c.run(c.members.on_probe(node_id(3), 3, true, c.now));
  EXPECT_EQ(pick<NodeDead>(c.events).at(0).why, "its process is gone");
}

TEST(Membership, AClosedConnectionIsProbedAgainAtOnceThenMoreRarely) {
  Cluster c;
  c.join(3);
  c.events.clear();
  const Time closed = c.now;
  c.run(c.members.on_closed(node_id(2), c.now));
  std::vector<Duration> after;
  while (after.size() < 9) {
    for (std::size_t i = after.size(); i < pick<Probe>(c.events).size(); ++i)
      after.push_back(c.now - closed);
    c.now = c.members.next_tick();
    c.run(c.members.on_tick(c.now));
  }
  EXPECT_EQ(after[1], 10ms);
  EXPECT_EQ(after[3], 70ms);
  EXPECT_EQ(after[8] - after[7], 500ms) << "within a tick of 250 ms";
}

TEST(Membership, AfterItsStartControlDeclaresNobodyForTenSeconds) {
  Cluster c;
  c.join(3);
  c.pass(2s, 3);
  c.now += 100s;  // control was stopped
  c.restart();
  c.run(c.members.on_register(hello(1, 1), c.now));
  c.run(c.members.on_register(hello(2, 2), c.now));
  EXPECT_TRUE(pick<NodeUp>(c.events).at(0).again);
  c.mute = {3};
  c.pass(9750ms, 3);
  EXPECT_TRUE(pick<NodeDead>(c.events).empty());
  c.pass(1s, 3);
  EXPECT_EQ(pick<NodeDead>(c.events).at(0).node, node_id(3));
}

TEST(Membership, ANodeThatDiedWithTheControlOfBeforeIsProbedAfterASecond) {
  Cluster c;
  c.join(3);
  c.restart();
  c.run(c.members.on_register(hello(1, 1), c.now));
  c.run(c.members.on_register(hello(2, 2), c.now));
  c.pass(750ms, 2);
  EXPECT_TRUE(pick<Probe>(c.events).empty());
  c.pass(500ms, 2);
  ASSERT_FALSE(pick<Probe>(c.events).empty());
  EXPECT_EQ(pick<Probe>(c.events).at(0).node, node_id(3));
  c.run(c.members.on_probe(node_id(3), 3, false, c.now));
  EXPECT_TRUE(pick<NodeDead>(c.events).empty()) << "it may be slow";
  c.run(c.members.on_probe(node_id(3), 3, true, c.now));
  EXPECT_EQ(pick<NodeDead>(c.events).at(0).why, "its process is gone");
}

/// Control writes down that node 3 is a member, and dies before it has told node 3. The next
/// control waits for node 3 in vain and declares it dead.
void declare_unheard_dead(Cluster& c) {
  c.join(3);
  c.restart();
  c.run(c.members.on_register(hello(1, 1), c.now));
  c.run(c.members.on_register(hello(2, 2), c.now));
  c.mute = {3};
  c.pass(11s, 3);
  ASSERT_EQ(pick<NodeDead>(c.events).size(), 1u);
  ASSERT_EQ(pick<NodeDead>(c.events).at(0).node, node_id(3));
}

TEST(Membership, WhoDiedBeforeItHeardThatItWasAMemberIsRefusedByEveryControl) {
  Cluster c;
  declare_unheard_dead(c);
  for (int life = 0; life < 3; ++life) {
    c.events.clear();
    c.run(c.members.on_register(hello(3), c.now));
    ASSERT_EQ(pick<FenceProcess>(c.events).size(), 1u) << "control " << life;
    EXPECT_EQ(pick<FenceProcess>(c.events).at(0).node, node_id(3));
    EXPECT_EQ(pick<FenceProcess>(c.events).at(0).epoch, 3u);
    EXPECT_TRUE(pick<NodeUp>(c.events).empty());
    EXPECT_FALSE(c.members.find(node_id(3)));
    c.restart();
  }
  c.run(c.members.on_register(hello(3, 0, 2), c.now));  // another process
  EXPECT_EQ(c.members.find(node_id(3))->epoch, 4u);
}

TEST(Membership, WhoIsDeadIsRefusedNotBeforeTheDeathIsWrittenDown) {
  Cluster c;
  c.join(2);
  auto death = c.members.on_leaving({node_id(2), 2}, c.now);
  EXPECT_FALSE(death.writes.writes().empty());
  const auto asked = c.members.on_register(hello(2), c.now);
  EXPECT_TRUE(asked.at_once.empty());
  EXPECT_EQ(pick<FenceProcess>(asked.after_sync).size(), 1u);
}

TEST(Membership, ADeadProcessThatAsksLateDoesNotEndTheOneInItsPlace) {
  Cluster c;
  c.join(2);
  c.run(c.members.on_register(hello(2, 0, 2), c.now));  // a new process
  c.events.clear();
  c.run(c.members.on_register(hello(2), c.now));
  EXPECT_TRUE(c.events.empty()) << "a fence would be for both";
  EXPECT_EQ(c.members.find(node_id(2))->epoch, 3u);
}

TEST(Membership, OfTheDeadTheYoungestAreKept) {
  Cluster c;
  MembershipOptions options;
  options.max_tombstones = 2;
  c.members = Membership::recover(*c.store, options, c.now).value();
  c.join(4);
  for (const std::uint64_t n : {4, 1, 2, 3}) c.run(c.members.on_leaving({node_id(n), n}, c.now));
  std::vector<std::string> records;
  ASSERT_TRUE(c.store->scan("buried/", [&](auto key, auto) { records.emplace_back(key); }).ok());
  EXPECT_EQ(records.size(), 2u);
  c.restart();
  c.run(c.members.on_register(hello(4), c.now));
  c.run(c.members.on_register(hello(3), c.now));
  EXPECT_EQ(pick<FenceProcess>(c.events).size(), 2u);
  c.run(c.members.on_register(hello(2), c.now));
  EXPECT_EQ(c.members.find(node_id(2))->epoch, 5u);
}

TEST(Membership, DrainingIsDurable) {
  Cluster c;
  c.join(2);
  c.run(c.members.drain(node_id(2), 60s, c.now));
  ASSERT_EQ(sent<DrainNode>(c.events).size(), 1u);
  EXPECT_EQ(sent<DrainNode>(c.events).front().within, 60s);
  c.restart();
  EXPECT_TRUE(c.members.find(node_id(2))->draining);
}

// Control may die between the record and the message.
TEST(Membership, ADrainingNodeThatRegistersAgainIsToldTheTimeThatIsLeft) {
  Cluster c;
  c.join(3);
  c.run(c.members.drain(node_id(2), 60s, c.now));
  c.run(c.members.drain(node_id(3), Duration::max(), c.now));
  const auto told_at = [&](Time now) {
    c.restart();
    for (const std::uint64_t n : {1, 2, 3}) c.run(c.members.on_register(hello(n, n), now));
    std::vector<std::pair<NodeId, Duration>> told;
    for (const auto& send : pick<SendToAgent>(c.events))
      if (const auto* drain = std::get_if<DrainNode>(&send.message))
        told.emplace_back(send.node, drain->within);
    return told;
  };
  using Told = std::vector<std::pair<NodeId, Duration>>;
  EXPECT_EQ(told_at(c.now + 20s), (Told{{node_id(2), 40s}, {node_id(3), Duration::max()}}));
  EXPECT_EQ(told_at(c.now + 80s), (Told{{node_id(2), 0s}, {node_id(3), Duration::max()}}));
  EXPECT_EQ(told_at(c.now - 500s), (Told{{node_id(2), 60s}, {node_id(3), Duration::max()}}))
      << "the clock began anew";
}

TEST(Membership, VotersAreFewAndIncludeTheOneBesideControl) {
  Cluster c;
  for (std::uint64_t n = 40; n >= 1; --n) c.run(c.members.on_register(hello(n), c.now));
  EXPECT_EQ(c.members.roster().voters.size(), 15u);
  EXPECT_EQ(c.members.roster().beside_control, node_id(1));
  EXPECT_EQ(c.members.roster().voters.front(), node_id(1));
}

TEST(Membership, AStandstillOfControlIsNobodysSilence) {
  for (const bool tick_first : {true, false}) {
    Cluster c;
    c.join(3);
    c.pass(2s, 3);
    c.events.clear();
    c.now += 70s;  // all stand still, then control learns of a closed connection
    if (tick_first) c.run(c.members.on_tick(c.now));
    c.run(c.members.on_closed(node_id(3), c.now));
    EXPECT_TRUE(c.members.roster().fenced.empty());
    c.run(c.members.on_tick(c.now));
    c.pass(5s, 3);
    EXPECT_TRUE(pick<NodeDead>(c.events).empty());
    c.mute = {3};
    c.pass(9750ms, 3);
    EXPECT_TRUE(pick<NodeDead>(c.events).empty());
    c.pass(500ms, 3);
    EXPECT_EQ(pick<NodeDead>(c.events).size(), 1u);
  }
}

TEST(Membership, AfterAStandstillControlHearsANodeBeforeItJudges) {
  for (const bool speaks : {true, false}) {
    Cluster c;
    c.join(4);
    c.pass(2s, 4);
    c.mute = {4};  // node 4 stands still for longer than control: from before until after
    c.pass(9500ms, 4);
    c.now += 30s;
    c.pass(1750ms, 4);
    EXPECT_TRUE(pick<NodeDead>(c.events).empty());
    if (speaks) c.mute = {};
    c.pass(1s, 4);
    EXPECT_EQ(pick<NodeDead>(c.events).empty(), speaks);
  }
}

TEST(Membership, AControlThatStandsStillAgainAndAgainDeclaresASilentNode) {
  for (const auto& [awake, standstills] : {std::pair(1750ms, 10), {0ms, 70}}) {
    Cluster c;
    c.join(4);
    c.mute = {4};
    for (int i = 0; i < standstills; ++i) {
      c.now += 2300ms;
      for (std::uint64_t n = 1; n <= 4; ++n) c.beat(n);
      c.run(c.members.on_tick(c.now));
      c.pass(awake, 4);
    }
    const auto dead = pick<NodeDead>(c.events);
    ASSERT_EQ(dead.size(), 1u);
    EXPECT_EQ(dead[0].node, node_id(4));
  }
}

TEST(Membership, WhoStandsStillWithControlAgainAndAgainLives) {
  Cluster c;
  c.join(4);
  for (int i = 0; i < 10; ++i) {
    c.now += 30s;
    c.run(c.members.on_tick(c.now));
    c.mute = {4};  // node 4 wakes later than the others
    c.pass(1500ms, 4);
    c.mute = {};
    c.pass(250ms, 4);
  }
  EXPECT_TRUE(pick<NodeDead>(c.events).empty());
  EXPECT_TRUE(c.members.roster().fenced.empty());
}

// --- the agent

struct Agent {
  Time now = Time{} + 500s;
  SelfFencing self_fencing{{}, node_id(2), SessionId{2, 1}};
  SelfFencing::Out out;
  std::uint64_t last_number = 0;

  void take(SelfFencing::Out more) {
    for (auto& event : more) {
      if (const auto* reconnect = std::get_if<Reconnect>(&event)) last_number = reconnect->number;
      out.push_back(std::move(event));
    }
  }
  void registered(Epoch control = 1) {
    take(self_fencing.start(now));
    take(self_fencing.on_registered({7, control, SessionId{2, 1}, last_number}, now));
    Roster roster;
    roster.version = 1;
    roster.voters = {node_id(1), node_id(2), node_id(3)};
    roster.beside_control = node_id(1);
    take(self_fencing.on_roster(roster, now));
  }
  bool exits() const { return !why().empty(); }
  std::string why() const {
    for (const auto& event : out)
      if (const auto* exit = std::get_if<ExitNow>(&event)) return exit->why;
    return {};
  }
  /// Lets time pass; both peers give this answer to every question.
  void pass(Duration span, std::optional<ControlAnswer> answer) {
    for (const Time end = now + span; now < end && !exits();) {
      now += 250ms;
      auto more = self_fencing.on_tick(now);
      const auto asked = more;
      take(std::move(more));
      for (const auto& event : asked) {
        const auto* peer = std::get_if<SendToPeer>(&event);
        if (peer == nullptr || !answer) continue;
        answer->node = peer->node;
        answer->number = std::get<AskControl>(peer->message).number;
        take(self_fencing.on_answer(*answer, now));
      }
    }
  }
};

TEST(SelfFencing, AloneItRefusesAtEightAndExitsAtTen) {
  Agent a;
  a.registered();
  a.pass(7750ms, std::nullopt);
  EXPECT_TRUE(a.self_fencing.may_serve(a.now));
  EXPECT_FALSE(a.self_fencing.may_serve(a.now + 250ms));
  a.pass(2s, std::nullopt);
  EXPECT_FALSE(a.exits());
  a.pass(500ms, std::nullopt);
  EXPECT_TRUE(a.exits());
}

TEST(SelfFencing, APeerThatHearsControlOrThatItIsFencedEndsIt) {
  for (const bool fenced : {false, true}) {
    Agent a;
    a.registered();
    ControlAnswer answer;
    answer.hears_control = !fenced;
    answer.fenced = fenced;
    a.pass(9s, answer);
    EXPECT_FALSE(a.self_fencing.may_serve(a.now));
    a.pass(2s, answer);
    EXPECT_TRUE(a.exits());
  }
}

TEST(SelfFencing, WhoWasFencedBeforeControlFellSilentMustNotCarryOn) {
  // Control missed this node for 5 s, told the voters, and was stopped before it received a
  // heartbeat. It may wake and declare the node dead at any moment, since the voters have
  // promised to refuse the node.
  Agent a;
  a.registered();
  a.pass(6s, std::nullopt);
  ControlAnswer promised;
  promised.fenced = true;
  a.pass(5s, promised);
  EXPECT_TRUE(a.exits());
}

TEST(SelfFencing, ItSaysByWhichRuleItEnds) {
  ControlAnswer fenced, hears;
  fenced.fenced = hears.hears_control = true;
  const auto why = [](Duration carried, std::optional<ControlAnswer> then, Duration stands) {
    Agent a;
    a.registered();
    a.pass(carried, ControlAnswer{});
    a.now += stands;
    a.pass(70s, then);
    return a.why();
  };
  const auto says = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(says(why(1s, fenced, 0s), "it gave this node up"));
  EXPECT_TRUE(says(why(1s, hears, 0s), "others hear control"));
  EXPECT_TRUE(says(why(1s, std::nullopt, 0s), "0 of 2 other nodes that vote answer"));
  EXPECT_TRUE(says(why(9s, std::nullopt, 3s), "it stood still itself for 3250 ms"));
  EXPECT_TRUE(says(why(9s, ControlAnswer{}, 3s), "control was away for longer"));
  EXPECT_TRUE(says(why(1s, ControlAnswer{}, 0s), "control was away for longer"));
}

/// Returns the first moment at which the agent may not serve, if nothing more happens.
Time first_refusal(const SelfFencing& self_fencing, Time now) {
  while (self_fencing.may_serve(now)) now += 1ms;
  return now;
}

TEST(SelfFencing, ItKnowsUntilWhenItMayServe) {
  Agent a;
  EXPECT_EQ(a.self_fencing.serves_until(), Time{});
  a.registered();
  EXPECT_EQ(a.self_fencing.serves_until(), a.now + 8s);
  a.pass(2s, std::nullopt);
  EXPECT_EQ(a.self_fencing.serves_until(), first_refusal(a.self_fencing, a.now));
  a.pass(20s, ControlAnswer{});  // both peers vote for it twice a second
  EXPECT_GT(a.self_fencing.serves_until(), a.now + 700ms);
  EXPECT_EQ(a.self_fencing.serves_until(), first_refusal(a.self_fencing, a.now));
  a.pass(37500ms, ControlAnswer{});
  EXPECT_EQ(a.self_fencing.serves_until(), first_refusal(a.self_fencing, a.now)) << "60 s at most";
}

TEST(SelfFencing, UntilWhenItMayServeDependsOnWhoAnsweredLast) {
  Agent a;  // two of three voters must agree: node 1 answers at first, then node 3 as well
  a.registered();
  std::uint64_t asked = 0;
  for (const Time end = a.now + 9s; a.now < end;) {
    a.now += 250ms;
    for (const auto& event : a.self_fencing.on_tick(a.now))
      if (const auto* peer = std::get_if<SendToPeer>(&event))
        asked = std::get<AskControl>(peer->message).number;
    if (asked == 0) continue;
    ControlAnswer answer;
    answer.number = asked;
    answer.node = node_id(1);
    a.take(a.self_fencing.on_answer(answer, a.now));
    answer.node = node_id(3);
    if (end - a.now < 1s) a.take(a.self_fencing.on_answer(answer, a.now));
  }
  a.take(a.self_fencing.on_tick(a.now));
  EXPECT_GT(a.self_fencing.serves_until(), a.now);
  EXPECT_EQ(a.self_fencing.serves_until(), first_refusal(a.self_fencing, a.now));
}

/// Returns an agent that is the only voter, so it needs no other node to go on.
Agent alone() {
  Agent a;
  a.registered();
  Roster roster;
  roster.version = 2;
  roster.voters = {node_id(2)};
  a.take(a.self_fencing.on_roster(roster, a.now));
  a.take(a.self_fencing.on_tick(a.now));
  return a;
}

TEST(SelfFencing, WhoIsAloneServesForAMinuteAndForEightSecondsWhenItStandsStill) {
  Agent a = alone();
  EXPECT_TRUE(a.self_fencing.may_serve(a.now + 59s));
  EXPECT_EQ(a.self_fencing.serves_until(), a.now + 8s);
  a.pass(30s, std::nullopt);
  EXPECT_EQ(a.self_fencing.serves_until(), a.now + 8s) << "while it runs it says so again";
  a.now += 25s;  // the agent stood still
  a.take(a.self_fencing.on_tick(a.now));
  EXPECT_FALSE(a.exits());
  EXPECT_EQ(a.self_fencing.serves_until(), a.now + 5s) << "60 s at most";
}

TEST(SelfFencing, WhenOthersGetAVoteItServesNoLongerThanTheyLetIt) {
  Agent a = alone();
  a.pass(5s, std::nullopt);
  EXPECT_EQ(a.self_fencing.serves_until(), a.now + 8s);
  Roster roster;
  roster.version = 3;
  roster.voters = {node_id(1), node_id(2), node_id(3)};
  a.take(a.self_fencing.on_roster(roster, a.now));
  EXPECT_EQ(a.self_fencing.serves_until(), a.now + 3s);
  EXPECT_EQ(a.self_fencing.serves_until(), first_refusal(a.self_fencing, a.now));
}

TEST(SelfFencing, WithAMajorityItCarriesOnForSixtySeconds) {
  Agent a;
  a.registered();
  a.pass(59750ms, ControlAnswer{});
  EXPECT_TRUE(a.self_fencing.may_serve(a.now));
  EXPECT_FALSE(a.exits());
  a.pass(500ms, ControlAnswer{});
  EXPECT_TRUE(a.exits());
}

TEST(SelfFencing, AnAnswerToAnOldRequestEndsNobodyWhoIsCarriedOn) {
  Agent a;
  a.registered();
  a.take(a.self_fencing.on_closed(a.now));
  const std::uint64_t first = a.last_number;
  a.pass(13s, ControlAnswer{});  // control is stopped, and requests wait for it
  a.take(a.self_fencing.on_registered({7, 1, SessionId{2, 1}, first + 2}, a.now));
  EXPECT_FALSE(a.exits());
  EXPECT_TRUE(a.self_fencing.may_serve(a.now));
  a.take(a.self_fencing.on_registered({7, 1, SessionId{2, 1}, a.last_number}, a.now));
  EXPECT_TRUE(a.self_fencing.may_serve(a.now + 6s)) << "by the newest answer";
  EXPECT_FALSE(a.exits());
}

TEST(SelfFencing, WhoIsFencedWhileCarriedOnHasAMomentToReachControl) {
  for (const bool reaches : {true, false}) {
    Agent a;
    a.registered();
    a.pass(12s, ControlAnswer{});
    ControlAnswer fenced;  // control is back, and has received heartbeats of the others first
    fenced.hears_control = fenced.fenced = true;
    a.pass(2s, fenced);
    EXPECT_FALSE(a.exits());
    EXPECT_FALSE(a.self_fencing.may_serve(a.now)) << "it may be declared dead";
    a.take(a.self_fencing.on_closed(a.now));
    if (reaches)
      a.take(a.self_fencing.on_registered({7, 1, SessionId{2, 1}, a.last_number}, a.now));
    EXPECT_EQ(a.self_fencing.may_serve(a.now), reaches);
    a.pass(1s, fenced);
    EXPECT_EQ(a.exits(), !reaches);
  }
}

Heartbeat last_beat(const SelfFencing::Out& out) {
  Heartbeat beat;
  for (const auto& event : out)
    if (const auto* send = std::get_if<SendToControl>(&event)) beat = send->message;
  return beat;
}

TEST(SelfFencing, AfterALongStopNothingIsServed) {
  Agent a;
  a.registered();
  a.now += 30s;
  EXPECT_FALSE(a.self_fencing.may_serve(a.now));  // before any tick
  ControlAnswer late;
  late.node = node_id(1);
  a.take(a.self_fencing.on_answer(late, a.now));
  EXPECT_FALSE(a.self_fencing.may_serve(a.now)) << "that answer is of before";
  EXPECT_FALSE(a.exits()) << "control may have stood still with it";
  a.pass(999ms, std::nullopt);
  EXPECT_FALSE(a.self_fencing.may_serve(a.now));
  a.pass(1ms, std::nullopt);
  EXPECT_TRUE(a.exits()) << "a heartbeat later";
}

TEST(SelfFencing, AfterAStandstillOfTheWholeClusterControlsAnswerKeepsIt) {
  for (const auto stood : {9s, 12s, 90s}) {
    Agent a;
    a.registered();
    a.pass(1s, ControlAnswer{});
    const std::uint64_t before = last_beat(a.out).sequence;
    a.now += stood;
    a.pass(250ms, std::nullopt);
    a.take(a.self_fencing.on_heartbeat_answer({1, before}, a.now));
    EXPECT_FALSE(a.self_fencing.may_serve(a.now)) << "it answers what was sent before";
    const std::uint64_t since = last_beat(a.out).sequence;
    ASSERT_GT(since, before) << "it asks at once";
    a.take(a.self_fencing.on_heartbeat_answer({1, since}, a.now));
    EXPECT_TRUE(a.self_fencing.may_serve(a.now));
    a.pass(4s, ControlAnswer{});
    EXPECT_FALSE(a.exits());
  }
}

TEST(SelfFencing, AfterAStandstillThereIsTimeForANewConnectionAndNoMoreThanThat) {
  for (const auto stood : {7800ms, 12'000ms})
    for (const bool answered : {true, false}) {
      Agent a;
      a.registered();
      a.now += stood;
      a.take(a.self_fencing.on_tick(a.now));
      a.now += 100ms;
      a.take(a.self_fencing.on_closed(a.now));
      a.pass(2250ms, std::nullopt);
      EXPECT_FALSE(a.exits());
      EXPECT_FALSE(a.self_fencing.may_serve(a.now));
      if (answered)
        a.take(a.self_fencing.on_registered({7, 1, SessionId{2, 1}, a.last_number}, a.now));
      EXPECT_EQ(a.self_fencing.may_serve(a.now), answered);
      a.pass(500ms, std::nullopt);
      EXPECT_EQ(a.exits(), !answered) << a.why();
      const bool own = a.why().find("it stood still itself") != std::string::npos;
      EXPECT_EQ(own, !answered) << a.why();
    }
}

TEST(SelfFencing, WhoIsCutOffAndStandsStillAgainAndAgainEnds) {
  for (const bool connected : {true, false}) {
    Agent a;
    a.registered();
    if (!connected) a.take(a.self_fencing.on_closed(a.now));
    for (int i = 0; i < 10 && !a.exits(); ++i) {
      a.now += 1600ms;
      a.pass(connected ? 750ms : 2s, std::nullopt);
    }
    EXPECT_TRUE(a.exits());
    EXPECT_GT(a.now - Time{} - 500s, 18s) << "before, control's answer would keep it";
  }
}

TEST(SelfFencing, WhoWasCarriedOnWhenTheClusterStoodStillCanStillProveItself) {
  Agent a;
  a.registered();
  a.pass(30s, ControlAnswer{});
  a.now += 70s;
  a.pass(750ms, std::nullopt);
  a.take(a.self_fencing.on_heartbeat_answer({1, last_beat(a.out).sequence}, a.now));
  EXPECT_TRUE(a.self_fencing.may_serve(a.now));
  a.pass(2s, ControlAnswer{});
  EXPECT_FALSE(a.exits());
}

TEST(SelfFencing, StandstillsBeforeControlAnsweredDoNotCountAfterwards) {
  Agent a;
  a.registered();
  for (int i = 0; i < 10; ++i) {
    a.now += 12s;
    a.pass(750ms, std::nullopt);
    ASSERT_FALSE(a.exits()) << i;
    a.take(a.self_fencing.on_heartbeat_answer({1, last_beat(a.out).sequence}, a.now));
    EXPECT_TRUE(a.self_fencing.may_serve(a.now));
  }
}

TEST(SelfFencing, AfterAStandstillWhoWasDeclaredDeadMeanwhileEnds) {
  Agent a;
  a.registered();
  a.now += 12s;
  a.pass(250ms, std::nullopt);
  EXPECT_FALSE(a.exits());
  Fence fence;
  fence.epoch = 7;
  fence.why = "it was silent for 10 s";
  a.take(a.self_fencing.on_fence(fence, a.now));
  EXPECT_TRUE(a.exits());
}

TEST(SelfFencing, AfterAMachinesSleepNothingIsServedUntilControlAnswersWhatWasSentSince) {
  Agent a;
  a.registered();
  const Heartbeat before = last_beat(a.out);
  a.now += 100ms;  // the clock stood still while the machine slept
  a.take(a.self_fencing.on_slept(a.now));
  const Heartbeat since = last_beat(a.out);
  EXPECT_GT(since.sequence, before.sequence) << "sent at once";
  EXPECT_FALSE(a.self_fencing.may_serve(a.now));
  EXPECT_LE(a.self_fencing.serves_until(), a.now);
  a.now += 100ms;
  a.take(a.self_fencing.on_heartbeat_answer({1, before.sequence}, a.now));
  EXPECT_FALSE(a.self_fencing.may_serve(a.now)) << "that was sent before it slept";
  EXPECT_FALSE(a.self_fencing.hears_control(a.now)) << "nor may it say so to others";
  a.take(a.self_fencing.on_heartbeat_answer({1, since.sequence}, a.now));
  EXPECT_TRUE(a.self_fencing.may_serve(a.now));
  EXPECT_EQ(a.self_fencing.serves_until(), a.now - 100ms + 8s);
  EXPECT_FALSE(a.exits());
}

TEST(SelfFencing, WhoWasCarriedOnAndSleptAsksTheOthersAnewBeforeItServes) {
  for (const bool answered : {true, false}) {
    Agent a;
    a.registered();
    a.pass(20s, ControlAnswer{});
    const auto asked_before = a.out;
    a.take(a.self_fencing.on_slept(a.now));
    EXPECT_FALSE(a.self_fencing.may_serve(a.now));
    for (const auto& event : asked_before)  // answers to questions from before the sleep
      if (const auto* peer = std::get_if<SendToPeer>(&event))
        a.take(a.self_fencing.on_answer({peer->node, std::get<AskControl>(peer->message).number},
                                        a.now));
    EXPECT_FALSE(a.self_fencing.may_serve(a.now));
    a.pass(250ms, answered ? std::optional(ControlAnswer{}) : std::nullopt);
    EXPECT_EQ(a.self_fencing.may_serve(a.now), answered);
    EXPECT_FALSE(a.exits());
    a.pass(3s, answered ? std::optional(ControlAnswer{}) : std::nullopt);
    EXPECT_EQ(a.exits(), !answered);
  }
}

TEST(SelfFencing, AMachinesSleepDoesNotShortenTheTimeUntilItExits) {
  Agent a;
  a.registered();
  a.pass(1s, std::nullopt);
  a.take(a.self_fencing.on_slept(a.now));
  a.pass(8750ms, std::nullopt);
  EXPECT_FALSE(a.exits());
  a.pass(500ms, std::nullopt);
  EXPECT_TRUE(a.exits());
}

TEST(SelfFencing, ContactCountsFromTheSendingOfTheAnsweredHeartbeat) {
  Agent a;
  a.registered();
  const Heartbeat beat = last_beat(a.out);
  a.now += 5s;
  a.take(a.self_fencing.on_heartbeat_answer({1, beat.sequence}, a.now));  // five seconds under way
  EXPECT_TRUE(a.self_fencing.may_serve(a.now + 2900ms));
  EXPECT_FALSE(a.self_fencing.may_serve(a.now + 3100ms));
}

TEST(SelfFencing, AnOlderControlAndAFenceForAnotherLifeAreIgnored) {
  Agent a;
  a.registered(5);
  a.take(a.self_fencing.on_fence({6, "old"}, a.now));
  EXPECT_FALSE(a.exits());
  a.take(a.self_fencing.on_registered({9, 4, SessionId{2, 1}, a.last_number}, a.now));
  EXPECT_EQ(a.self_fencing.epoch(), 7u);
  a.out.clear();
  a.take(a.self_fencing.on_heartbeat_answer({6, 1}, a.now));  // of control's epoch before this
  EXPECT_TRUE(std::holds_alternative<Reconnect>(a.out.at(0)));
  a.take(a.self_fencing.on_fence({7, "silent"}, a.now));
  EXPECT_TRUE(a.exits());
}

// No control will ever answer this agent: its id is one of the dead.
TEST(SelfFencing, WhoIsFencedBeforeItWasEverRegisteredEnds) {
  Agent a;
  a.take(a.self_fencing.start(a.now));
  a.take(a.self_fencing.on_fence({7, "silent"}, a.now));  // the fence may be for another process
  EXPECT_FALSE(a.exits());
  a.take(a.self_fencing.on_refused("the peer takes no epoch of ours any more", a.now));
  EXPECT_TRUE(a.exits());
}

TEST(SelfFencing, WithoutARosterItHasNoVote) {
  SelfFencing fresh({}, node_id(3), SessionId{3, 1});
  EXPECT_TRUE(fresh.on_ask({node_id(2), 7, 1}, Time{} + 1s).empty());
}

TEST(SelfFencing, WithoutARosterItRefusesAndWaitsForControl) {
  Agent a;
  a.take(a.self_fencing.start(a.now));
  a.take(a.self_fencing.on_registered({7, 1, SessionId{2, 1}, a.last_number}, a.now));
  a.pass(8s, std::nullopt);
  EXPECT_FALSE(a.self_fencing.may_serve(a.now));
  a.pass(51s, std::nullopt);
  EXPECT_FALSE(a.exits());
  a.pass(2s, std::nullopt);
  EXPECT_NE(a.why().find("control was away for longer"), std::string::npos) << a.why();
}

TEST(SelfFencing, WhoGetsItsFirstRosterLateHasAMomentToReachControl) {
  for (const bool answered : {true, false}) {
    Agent a;
    a.take(a.self_fencing.start(a.now));
    const std::uint64_t asked = a.last_number;
    a.now += 13s;  // control took that, and stood still
    a.take(a.self_fencing.on_registered({7, 1, SessionId{2, 1}, asked}, a.now));
    Roster roster;
    roster.version = 1;
    roster.voters = {node_id(1), node_id(2), node_id(3)};
    a.take(a.self_fencing.on_roster(roster, a.now));
    EXPECT_FALSE(a.self_fencing.may_serve(a.now)) << "it may be declared dead";
    a.pass(2s, std::nullopt);
    EXPECT_FALSE(a.exits());
    const std::uint64_t beat = last_beat(a.out).sequence;
    if (answered) a.take(a.self_fencing.on_heartbeat_answer({1, beat}, a.now));
    EXPECT_EQ(a.self_fencing.may_serve(a.now), answered);
    a.pass(1s, std::nullopt);
    EXPECT_EQ(a.exits(), !answered);
  }
}

TEST(SelfFencing, WithoutARosterItEndsWhenControlHasDeclaredItDead) {
  Agent a;
  a.take(a.self_fencing.start(a.now));
  a.take(a.self_fencing.on_registered({7, 1, SessionId{2, 1}, a.last_number}, a.now));
  a.pass(20s, std::nullopt);
  ASSERT_FALSE(a.exits());
  a.take(a.self_fencing.on_fence({7, "it was silent for 10 s"}, a.now));
  EXPECT_TRUE(a.exits());
}

}  // namespace
}  // namespace troupe::control::membership_test
