// Tests SendQueues: a peer with frames is visited until they are gone, and a peer with too many is
// congested until few are left.
#include "troupe/runtime/agent/send_queues.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::send_queues_test {
namespace {

using wire::Protocol;

const NodeId kControl{0, 1}, kA{0, 2};

struct SendQueuesTest : testing::Test {
  PeerTable peers{kControl};
  SendQueues queues{{.batch = 100, .high = 1000, .low = 300}};
  NetworkPeer& a = peers.add(kA, Time{});
  const Blob frame = Blob(80);
  std::vector<NodeId> visited;

  void SetUp() override { peers.set_state(a, NetworkPeer::State::member); }
  void append(int count) {
    for (int i = 0; i < count; ++i) queues.append(a, Protocol::peer, frame);
  }
  /// Flushes; the Link of each peer takes so many batches.
  void flush(int batches) {
    visited.clear();
    queues.flush([&](NetworkPeer& peer) {
      visited.push_back(peer.node);
      for (int i = 0; i < batches && !peer.out.empty(); ++i) peer.out.take();
    });
  }
};

TEST_F(SendQueuesTest, APeerIsVisitedUntilItsFramesAreGone) {
  EXPECT_FALSE(queues.unflushed());
  append(3);
  EXPECT_TRUE(queues.unflushed());
  flush(1);
  EXPECT_FALSE(queues.unflushed());
  EXPECT_EQ(visited, std::vector<NodeId>{kA});
  flush(2);
  EXPECT_EQ(visited, std::vector<NodeId>{kA});
  EXPECT_TRUE(a.out.empty());
  flush(1);
  EXPECT_TRUE(visited.empty());
}

TEST_F(SendQueuesTest, APeerThatDoesNotListenKeepsItsFrames) {
  peers.set_state(a, NetworkPeer::State::unknown);
  append(1);
  flush(1);
  EXPECT_TRUE(visited.empty());
  peers.set_state(a, NetworkPeer::State::member);
  peers.end_later(a, "over");
  flush(1);
  EXPECT_TRUE(visited.empty());
  a.end_reason.clear();
  flush(1);
  EXPECT_EQ(visited, std::vector<NodeId>{kA});
}

TEST_F(SendQueuesTest, UrgentFramesGoFirst) {
  append(1);
  const Blob urgent(10);
  queues.append_urgent(a, Protocol::between_agents, urgent);
  EXPECT_EQ(a.out.next_size(), wire::batched_size(urgent.size()));
  flush(1);
  EXPECT_EQ(a.out.next_size(), wire::batched_size(frame.size()));
}

TEST_F(SendQueuesTest, CongestionEndsOnceWhenFewBytesAreLeft) {
  append(10);
  EXPECT_FALSE(a.congested);
  append(3);
  EXPECT_TRUE(a.congested);
  flush(5);
  EXPECT_TRUE(a.congested) << "more than `low` bytes are left";
  EXPECT_FALSE(queues.has_relieved());
  flush(5);
  EXPECT_FALSE(a.congested);
  EXPECT_EQ(queues.take_relieved(), std::vector<NodeId>{kA});
  flush(5);
  EXPECT_FALSE(queues.has_relieved());
}

TEST_F(SendQueuesTest, APeerThatEndsIsNotRelieved) {
  append(20);
  queues.flush([&](NetworkPeer& peer) {
    while (!peer.out.empty()) peer.out.take();
    peers.end_later(peer, "its Link refuses");
  });
  EXPECT_TRUE(a.congested);
  EXPECT_FALSE(queues.has_relieved());
}

TEST_F(SendQueuesTest, AForgottenPeerIsNotVisited) {
  append(1);
  queues.forget(a);
  peers.erase(a);
  flush(1);
  EXPECT_TRUE(visited.empty());
}

}  // namespace
}  // namespace troupe::agent::send_queues_test
