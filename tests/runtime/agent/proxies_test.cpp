// Tests Proxies with the real RemoteTable and real rings: PROXY-1 to PROXY-5.
#include "troupe/runtime/agent/proxies.hpp"

#include "tests/runtime/agent/played_outgoing.hpp"
#include "tests/runtime/agent/quiet_tables.hpp"
#include "troupe/runtime/wire/plain.hpp"

#include <gtest/gtest.h>

#include <unistd.h>
#include <array>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace troupe::agent::proxies_test {
namespace {

using namespace std::chrono_literals;
constexpr NodeId kHere{0, 1}, kOther{0, 2};
constexpr ProcessIndex kProcess = 1, kThere = 44;
constexpr ObjectId kObject{0, 16};

struct ProxiesTest : testing::Test, PlayedOutgoing, Proxies::Rings, Proxies::Nodes {
  struct NoProcesses : Leases::Processes {
    void start_worker(bool, JobNumber) override {}
    void end_worker(ProcessIndex) override {}
    void connect(ProcessIndex, ProcessIndex) override {}
    std::optional<std::pair<JobId, JobNumber>> job_of(ProcessIndex) override { return {}; }
    JobNumber number_of(JobId) override { return 1; }
    std::string why_none_starts(JobId) override { return {}; }
    std::optional<ProcessIndex> lasting_process(JobNumber) override { return {}; }
  };
  /// Keeps what control is to make.
  struct Actors : QuietActors {
    void send(control::ToControl message) override {
      if (const auto* spawn = std::get_if<control::SpawnActor>(&message))
        spec = std::make_shared<const control::ActorSpec>(spawn->spec);
    }
    std::shared_ptr<const control::ActorSpec> spec;
  };
  ProxiesTest() {
    proxy_process = remote.connect(kProcess, kOther, kThere, ActorId{0, 1}, 1);
    to_nodes.clear();
  }
  // Proxies::Rings
  void read_ring(ProcessIndex) override { carried_at_read = frames().size(); }
  void break_off(ProcessIndex process, const std::string&) override { broken.push_back(process); }
  std::optional<Proxies::Opened> open_channel(ProcessIndex, ProcessIndex, ProcessIndex) override {
    auto memory = ring::ChannelMemory::create().value();
    process = ring::Channel(ring::ChannelMemory::attach(Fd(dup(memory.fd()))).value(), 1, bell, 0);
    return Proxies::Opened{ring::Channel(std::move(memory), 0, bell, 0), 3, 4};
  }
  void close_channel(ProcessIndex, std::uint32_t slot, std::uint32_t its_slot) override {
    EXPECT_EQ(slot, 3u);
    EXPECT_EQ(its_slot, 4u);
    ++closed;
  }
  // Proxies::Nodes
  bool may_serve() override { return serves; }
  void drop(NodeId node, const std::string&) override { dropped.push_back(node); }

  /// Returns the frames that left.
  std::vector<Blob> frames() const {
    std::vector<Blob> left;
    for (const auto& sent : to_nodes)
      if (std::holds_alternative<wire::PeerFrame>(sent.message)) left.push_back(sent.payload);
    return left;
  }
  static Blob plain_call(std::uint64_t sequence) {
    wire::PlainCall call;
    call.sequence = sequence;
    wire::PlainFrame frame;
    const BlobView bytes = wire::write_plain(call, frame);
    return Blob(bytes.begin(), bytes.end());
  }
  static Blob call_with(const wire::Value& argument) {
    wire::Call call;
    call.sequence = 1;
    call.arguments = {argument};
    wire::FrameWriter writer;
    const BlobView bytes = writer.encode(wire::CallMessage(call));
    return Blob(bytes.begin(), bytes.end());
  }
  static wire::Value value_with(ObjectId ref) {
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    value.refs = {ref};
    return value;
  }
  static wire::Value place() {
    wire::Value value;
    value.kind = wire::Value::Kind::shared;
    value.location.length = 8;
    return value;
  }
  void arrive(BlobView bytes) {
    wire::PeerFrame frame;
    frame.from = kThere;
    frame.to = kProcess;
    proxies.on_frame(kOther, frame, bytes);
  }
  bool process_reads() {
    std::size_t size = 0;
    return process.receive(buffer.data(), size) == ring::Pop::frame;
  }
  Proxies::Key key() const { return {kProcess, proxy_process}; }
  /// The process hosts an actor.
  void host_actor() {
    constexpr std::uint64_t kLife = (std::uint64_t{1} << 32) + 1;
    wire::CreateActor create;
    create.actor = ActorId{1, 1};
    actors.create(create, {}, JobId{0, 9});
    actors.start({kHere, 1, quiet_actors.spec, kLife, false, 2}, now);
    actors.worker_ready(kLife, kProcess, {});
  }

  Time now{1s};
  QuietReferences quiet;
  Actors quiet_actors;
  NoProcesses none;
  ProcessIndex next = 100;
  bool serves = true;
  std::shared_ptr<ring::Doorbell> bell =
      std::make_shared<ring::Doorbell>(ring::Doorbell::create().value());
  ring::Channel process;  ///< the process's end
  alignas(16) std::array<std::byte, ring::kMaxFrame> buffer{};
  std::vector<ProcessIndex> broken;
  std::vector<NodeId> dropped;
  std::size_t carried_at_read = 0;
  int closed = 0;
  ProcessIndex proxy_process;

  scheduling::LeaseTable table{{}, kHere};
  ReferenceTable references{quiet};
  ActorHost actors{quiet_actors, quiet_actors, kHere};
  Leases leases{kHere, false, {table, remote, actors, lineage, *this, none}};
  LineageCache lineage{references, leases, Bytes{1 << 20}};
  Proxies proxies{kHere, {references, remote, owners, actors, table, leases, *this, *this, *this}};
  RemoteTable remote{proxies, [this] { return next++; }};
  Owners owners{kHere, references, remote};
};

TEST_F(ProxiesTest, ProcessIsReadBeforeItsFramesLeave) {
  ASSERT_TRUE(process.send(plain_call(1)));
  carried_at_read = 99;
  proxies.drain(key());
  EXPECT_EQ(carried_at_read, 0u);
  ASSERT_EQ(frames().size(), 1u);
  EXPECT_EQ(frames()[0], plain_call(1));
}

TEST_F(ProxiesTest, FrameNamesTheOwnersOfItsRefs) {
  ASSERT_TRUE(process.send(call_with(value_with(kObject))));
  proxies.drain(key());
  ASSERT_EQ(to_nodes.size(), 1u);
  const auto& frame = std::get<wire::PeerFrame>(to_nodes[0].message);
  EXPECT_EQ(frame.to, kThere);
  ASSERT_EQ(frame.refs.size(), 1u);
  EXPECT_EQ(frame.refs[0].object, kObject);
  EXPECT_EQ(frame.refs[0].owner, kHere);
}

TEST_F(ProxiesTest, FramesWaitWhileTheNetworkHasNoRoom) {
  full.insert(kOther);
  ASSERT_TRUE(process.send(plain_call(1)));
  proxies.drain(key());
  proxies.resume(kOther);
  EXPECT_TRUE(frames().empty());
  full.clear();
  proxies.resume(kHere);
  EXPECT_TRUE(frames().empty()) << "another node has room";
  proxies.resume(kOther);
  EXPECT_EQ(frames().size(), 1u);
}

TEST_F(ProxiesTest, ProcessHearsOfTheDeathAfterAllThatArrived) {
  const Blob large = plain_call(1);
  std::size_t sent = 0;
  for (; sent < 2000; ++sent) arrive(large);
  remote.node_died(kOther, "it died", true);
  EXPECT_TRUE(take<wire::PeerDied>().empty()) << "the ring has no room for all";
  std::size_t read = 0;
  while (process_reads()) {
    ++read;
    proxies.drain(key());
  }
  EXPECT_EQ(read, sent);
  EXPECT_EQ(take<wire::PeerDied>().size(), 1u);
  EXPECT_EQ(closed, 1);
}

TEST_F(ProxiesTest, FramesThatWereNotCarriedAreDropped) {
  full.insert(kOther);
  ASSERT_TRUE(process.send(plain_call(1)));
  proxies.drain(key());
  remote.node_died(kOther, "it died", true);
  ASSERT_TRUE(process.send(plain_call(2)));  // it has not read PeerDied
  full.clear();
  proxies.drop_written_since(key());
  proxies.resume(kOther);
  EXPECT_TRUE(frames().empty());
  EXPECT_EQ(take<wire::PeerDied>().size(), 1u);
}

TEST_F(ProxiesTest, PlaceInMemoryPassesInNeitherDirection) {
  ASSERT_TRUE(process.send(call_with(place())));
  proxies.drain(key());
  EXPECT_EQ(broken, std::vector<ProcessIndex>{kProcess});
  EXPECT_TRUE(frames().empty());
  arrive(call_with(place()));
  EXPECT_EQ(dropped, std::vector<NodeId>{kOther});
  EXPECT_FALSE(process_reads());
}

TEST_F(ProxiesTest, FrameWithUnnamedRefsDropsItsConnection) {
  arrive(call_with(value_with(kObject)));
  EXPECT_EQ(dropped, std::vector<NodeId>{kOther});
  EXPECT_FALSE(process_reads());
}

TEST_F(ProxiesTest, AnswersOfAnActorStayWhileTheNodeMayNotServe) {
  host_actor();
  serves = false;
  ASSERT_TRUE(process.send(plain_call(1)));
  proxies.drain(key());
  proxies.release_answers();
  EXPECT_TRUE(frames().empty());
  arrive(plain_call(1));
  EXPECT_EQ(dropped, std::vector<NodeId>{kOther}) << "its calls are refused";
  serves = true;
  proxies.release_answers();
  EXPECT_EQ(frames().size(), 1u);
}

TEST_F(ProxiesTest, FramesOfAProcessThatEndsLeaveWithoutRoom) {
  full.insert(kOther);
  for (std::uint64_t i = 1; i <= 10; ++i) ASSERT_TRUE(process.send(plain_call(i)));
  proxies.drain_to_the_end(kProcess);
  EXPECT_EQ(frames().size(), 10u);
}

}  // namespace
}  // namespace troupe::agent::proxies_test
