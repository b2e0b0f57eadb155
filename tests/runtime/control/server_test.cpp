// Tests control's loop on real sockets of 127.0.0.1, with transports that play agents. Questions
// are answered, and a dead process is noticed. A peer that sends malformed messages is dropped
// alone. A token lets one node in, and agents find a new control on the same store.
#include "troupe/runtime/control/server.hpp"

#include "troupe/runtime/base/log.hpp"

#include "troupe/runtime/control/join.hpp"
#include "troupe/runtime/wire/batch.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

namespace troupe::control {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

net::CurveKeys copy(const net::CurveKeys& keys) {
  return net::CurveKeys::from_secret(keys.secret_key.copy()).value();
}

/// The other end of control's Link: a transport, and the messages that it received.
struct Agent {
  NodeId node = NodeId::random();
  NodeId control;
  SessionId session = SessionId::random();
  Epoch epoch = 0;
  scheduling::Labels labels;
  net::CurveKeys keys = net::CurveKeys::generate().value();
  std::unique_ptr<net::Transport> transport;
  std::vector<FromControl> told;
  std::vector<net::TransportEvent> events;

  Agent() {
    net::TransportOptions options;
    options.keys = copy(keys);
    options.reconnect_grace = 20ms;
    options.retry_first = 20ms;
    transport = net::Transport::open(std::move(options)).value();
  }
  net::PeerInfo info() const { return {.node = node, .key = keys.public_key, .door = {}}; }
  NodeDescription description() const {
    NodeDescription d;
    d.id = node;
    d.name = "agent";
    d.address = transport->door();
    d.public_key = keys.public_key.str();
    d.resources.cpus = 4 * scheduling::kUnit;
    d.labels = labels;
    return d;
  }
  void meet(NodeId head, const net::PublicKey& key, const std::string& door) {
    control = head;
    transport->admit({.node = head, .key = key, .door = door});
  }
  void say(const ToControl& message) { send(wire::Protocol::to_control, encode(message)); }
  void send(wire::Protocol protocol, const Blob& frame) {
    Blob batch;
    wire::append_frame(batch, protocol, frame);
    ASSERT_TRUE(transport->send(control, std::move(batch), steady_now()));
  }
  void poll() {
    std::vector<net::TransportEvent> news;
    transport->poll(steady_now(), news);
    for (auto& event : news) {
      if (const auto* message = std::get_if<net::Message>(&event)) {
        ASSERT_TRUE(wire::split_batch(message->content.payload, [&](wire::Protocol protocol,
                                                                    BlobView frame) {
                      EXPECT_EQ(protocol, wire::Protocol::from_control);
                      told.push_back(decode_from_control(frame).value());
                      return true;
                    }).ok());
      }
      events.push_back(std::move(event));
    }
  }
  template <class M>
  const M* last() const {
    for (auto at = told.rbegin(); at != told.rend(); ++at)
      if (const M* m = std::get_if<M>(&*at)) return m;
    return nullptr;
  }
  template <class E>
  const E* seen() const {
    for (const auto& event : events)
      if (const E* e = std::get_if<E>(&event)) return e;
    return nullptr;
  }
};

template <class Done>
bool drive(const std::vector<Agent*>& agents, Done done, Duration limit = 10s) {
  for (const Time end = steady_now() + limit;;) {
    for (Agent* agent : agents) agent->poll();
    if (done()) return true;
    if (steady_now() >= end) return false;
    Time due = end;
    std::vector<pollfd> fds;
    for (Agent* agent : agents) {
      due = std::min(due, agent->transport->next_deadline());
      fds.push_back({agent->transport->fd(), POLLIN, 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max<Duration>(due - steady_now(), Duration{}));
    ::poll(fds.data(), fds.size(), static_cast<int>(left.count()));
  }
}

/// A server on a thread. It ends when its launcher's socket is closed.
struct Running {
  std::unique_ptr<Server> server;
  Fd launcher;
  std::thread thread;
  Result<void> end;

  explicit Running(ServerOptions options) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    launcher = Fd(ends[0]);
    options.reconnect_grace = 20ms;
    server = Server::open(std::move(options)).value();
    thread = std::thread([this, theirs = ends[1]] {
      const Fd until(theirs);
      end = server->run(until.get());
    });
  }
  ~Running() { stop(); }
  void stop() {
    if (!thread.joinable()) return;
    launcher.reset();
    thread.join();
    EXPECT_TRUE(end.ok());
  }
};

struct ServerTest : testing::Test {
  net::CurveKeys keys = net::CurveKeys::generate().value();
  NodeId node = NodeId::random();
  Agent a, b;

  ServerOptions options() {
    ServerOptions o;
    o.cluster = ClusterId{1, 2};
    o.node = node;
    o.keys = copy(keys);
    o.admitted = {a.info(), b.info()};
    return o;
  }
  void join(Agent& agent, const std::string& door) {
    agent.meet(node, keys.public_key, door);
    RegisterNode message;
    message.node = agent.description();
    message.epoch = agent.epoch;
    message.session = agent.session;
    agent.told.clear();
    agent.say(message);
    ASSERT_TRUE(drive({&agent}, [&] { return agent.last<Registered>() != nullptr; }));
    agent.epoch = agent.last<Registered>()->epoch;
  }
};

TEST_F(ServerTest, TheLaunchersWordThatTheClusterEndsReachesEveryNode) {
  Running head(options());
  join(a, head.server->door());
  ASSERT_EQ(::send(head.launcher.get(), "e", 1, MSG_NOSIGNAL), 1);
  ASSERT_TRUE(drive({&a}, [&] { return a.last<ClusterEnds>() != nullptr; }));
  EXPECT_EQ(a.last<ClusterEnds>()->why, "the cluster was ended at its head");
  a.say(Leaving{a.node, a.epoch});
  ASSERT_TRUE(drive({&a}, [&] {
    const net::Link* link = a.transport->link(node);
    return link == nullptr || link->unacknowledged() == 0;
  }));
}

TEST_F(ServerTest, AnActorAndAValueAndTheEnd) {
  Running head(options());
  join(a, head.server->door());
  join(b, head.server->door());
  SpawnActor spawn;
  spawn.request = 7;
  spawn.spec.id = ActorId{3, 4};
  spawn.spec.class_name = "Counter";
  spawn.spec.owner = b.node;
  spawn.spec.demand.need.cpus = scheduling::kUnit;
  a.say(spawn);
  a.say(WatchActor{spawn.spec.id});
  ASSERT_TRUE(drive({&a, &b}, [&] { return b.last<StartActorAt>() != nullptr; }));
  const StartActorAt start = *b.last<StartActorAt>();
  EXPECT_EQ(start.spec->class_name, "Counter");
  EXPECT_EQ(start.incarnation >> 32, b.last<Registered>()->control_epoch);
  b.say(ActorStarted{spawn.spec.id, start.incarnation, 17});
  ASSERT_TRUE(drive({&a, &b}, [&] {
    const auto* seen = a.last<ActorLocation>();
    return seen != nullptr && seen->state == ActorState::alive;
  }));
  EXPECT_EQ(a.last<ActorLocation>()->node, b.node);
  EXPECT_EQ(a.last<ActorReply>()->request, 7u);
  KeyValueRequest put;
  put.request = 8;
  put.verb = KeyValueRequest::Verb::put;
  put.key = "k";
  put.value = std::string(400'000, 'x');  // more than a batch holds
  a.say(put);
  put.request = 9;
  put.verb = KeyValueRequest::Verb::get;
  put.value.clear();
  b.say(put);
  ASSERT_TRUE(drive({&a, &b}, [&] { return a.last<KvReply>() && b.last<KvReply>(); }));
  a.say(ListRequest{10, ListRequest::What::nodes});
  ASSERT_TRUE(drive({&a, &b}, [&] { return a.last<ListReply>() != nullptr; }));
  EXPECT_EQ(a.last<ListReply>()->nodes.size(), 2u);
  head.stop();
  EXPECT_GE(head.server->stats().commits, 2u);
}

/// Nodes with so many labels that a list of them fits no message: its end is cut off and counted.
TEST_F(ServerTest, AListThatFitsNoMessageSaysHowManyRowsAreMissing) {
  std::vector<Agent> agents(5);
  ServerOptions with = options();
  for (const Agent& agent : agents) with.admitted.push_back(agent.info());
  Running head(std::move(with));
  std::vector<NodeId> nodes;
  for (Agent& agent : agents) {
    agent.labels.resize(wire::kMaxLabels);
    for (auto& [key, value] : agent.labels) key = value = std::string(wire::kMaxText, 'x');
    join(agent, head.server->door());
    nodes.push_back(agent.node);
  }
  std::sort(nodes.begin(), nodes.end());
  Agent& asker = agents.front();
  asker.say(ListRequest{3, ListRequest::What::nodes});
  ASSERT_TRUE(drive({&asker}, [&] { return asker.last<ListReply>() != nullptr; }));
  const ListReply& reply = *asker.last<ListReply>();
  ASSERT_FALSE(reply.nodes.empty());
  ASSERT_LT(reply.nodes.size(), nodes.size()) << "it fits: this test needs more labels";
  EXPECT_EQ(reply.nodes.size() + reply.left_off, nodes.size());
  for (std::size_t i = 0; i < reply.nodes.size(); ++i)
    EXPECT_EQ(reply.nodes[i].description.id, nodes[i]) << "the last rows are missing";
}

TEST_F(ServerTest, AProcessThatIsGoneIsNoticedByItsDoor) {
  Running head(options());
  join(a, head.server->door());
  join(b, head.server->door());
  const Time begin = steady_now();
  b.transport.reset();
  ASSERT_TRUE(drive({&a}, [&] { return a.last<NodeIsDead>() != nullptr; }));
  EXPECT_EQ(a.last<NodeIsDead>()->node, b.node);
  EXPECT_LT(steady_now() - begin, 2s);
}

TEST_F(ServerTest, WhoTalksNonsenseIsDroppedAlone) {
  Running head(options());
  join(a, head.server->door());
  join(b, head.server->door());
  for (int times = 0; times < 32; ++times)
    a.send(wire::Protocol::to_control, Blob(64, std::byte{0xAB}));
  ASSERT_TRUE(drive({&a, &b}, [&] { return a.seen<net::PeerDown>() != nullptr; }));
  b.say(ListRequest{1, ListRequest::What::jobs});
  ASSERT_TRUE(drive({&b}, [&] { return b.last<ListReply>() != nullptr; }));
  head.stop();
  EXPECT_EQ(head.server->stats().bad_frames, 1u);
  EXPECT_EQ(head.server->stats().dropped_nodes, 1u);
}

/// The operator reads which strangers knocked, but a stranger cannot fill the disk with such
/// messages.
TEST_F(ServerTest, StrangersAreNamedLessOftenEachTime) {
  testing::internal::CaptureStderr();
  {
    Running head(options());
    for (int times = 0; times < 5; ++times) {
      Agent stranger;
      auto nobodys = net::CurveKeys::generate().value();
      net::JoinToken token{head.server->door(), keys.public_key, nobodys.secret_key.copy()};
      stranger.transport->join(token, encode(JoinAsk{stranger.description()}), steady_now() + 5s);
      EXPECT_TRUE(drive({&stranger}, [&] { return stranger.seen<net::JoinReply>() != nullptr; }));
    }
  }
  flush_log();
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* line : {"its key is not admitted (1 so far)", "(2 so far)", "(4 so far)"})
    EXPECT_NE(said.find(line), std::string::npos) << said;
  EXPECT_EQ(said.find("(3 so far)"), std::string::npos) << said;
}

TEST_F(ServerTest, NobodyRegistersWithTheKeyOfAnother) {
  Running head(options());
  a.meet(node, keys.public_key, head.server->door());
  RegisterNode message;
  message.node = a.description();
  message.node.public_key = b.keys.public_key.str();
  a.say(message);
  ASSERT_TRUE(drive({&a}, [&] { return a.seen<net::PeerDown>() != nullptr; }));
  EXPECT_EQ(a.last<Registered>(), nullptr);
  head.stop();
  EXPECT_TRUE(head.server->service().members().nodes().empty());
}

TEST_F(ServerTest, ATokenLetsOneNodeIn) {
  auto once = net::CurveKeys::generate().value();
  ServerOptions with = options();
  with.admitted = {};
  with.join_keys = {once.public_key};
  Running head(std::move(with));
  const auto ask = [&](Agent& agent) {
    net::JoinToken token{head.server->door(), keys.public_key, once.secret_key.copy()};
    agent.events.clear();
    agent.transport->join(token, encode(JoinAsk{agent.description()}), steady_now() + 5s);
    EXPECT_TRUE(drive({&agent}, [&] { return agent.seen<net::JoinReply>() != nullptr; }));
    return agent.seen<net::JoinReply>()->answer;
  };
  const Result<Blob> answer = ask(a);
  ASSERT_TRUE(answer.ok()) << answer.error().message();
  EXPECT_EQ(decode_join_answer(*answer)->cluster, (ClusterId{1, 2}));
  EXPECT_EQ(decode_join_answer(*answer)->control, node);
  join(a, head.server->door());
  EXPECT_NE(a.epoch, 0u);
  EXPECT_FALSE(ask(b).ok());  // the token is spent
}

TEST_F(ServerTest, ANewControlOnTheSameStoreIsFoundAgain) {
  const Fd file(::memfd_create("troupe-control", MFD_CLOEXEC));
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  ServerOptions with = options();
  with.data_folder = path;
  with.admitted = {a.info()};
  std::string door;
  {
    Running head(std::move(with));
    door = head.server->door();
    join(a, door);
    StartJob job;
    job.job.id = JobId{5, 5};
    job.job.name = "train";
    a.say(job);
    ASSERT_TRUE(drive({&a}, [&] { return a.last<JobReply>() != nullptr; }));
  }
  const Epoch epoch = a.epoch;
  const Epoch before = a.last<Registered>()->control_epoch;
  with = options();
  with.data_folder = path;
  with.listen = door;
  with.admitted = {};  // the store knows the node
  Running head(std::move(with));
  a.say(Heartbeat{});  // makes the agent's Link connect; the message is lost with the old control
  ASSERT_TRUE(drive({&a}, [&] { return a.seen<net::PeerReset>() != nullptr; }));
  join(a, door);
  EXPECT_EQ(a.epoch, epoch);
  EXPECT_GT(a.last<Registered>()->control_epoch, before);
  a.say(GetJob{1, JobId{5, 5}});
  ASSERT_TRUE(drive({&a}, [&] { return a.last<JobInfo>() != nullptr; }));
  ASSERT_TRUE(a.last<JobInfo>()->job.has_value());
  EXPECT_EQ(a.last<JobInfo>()->job->name, "train");
  EXPECT_EQ(a.last<JobInfo>()->job->node, a.node);
}

/// The agent is one whose Registered was lost with the control that sent it.
TEST_F(ServerTest, WhoWasDeclaredDeadAndDoesNotKnowItIsRefusedByTheNextControl) {
  const Fd file(::memfd_create("troupe-control", MFD_CLOEXEC));
  ServerOptions with = options();
  with.data_folder = "/proc/self/fd/" + std::to_string(file.get());
  const std::string folder = with.data_folder;
  std::string door;
  {
    Running head(std::move(with));
    door = head.server->door();
    join(a, door);
    a.say(Leaving{a.node, a.epoch});
    ASSERT_TRUE(drive({&a}, [&] { return a.last<Fence>() != nullptr; }));
  }
  with = options();
  with.data_folder = folder;
  with.listen = door;
  Running head(std::move(with));
  a.told.clear();
  RegisterNode again;
  again.node = a.description();
  again.session = a.session;
  for (int i = 0; i < 100 && a.seen<net::PeerLost>() == nullptr; ++i) {
    a.say(again);
    drive({&a}, [&] { return a.seen<net::PeerLost>() != nullptr; }, 50ms);
  }
  ASSERT_NE(a.seen<net::PeerLost>(), nullptr);
  EXPECT_TRUE(a.seen<net::PeerLost>()->fenced);
  EXPECT_EQ(a.last<Registered>(), nullptr);
  join(b, door);  // other nodes are admitted
  EXPECT_GT(b.epoch, a.epoch);
}

TEST_F(ServerTest, AFolderHasOneControl) {
  std::string path = (fs::temp_directory_path() / "troupe-server-XXXXXX").string();
  const std::string root = ::mkdtemp(path.data());
  ServerOptions with = options();
  with.data_folder = root + "/data";
  auto first = Server::open(std::move(with));
  ASSERT_TRUE(first.ok()) << first.error().message();
  with = options();
  with.data_folder = root + "/data";
  const auto second = Server::open(std::move(with));
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message().find(std::to_string(::getpid())), std::string::npos)
      << second.error().message();
  first->reset();
  fs::remove_all(root);
}

TEST_F(ServerTest, ABusyDoorIsNamed) {
  Running head(options());
  ServerOptions second = options();
  second.listen = head.server->door();
  const auto refused = Server::open(std::move(second));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("127.0.0.1"), std::string::npos);
}

}  // namespace
}  // namespace troupe::control
