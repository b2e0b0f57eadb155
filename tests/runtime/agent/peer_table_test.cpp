// Tests PeerTable: records and their states, keys that move between nodes, deaths that are
// forgotten at last, and what control's list says.
#include "troupe/runtime/agent/peer_table.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::peer_table_test {
namespace {

using namespace std::chrono_literals;
using State = NetworkPeer::State;

const NodeId kSelf{0, 1}, kControl{0, 2}, kA{0, 3}, kB{0, 4};

net::PublicKey key_of(int number) {
  net::PublicKey key;
  key.bytes[0] = static_cast<std::byte>(number);
  return key;
}

struct PeerTableTest : testing::Test {
  PeerTable peers{kControl};
  Time now = Time{} + 100s;

  NetworkPeer& member(NodeId node, int key) {
    NetworkPeer& peer = peers.add(node, now);
    EXPECT_EQ(peers.take_key(key_of(key), node), NodeId{});
    peers.set_key(peer, key_of(key));
    peers.set_state(peer, State::member);
    return peer;
  }
};

TEST_F(PeerTableTest, ARecordKeepsItsAddressUntilItIsErased) {
  NetworkPeer& a = peers.add(kA, now + 1s);
  EXPECT_EQ(a.until, now + 1s);
  for (std::uint64_t i = 0; i < 100; ++i) peers.add(NodeId{1, i}, now);
  EXPECT_EQ(peers.find(kA), &a);
  EXPECT_EQ(peers.find(kA), &a) << "the node of the last call";
  EXPECT_EQ(peers.find(kControl), &peers.control());
  EXPECT_EQ(peers.find(kB), nullptr);
  ASSERT_EQ(peers.find(kA), &a);
  peers.erase(a);
  EXPECT_EQ(peers.find(kA), nullptr);
}

TEST_F(PeerTableTest, OnlyUnknownNodesCountAgainstTheBound) {
  peers.set_state(peers.control(), State::member);
  for (std::uint64_t i = 0; i < PeerTable::kMostUnknown; ++i) {
    ASSERT_TRUE(peers.may_wait_for_more()) << i;
    peers.add(NodeId{1, i}, now);
  }
  EXPECT_FALSE(peers.may_wait_for_more());
  peers.set_state(*peers.find(NodeId{1, 0}), State::member);
  EXPECT_TRUE(peers.may_wait_for_more());
  peers.set_state(*peers.find(NodeId{1, 1}), State::member);
  peers.set_state(*peers.find(NodeId{1, 1}), State::unknown);
  peers.set_state(*peers.find(NodeId{1, 0}), State::unknown);
  EXPECT_FALSE(peers.may_wait_for_more());
  peers.erase(*peers.find(NodeId{1, 2}));
  EXPECT_TRUE(peers.may_wait_for_more());
}

TEST_F(PeerTableTest, TheFirstReasonToEndStays) {
  NetworkPeer& a = member(kA, 1);
  EXPECT_TRUE(a.listens());
  peers.end_later(a, "first");
  peers.end_later(a, "second");
  EXPECT_FALSE(a.listens());
  EXPECT_EQ(a.end_reason, "first");
  EXPECT_TRUE(peers.has_ending());
  EXPECT_EQ(peers.take_ending(), std::vector<NodeId>{kA});
  EXPECT_FALSE(peers.has_ending());
}

TEST_F(PeerTableTest, AKeyBelongsToOneNode) {
  member(kA, 1);
  EXPECT_EQ(peers.take_key(key_of(1), kA), NodeId{});
  NetworkPeer& b = member(kB, 2);
  EXPECT_EQ(peers.take_key(key_of(1), kB), kA);
  peers.set_key(b, key_of(1));
  EXPECT_EQ(peers.take_key(key_of(2), kA), NodeId{}) << "the former key of B is nobody's";
  peers.set_key(*peers.find(kA), key_of(2));
  peers.erase(b);
  EXPECT_EQ(peers.take_key(key_of(1), kA), NodeId{}) << "a key goes with its owner";
}

TEST_F(PeerTableTest, AnErasedNodeTakesNoKeyOfAnother) {
  NetworkPeer& a = member(kA, 1);
  EXPECT_EQ(peers.take_key(key_of(1), kB), kA);
  peers.erase(a);
  EXPECT_EQ(peers.take_key(key_of(1), kA), kB);
}

TEST_F(PeerTableTest, ANodeDiesOnceAndControlNever) {
  EXPECT_FALSE(peers.note_death(kControl));
  EXPECT_FALSE(peers.is_dead(kControl));
  EXPECT_TRUE(peers.note_death(kA));
  EXPECT_FALSE(peers.note_death(kA));
  EXPECT_TRUE(peers.is_dead(kA));
  for (std::uint64_t i = 0; i < PeerTable::kMostDead - 1; ++i) peers.note_death(NodeId{1, i});
  EXPECT_TRUE(peers.is_dead(kA));
  peers.note_death(kB);
  EXPECT_FALSE(peers.is_dead(kA)) << "the oldest death is forgotten";
  EXPECT_TRUE(peers.is_dead(kB));
}

TEST_F(PeerTableTest, TheNewestLifeHasTheKey) {
  peers.set_key(peers.control(), key_of(9));
  control::ClusterNodes nodes;
  const auto add = [&](NodeId node, std::string key, Epoch epoch) {
    control::ClusterRow row;
    row.description.id = node;
    row.description.public_key = std::move(key);
    row.epoch = epoch;
    nodes.rows.push_back(row);
  };
  add(kA, key_of(1).str(), 5);
  add(kB, key_of(1).str(), 6);
  add(NodeId{1, 1}, "no key", 1);
  add(kSelf, key_of(3).str(), 1);
  add(kControl, key_of(4).str(), 1);
  add(NodeId{1, 2}, key_of(8).str(), 1);  // with the key of this node
  add(NodeId{1, 3}, key_of(9).str(), 1);  // with that of control
  const PeerTable::Rows rows = peers.newest_rows(nodes, kSelf, key_of(8));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.begin()->first, key_of(1));
  EXPECT_EQ(rows.begin()->second->description.id, kB);
}

TEST_F(PeerTableTest, SuspectsAreOtherNodesThatAreNotDead) {
  control::ClusterNodes nodes;
  for (const NodeId node : {kSelf, kA, kB}) {
    nodes.rows.emplace_back().description.id = node;
    nodes.rows.back().suspect = true;
  }
  nodes.rows.emplace_back().description.id = NodeId{1, 1};
  peers.note_death(kB);
  EXPECT_EQ(peers.suspects(nodes, kSelf), std::set<NodeId>{kA});
}

TEST_F(PeerTableTest, MembersAreAbsentSinceTheFirstListWithoutThem) {
  NetworkPeer& a = member(kA, 1);
  NetworkPeer& b = peers.add(kB, now);
  peers.set_state(peers.control(), State::member);
  peers.all_absent(now);
  peers.all_absent(now + 1s);
  EXPECT_EQ(a.absent_since, now);
  EXPECT_EQ(b.absent_since, NetworkPeer::kNever) << "it is not listed yet";
  EXPECT_EQ(peers.control().absent_since, NetworkPeer::kNever);
}

TEST_F(PeerTableTest, OutOfReachAreWantedMembersWithoutAConnection) {
  NetworkPeer& a = member(kA, 1);
  NetworkPeer& b = member(kB, 2);
  a.unreached_since = b.unreached_since = peers.control().unreached_since = now;
  peers.set_state(peers.control(), State::member);
  a.touched = peers.control().touched = true;
  EXPECT_EQ(peers.out_of_reach(now + 2s, 3s, 9), std::vector<NodeId>{});
  EXPECT_EQ(peers.out_of_reach(now + 3s, 3s, 9), std::vector<NodeId>{kA});
  b.kept = true;
  EXPECT_EQ(peers.out_of_reach(now + 3s, 3s, 9), (std::vector<NodeId>{kA, kB}));
  EXPECT_EQ(peers.out_of_reach(now + 3s, 3s, 1), std::vector<NodeId>{kA});
  a.touched = false;
  peers.set_state(a, State::dropped);
  EXPECT_EQ(peers.out_of_reach(now + 3s, 3s, 1), std::vector<NodeId>{kA});
  a.unreached_since = NetworkPeer::kNever;
  EXPECT_EQ(peers.out_of_reach(now + 3s, 3s, 9), std::vector<NodeId>{kB});
}

}  // namespace
}  // namespace troupe::agent::peer_table_test
