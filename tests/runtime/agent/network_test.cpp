// Tests Network of agents over real sockets on 127.0.0.1: registering, messages and frames in
// order, and back-pressure. Also tests what each side is told when a peer or control is replaced,
// silent, dead, or sends messages that cannot be read.
#include "tests/runtime/agent/network_world.hpp"
#include "troupe/runtime/agent/outbox.hpp"
#include "troupe/runtime/base/random.hpp"

namespace troupe::agent {
namespace {

using namespace test;

control::SelfFencingOptions quick() {
  control::SelfFencingOptions options;
  options.tick = 5ms;
  options.heartbeat = 20ms;
  options.ask_after = 100ms;
  options.ask_interval = 20ms;
  options.refuse_after = 300ms;
  options.exit_after = 400ms;
  options.carry_on = 1500ms;
  options.answer_lasts = 150ms;
  options.doubt_for = 100ms;
  options.rejoin_within = 500ms;
  return options;
}
/// Options with short timeouts, except for control.
NetworkOptions lively() {
  NetworkOptions options;
  options.self_fencing.tick = 5ms;
  options.self_fencing.heartbeat = 20ms;
  options.drop_first = 20ms;
  options.drop_last = 40ms;
  options.reconnect_grace = 50ms;
  return options;
}

TEST(Network, RegistersFirstAndBeats) {
  FakeControl control;
  Agent a(control, lively());
  a.network->send_control(control::GetJob{1, {}});  // before anything is connected
  EXPECT_FALSE(a.network->may_serve(steady_now()));
  ASSERT_TRUE(drive({&control, &a}, 5s, [&] { return control.beats[a.node] >= 4; }));
  EXPECT_EQ(control.order[a.node].substr(0, 2), "Rx");
  EXPECT_EQ(control.got[a.node].size(), 1u);
  EXPECT_TRUE(a.network->may_serve(steady_now()));
  EXPECT_TRUE(a.network->hears_control(steady_now()));
  EXPECT_EQ(a.network->epoch(), control.epochs[a.node]);
  EXPECT_EQ(a.network->control_epoch(), control.epoch);
  ASSERT_FALSE(a.from_control.empty());
  EXPECT_TRUE(std::holds_alternative<control::Registered>(a.from_control[0]));
  EXPECT_EQ(control.members[a.node].node, a.network->self());
  EXPECT_EQ(a.network->self().address, a.network->door());
}

/// Other nodes' messages contain ids of nodes. A wrong id must end no process.
TEST(Network, AMessageForItselfOrControlIsDropped) {
  FakeControl control;
  Agent a(control, lively());
  ASSERT_TRUE(drive({&control, &a}, 5s, [&] { return control.beats[a.node] >= 1; }));
  const std::size_t got = control.got[a.node].size();
  for (const NodeId wrong : {a.node, control.node})
    a.network->send(wrong, wire::PullRequest{1, ObjectId{1, 2}, 0, 0, {}, false}, {});
  const int beats = control.beats[a.node];
  ASSERT_TRUE(drive({&control, &a}, 5s, [&] { return control.beats[a.node] >= beats + 2; }));
  EXPECT_EQ(control.got[a.node].size(), got);
  EXPECT_TRUE(a.network->may_serve(steady_now()));
}

TEST(Network, AddressesThatOthersCannotUseAreRefused) {
  FakeControl control;
  struct Quiet : Agent {
    using Agent::Agent;
  } a(control);
  for (const char* listen : {"tcp://*:0", "tcp://0.0.0.0:*", "tcp://[::]:1234"}) {
    NetworkOptions options;
    options.keys = copy(a.keys);
    options.listen = listen;
    const auto opened = Network::open(std::move(options), a, steady_now());
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), Code::invalid_argument);
  }
  NetworkOptions busy;
  busy.keys = copy(a.keys);
  busy.listen = a.network->door();
  const auto opened = Network::open(std::move(busy), a, steady_now());
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find(a.network->door()), std::string::npos);
}

TEST(Network, MembersTalkBothWaysInOrder) {
  FakeControl control;
  Agent a(control, lively()), b(control, lively());
  ASSERT_TRUE(meet(control, a, b));
  for (int i = 0; i < 500; ++i) {
    a.say(b.node, "a" + std::to_string(i));
    b.say(a.node, "b" + std::to_string(i));
    if (i % 50 == 0) a.pass(steady_now());
  }
  ASSERT_TRUE(
      drive({&control, &a, &b}, 5s, [&] { return a.got.size() == 500 && b.got.size() == 500; }));
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(a.got[i], std::make_pair(b.node, "b" + std::to_string(i)));
    EXPECT_EQ(b.got[i], std::make_pair(a.node, "a" + std::to_string(i)));
  }
  EXPECT_TRUE(drive({&control, &a, &b}, 5s, [&] { return a.network->delivered(b.node); }));
  EXPECT_TRUE(a.resets.empty() && b.resets.empty());
  EXPECT_LT(a.network->stats().messages_sent, 100u);  // the messages travelled in batches
}

TEST(Network, HundredThousandFramesOfHundredBytesArriveInOrder) {
  FakeControl control;
  Agent a(control), b(control);
  ASSERT_TRUE(meet(control, a, b));
  constexpr std::uint64_t total = 100000;
  constexpr std::uint64_t per_pass = 256;  // the most that an agent finds in its rings in one pass
  std::uint64_t sent = 0, next = 0;
  bool in_order = true;
  b.keep = false;
  b.on_frame = [&](NodeId, const wire::PeerMessage& message, BlobView) {
    in_order = in_order && std::get<wire::PeerFrame>(message).from.value == next++;
  };
  const Blob payload(100, std::byte{7});
  const Time begin = steady_now();
  ASSERT_TRUE(drive({&a, &b, &control}, 30s, [&] {
    for (std::uint64_t i = 0; i < per_pass && sent < total && a.network->can_send(b.node); ++i)
      a.network->send(b.node, wire::PeerFrame{ProcessIndex::of(sent++), 2, {}}, payload);
    a.network->flush(steady_now());
    return next == total;
  }));
  const double seconds = std::chrono::duration<double>(steady_now() - begin).count();
  EXPECT_TRUE(in_order);
  const NetworkStats stats = a.network->stats();
  std::printf("%llu frames of 100 bytes in %llu batches: %.0f frames/s (both ends in one thread)\n",
              static_cast<unsigned long long>(total),
              static_cast<unsigned long long>(stats.messages_sent), total / seconds);
}

TEST(Network, WhatFitsNoLinkIsRefusedAndTheNextOneGoes) {
  FakeControl control;
  Agent a(control, lively());
  control::KeyValueRequest large;
  large.value.assign(2 << 20, 'x');
  const auto refused = a.network->send_control(large);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), Code::invalid_argument);
  EXPECT_FALSE(a.network->send_control(control::GetJob{1, {}}));
  EXPECT_TRUE(drive({&control, &a}, 5s, [&] { return control.got[a.node].size() == 1; }));
}

// Control drops a node that sends a message it cannot read, and the agent passes a program's
// values on unchanged. So the agent itself must refuse what control could not read.
TEST(Network, WhatControlCouldNotReadIsRefusedAndTheNextOneGoes) {
  FakeControl control;
  Agent a(control, lively());
  control::SpawnActor odd;
  odd.spec.max_restarts = -77;
  const auto refused = a.network->send_control(odd);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), Code::invalid_argument);
  EXPECT_NE(refused->message().find("restarts"), std::string::npos) << refused->message();
  EXPECT_FALSE(a.network->send_control(control::GetJob{1, {}}));
  EXPECT_TRUE(drive({&control, &a}, 5s, [&] { return control.got[a.node].size() == 1; }));
}

TEST(Network, AFullWindowHoldsTheProxiesBackAndLetsThemGo) {
  FakeControl control;
  NetworkOptions small = lively();
  small.link.window_bytes = 64 << 10;
  small.batch = 16 << 10;
  small.backlog_high = 64 << 10;
  small.backlog_low = 16 << 10;
  Agent a(control, std::move(small)), b(control, lively());
  ASSERT_TRUE(meet(control, a, b));
  int sent = 0;
  while (a.network->can_send(b.node) && sent < 1000) {  // b does not read
    a.say(b.node, std::to_string(sent++) + std::string(1000, '.'));
    a.pass(steady_now());
  }
  EXPECT_GT(sent, 64);         // the window and the backlog
  EXPECT_LT(sent, 200);        // and no more
  const int more = sent + 20;  // can_send() is advice: further frames are still taken
  while (sent < more) a.say(b.node, std::to_string(sent++) + std::string(1000, '.'));
  EXPECT_TRUE(a.relieved.empty());
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return !a.relieved.empty(); }));
  EXPECT_EQ(a.relieved, std::vector<NodeId>{b.node});
  EXPECT_TRUE(a.network->can_send(b.node));
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return b.got.size() == std::size_t(sent); }));
  for (int i = 0; i < sent; ++i)
    EXPECT_EQ(b.got[i].second.substr(0, b.got[i].second.find('.')), std::to_string(i));
}

TEST(Network, APeerThatTakesNothingIsDroppedAndTakenBackAndBothAreTold) {
  FakeControl control;
  NetworkOptions small = lively();
  small.link.window_bytes = 64 << 10;
  small.backlog_high = 64 << 10;
  small.max_backlog = 256 << 10;
  Agent a(control, std::move(small)), b(control, lively());
  ASSERT_TRUE(meet(control, a, b));
  a.say(b.node, "hello");
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return b.got.size() == 1; }));
  for (int i = 0; i < 500 && a.resets.empty(); ++i) {  // b does not read
    a.say(b.node, std::string(1000, '.'));
    a.pass(steady_now());
  }
  ASSERT_EQ(a.resets.size(), 1u);
  EXPECT_NE(a.reset_of(b.node).find("it takes nothing"), std::string::npos) << a.reset_of(b.node);
  EXPECT_TRUE(a.network->can_send(b.node));
  b.got.clear();
  a.say(b.node, "again");
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] {
    return b.resets.size() == 1 && !b.got.empty() && b.got.back().second == "again";
  }));
  b.say(a.node, "and back");
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return a.got.size() == 1; }));
  EXPECT_EQ(a.resets.size(), 1u);
}

// The two agents have never spoken before.
TEST(Network, WhatIsSaidToWhomIsAboutToBeDroppedIsSaidToBeLost) {
  FakeControl control;
  Agent a(control, lively()), b(control, lively());
  ASSERT_TRUE(meet(control, a, b));
  a.network->drop(b.node, "it sent what cannot be read");
  a.say(b.node, "lost");
  a.pass(steady_now());
  ASSERT_EQ(a.resets.size(), 1u);
  a.say(b.node, "again");
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return !b.got.empty(); }));
  EXPECT_EQ(b.got[0].second, "again");
  EXPECT_EQ(a.resets.size(), 1u);
}

TEST(Network, AReplacedProcessIsTold) {
  FakeControl control;
  Agent a(control, lively());
  auto b = std::make_unique<Agent>(control, lively());
  ASSERT_TRUE(meet(control, a, *b));
  const NodeId node = b->node;
  a.say(node, "1");
  ASSERT_TRUE(drive({&control, &a, b.get()}, 5s, [&] { return b->got.size() == 1; }));
  NetworkOptions same = lively();
  same.listen = b->network->door();
  b->network.reset();
  b->got.clear();
  b->open(control, same);
  ASSERT_TRUE(drive({&control, &a, b.get()}, 10s, [&] { return a.resets.size() == 1; }));
  EXPECT_EQ(a.resets[0].first, node);
  a.say(node, "2");
  ASSERT_TRUE(drive({&control, &a, b.get()}, 10s, [&] { return !b->got.empty(); }));
  EXPECT_EQ(b->got[0].second, "2");
  EXPECT_EQ(a.resets.size(), 1u);
}

TEST(Network, ControlThatStartsAnewIsToldAllAgain) {
  FakeControl control;
  Agent a(control, lively());
  ASSERT_TRUE(drive({&control, &a}, 5s, [&] { return control.beats[a.node] >= 2; }));
  const Epoch epoch = a.network->epoch();
  a.when_control_resets = [&] { a.network->send_control(control::GetJob{2, {}}); };
  control.restart();
  control.admit(a.node, a.keys.public_key);
  a.network->send_control(control::GetJob{1, {}});  // may be lost: the reset tells the sender
  a.network->flush(steady_now());
  ASSERT_TRUE(drive({&control, &a}, 10s, [&] {
    return !control.got[a.node].empty() && a.network->control_epoch() == control.epoch &&
           control.order[a.node].find('H') != std::string::npos;
  }));
  EXPECT_EQ(a.control_resets.size(), 1u);
  EXPECT_EQ(control.order[a.node][0], 'R') << control.order[a.node];
  EXPECT_EQ(control.members[a.node].epoch, epoch);
  EXPECT_EQ(a.network->epoch(), epoch);
  ASSERT_EQ(control.got[a.node].size(), 1u);
  EXPECT_EQ(std::get<control::GetJob>(control.got[a.node][0]).request, 2u);
  EXPECT_TRUE(a.exits.empty());
}

TEST(Network, WithoutControlAMajorityCarriesOnAndALoneNodeExits) {
  FakeControl control;
  NetworkOptions options;
  options.self_fencing = quick();
  Agent a(control, std::move(options));
  options = {};
  options.self_fencing = quick();
  Agent b(control, std::move(options));
  control.beside = b.node;
  ASSERT_TRUE(meet(control, a, b));
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] {
    return a.network->may_serve(steady_now()) && b.network->may_serve(steady_now()) &&
           control.order[a.node].find('H') != std::string::npos;
  }));
  // Control is gone. The two ask each other, and serve longer than one of them might alone.
  const Time gone = steady_now();
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return steady_now() > gone + 700ms; }));
  EXPECT_TRUE(a.exits.empty() && b.exits.empty());
  EXPECT_TRUE(a.network->may_serve(steady_now()) && b.network->may_serve(steady_now()));
  EXPECT_FALSE(a.network->hears_control(steady_now()));
  // Now one of them is alone, and not on control's machine.
  ASSERT_TRUE(drive({&a}, 5s, [&] { return !a.exits.empty(); }));
  EXPECT_EQ(a.exits.size(), 1u);
  EXPECT_FALSE(a.network->may_serve(steady_now()));
  EXPECT_LT(steady_now(), gone + 1500ms);
}

TEST(Network, AFenceEndsTheProcess) {
  FakeControl control;
  Agent a(control, lively());
  ASSERT_TRUE(drive({&control, &a}, 5s, [&] { return a.network->epoch() != 0; }));
  control.tell(a.node, control::Fence{a.network->epoch() + 1, "of another life"});
  control.tell(a.node, control::Fence{a.network->epoch(), "the test says so"});
  ASSERT_TRUE(drive({&control, &a}, 5s, [&] { return !a.exits.empty(); }));
  EXPECT_NE(a.exits[0].find("the test says so"), std::string::npos);
  EXPECT_FALSE(a.network->may_serve(steady_now()));
}

// The node was declared dead before it learned that it was a member, so no control will ever
// answer it.
TEST(Network, AControlThatTakesNoEpochOfItEndsTheProcess) {
  FakeControl control;
  Agent a(control, lively());
  control.transport->set_min_epoch(a.node, 1);
  ASSERT_TRUE(drive({&control, &a}, 5s, [&] { return !a.exits.empty(); }));
  EXPECT_NE(a.exits[0].find("before it could hear that it was a member"), std::string::npos);
  EXPECT_EQ(a.network->epoch(), 0u);
}

TEST(Network, ADeadNodeIsNeverSpokenWithAgain) {
  FakeControl control;
  Agent a(control, lively()), b(control, lively());
  ASSERT_TRUE(meet(control, a, b));
  b.say(a.node, "1");
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return a.got.size() == 1; }));
  control.declare_dead(b.node);
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return a.deaths.size() == 1; }));
  EXPECT_EQ(a.deaths[0].first, b.node);
  EXPECT_TRUE(a.resets.empty());
  b.say(a.node, "2");
  control.members[b.node].node = b.network->self();  // an old view that still contains the node
  control.tell_nodes();
  a.say(b.node, "nobody there");
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] {
    return !a.resets.empty() && a.known.count(b.node) != 0 &&
           a.network->stats().refused_strangers > 0;
  }));
  EXPECT_NE(a.reset_of(b.node).find("dead"), std::string::npos);
  EXPECT_EQ(a.got.size(), 1u);
  EXPECT_TRUE(b.got.empty());
}

TEST(Network, ANodeThatControlListsNoMoreIsDead) {
  FakeControl control;
  Agent a(control, lively()), b(control, lively());
  ASSERT_TRUE(meet(control, a, b));
  control.members.erase(b.node);  // without a NodeIsDead, as when control dies in that moment
  control.tell_nodes();
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return a.deaths.size() == 1; }));
  EXPECT_EQ(a.deaths[0].first, b.node);
}

TEST(Network, MessagesForANodeThatIsNotKnownYetWait) {
  FakeControl control;
  control.lists = false;
  NetworkOptions options = lively();
  options.unknown_for = 200ms;
  Agent a(control, lively()), b(control, std::move(options));
  ASSERT_TRUE(
      drive({&control, &a, &b}, 5s, [&] { return a.network->epoch() && b.network->epoch(); }));
  const NodeId nobody = NodeId::random();
  a.say(b.node, "early");
  b.say(nobody, "in vain");
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return !b.resets.empty(); }));
  EXPECT_EQ(b.resets[0].first, nobody);
  control.tell_nodes();
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return b.got.size() == 1; }));
  EXPECT_EQ(b.got[0].second, "early");
  EXPECT_TRUE(a.resets.empty());
}

TEST(Network, AProcessThatCannotBeReachedIsGivenUpInTime) {
  FakeControl control;
  NetworkOptions options = lively();
  options.unreachable_for = 200ms;
  Agent a(control, std::move(options));
  auto b = std::make_unique<Agent>(control, lively());
  ASSERT_TRUE(meet(control, a, *b));
  const NodeId node = b->node;
  a.say(node, "1");
  ASSERT_TRUE(drive({&control, &a, b.get()}, 5s, [&] { return b->got.size() == 1; }));
  b.reset();  // control does not notice
  ASSERT_TRUE(drive({&control, &a}, 10s, [&] { return !a.resets.empty(); }));
  EXPECT_NE(a.reset_of(node).find("could not be reached"), std::string::npos) << a.reset_of(node);
}

TEST(Network, APeerThatFallsSilentWhileSomethingIsAwaitedIsGivenUp) {
  FakeControl control;
  NetworkOptions options = lively();
  options.link.idle_close = 50ms;
  options.link.keepalive = 20ms;
  options.touch_every = 30ms;
  options.knock_timeout = 500ms;
  options.unreachable_for = 1s;  // longer than a busy machine lets this thread wait
  Agent a(control, std::move(options)), b(control, lively()), c(control, lively());
  ASSERT_TRUE(meet(control, a, b));
  ASSERT_TRUE(drive({&control, &a, &c}, 5s, [&] { return a.known.count(c.node) != 0; }));
  a.say(b.node, "a long call");
  a.say(c.node, "a short one");
  a.network->keep_in_touch(b.node, true);
  ASSERT_TRUE(drive({&control, &a, &b, &c}, 5s, [&] {
    return !b.got.empty() && !c.got.empty() && a.network->delivered(c.node);
  }));
  ASSERT_TRUE(drive({&control, &a}, 10s, [&] { return !a.resets.empty(); }));  // neither runs
  EXPECT_EQ(a.resets[0].first, b.node);
  EXPECT_NE(a.resets[0].second.find("could not be reached"), std::string::npos);
  EXPECT_EQ(a.resets.size(), 1u);  // nothing is awaited from c, so its silence has no effect
}

/// A member that sends arbitrary bytes.
struct Rogue : Speaker {
  std::vector<net::Delivered> got;
  std::size_t resets = 0;
  Rogue(FakeControl& control, const std::vector<Agent*>& agents) {
    open();
    control::RegisterNode member;
    member.node.id = node;
    member.node.address = transport->door();
    member.node.public_key = keys.public_key.str();
    control.epochs[node] = 99;
    control.members[node] = member;
    control.admit(node, keys.public_key);  // messages from control to it are not delivered
    for (const Agent* agent : agents)
      transport->admit(
          {.node = agent->node, .key = agent->keys.public_key, .door = agent->network->door()});
  }
  void heard(NodeId, const net::Delivered& content) override { got.push_back(content); }
  void on_event(const net::TransportEvent& event) override {
    resets += std::get_if<net::PeerReset>(&event) != nullptr ? 1 : 0;
  }
};

Blob batch_of(wire::Protocol protocol, BlobView frame) {
  Blob batch;
  wire::append_frame(batch, protocol, frame);
  return batch;
}

TEST(Network, APeerThatTalksNonsenseIsDroppedAndTheOthersAreServed) {
  FakeControl control;
  Agent a(control, lively()), b(control, lively());
  ASSERT_TRUE(meet(control, a, b));
  Rogue rogue(control, {&a});
  control.tell_nodes();
  ASSERT_TRUE(drive({&control, &a, &b}, 5s, [&] { return a.known.count(rogue.node) != 0; }));
  wire::PeerWriter writer;
  const BlobView good = writer.encode(wire::PullData{1, 0, 4}, text("good"));
  const Blob good_batch = batch_of(wire::Protocol::peer, good);
  Blob cut = good_batch;
  cut.resize(cut.size() - 8);
  std::vector<Blob> nonsense = {
      text("odd"),
      text("12345678"),
      cut,
      batch_of(wire::Protocol::peer, {}),
      batch_of(wire::Protocol::peer, text("this is no frame")),
      batch_of(wire::Protocol::between_agents, good),
      batch_of(static_cast<wire::Protocol>(9), good),
      batch_of(wire::Protocol::from_control,
               encode(control::FromControl(control::Fence{a.network->epoch(), "as control"}))),
      batch_of(wire::Protocol::between_agents,
               encode(control::BetweenAgents(control::AskControl{b.node, 1, 1})))};
  std::size_t rounds = 0;
  for (const Blob& bytes : nonsense) {
    ++rounds;
    // The good batch before the bad one is delivered; the one after it is not.
    ASSERT_TRUE(rogue.transport->send(a.node, Blob(good_batch), steady_now()));
    Blob batch = bytes;
    if (bytes != cut) batch.insert(batch.end(), good_batch.begin(), good_batch.end());
    ASSERT_TRUE(rogue.transport->send(a.node, std::move(batch), steady_now()));
    ASSERT_TRUE(rogue.transport->send(a.node, Blob(good_batch), steady_now()));
    b.say(a.node, "b" + std::to_string(rounds));
    ASSERT_TRUE(drive({&control, &a, &b, &rogue}, 5s,
                      [&] {
                        return a.network->stats().bad_frames == rounds &&
                               a.resets.size() == rounds && a.got.size() == 2 * rounds &&
                               rogue.resets == rounds;  // a has connected to it again
                      }))
        << "round " << rounds << ": " << a.network->stats().bad_frames << " bad, "
        << a.resets.size() << " resets, " << a.got.size() << " frames, " << rogue.resets << " told";
    EXPECT_EQ(a.resets.back().first, rogue.node);
    EXPECT_NE(a.resets.back().second.find("cannot be read"), std::string::npos);
  }
  EXPECT_TRUE(a.exits.empty());
  EXPECT_EQ(a.network->stats().dropped_peers, nonsense.size());
}

TEST(Network, OfTwoNodesWithOneKeyTheNewerIsBelieved) {
  FakeControl control;
  Agent a(control, lively()), b(control, lively());
  ASSERT_TRUE(meet(control, a, b));
  Agent again(control, lively());
  again.keys = copy(b.keys);
  again.network.reset();
  NetworkOptions options = lively();
  again.open(control, options);
  ASSERT_TRUE(drive({&control, &a, &again}, 5s, [&] { return a.known.count(again.node) != 0; }));
  ASSERT_EQ(a.deaths.size(), 1u);
  EXPECT_EQ(a.deaths[0].first, b.node);
  a.say(again.node, "1");
  ASSERT_TRUE(drive({&control, &a, &again}, 5s, [&] { return again.got.size() == 1; }));
}

TEST(Outbox, KeepsOrderWithinItsBoundsAndLetsUrgentFramesPass) {
  Outbox out;
  std::size_t bytes = 0;
  for (int i = 0; i < 100; ++i) {
    const Blob frame = text(std::to_string(i));
    out.append(wire::Protocol::peer, frame, 64);
    bytes += wire::batched_size(frame.size());
  }
  const Blob large(1000);
  out.append(wire::Protocol::peer, large, 64);
  out.append_urgent(wire::Protocol::between_agents, text("u"));
  EXPECT_EQ(out.bytes(), bytes + wire::batched_size(1000) + 16);
  std::vector<std::string> got;
  while (!out.empty()) {
    const std::size_t size = out.next_size();
    const Blob batch = out.take();
    EXPECT_EQ(batch.size(), size);
    EXPECT_TRUE(size <= 64 || size == wire::batched_size(1000));
    ASSERT_TRUE(wire::split_batch(batch, [&](wire::Protocol, BlobView frame) {
      got.push_back(text(frame));
      return true;
    }));
  }
  ASSERT_EQ(got.size(), 102u);
  EXPECT_EQ(got[0], "u");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(got[i + 1], std::to_string(i));
  EXPECT_EQ(got[101].size(), 1000u);
}

TEST(Batch, BytesOfAnyKindAreReadWithinTheirBounds) {
  Random random(7);
  std::size_t good = 0;
  for (int i = 0; i < 20000; ++i) {
    Blob batch;
    for (auto n = random.below(4); n > 0; --n)
      wire::append_frame(batch, static_cast<wire::Protocol>(2 + random.below(4)),
                         Blob(random.below(40)));
    for (auto n = random.below(3); n > 0 && !batch.empty(); --n)
      batch[random.below(batch.size())] = static_cast<std::byte>(random());
    if (random.below(4) == 0) batch.resize(random.below(batch.size() + 1));
    const std::byte* begin = batch.data();
    const std::byte* end = begin + batch.size();
    good += wire::split_batch(
                batch,
                [&](wire::Protocol protocol, BlobView frame) {
                  EXPECT_TRUE(frame.data() >= begin && frame.data() + frame.size() <= end);
                  EXPECT_TRUE(protocol >= wire::Protocol::peer &&
                              protocol <= wire::Protocol::between_agents);
                  return true;
                })
                ? 1
                : 0;
  }
  EXPECT_GT(good, 1000u);
  EXPECT_LT(good, 19000u);
}

}  // namespace
}  // namespace troupe::agent
