// Tests Peers: PEER-1 to PEER-5, and which peer is watched.
#include "troupe/runtime/client/peers.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::client::peers_test {
namespace {

constexpr ProcessIndex kOne = 11, kTwo = 12;

Fd copy_of(int descriptor) {
  return Fd(::dup(descriptor));
}

struct PeersTest : testing::Test {
  PeersTest() : bell(ring::Doorbell::create().value()) {
    peers.bell() = ring::Doorbell::create().value();
  }
  /// Announces a channel as the agent does.
  Result<Peers::Peer*> open(std::uint32_t slot, ProcessIndex process, std::uint32_t side = 1) {
    memories.push_back(ring::ChannelMemory::create().value());
    std::vector<Fd> descriptors;
    descriptors.push_back(copy_of(memories.back().fd()));
    descriptors.push_back(copy_of(bell.memory_fd()));
    descriptors.push_back(copy_of(bell.event_fd()));
    return peers.open(wire::Channel{process, side, slot, slot}, std::move(descriptors));
  }
  Peers::Peer& opened(std::uint32_t slot, ProcessIndex process) {
    return *open(slot, process).value();
  }

  ring::Doorbell bell;  ///< of all the other processes
  std::vector<ring::ChannelMemory> memories;
  Peers peers;
};

TEST_F(PeersTest, ChannelForASlotInUseWaitsUntilItsPeerIsRemoved) {
  Peers::Peer& first = opened(2, kOne);
  EXPECT_EQ(open(2, kTwo).value(), nullptr);
  EXPECT_EQ(open(2, 13).value(), nullptr);
  EXPECT_EQ(peers.find(kTwo), nullptr);
  EXPECT_EQ(peers.at(2), &first);
  auto next = peers.remove(first);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->message.peer, kTwo);
  EXPECT_EQ(peers.find(kOne), nullptr);
  Peers::Peer* second = peers.open(next->message, std::move(next->descriptors)).value();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(peers.find(kTwo), second);
  next = peers.remove(*second);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->message.peer, ProcessIndex{13});
  EXPECT_EQ(peers.at(2), nullptr);
}

TEST_F(PeersTest, ChannelOfAProcessThatDiedBeforeIsRefusedOnce) {
  peers.died_before(kOne);
  EXPECT_EQ(open(2, kOne).value(), nullptr);
  EXPECT_EQ(peers.at(2), nullptr);
  EXPECT_NE(open(2, kOne).value(), nullptr);
}

TEST_F(PeersTest, BrokenChannelIsAnError) {
  EXPECT_FALSE(open(ring::kMaxSlots, kOne));
  EXPECT_FALSE(open(2, kOne, 2));
  EXPECT_FALSE(peers.open(wire::Channel{kOne, 1, 2, 2}, {}));
  EXPECT_EQ(peers.find(kOne), nullptr);
}

TEST_F(PeersTest, GrantsAndLivesWaitForAChannelAndGoWithTheirProcess) {
  for (const ProcessIndex worker : {kOne, kTwo}) {
    wire::LeaseGranted grant;
    grant.lease = LeaseId::of(worker.value);
    grant.worker = worker;
    peers.wait(grant);
    wire::ActorUpdate update;
    update.worker = worker;
    peers.wait(update);
  }
  peers.reclaim(LeaseId::of(kTwo.value));
  peers.drop_waiting(kOne);
  EXPECT_EQ(peers.updates().size(), 1u);
  const auto grants = peers.take_grants();
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].grant.worker, kTwo);
  EXPECT_TRUE(grants[0].reclaimed);
  EXPECT_TRUE(peers.take_grants().empty());
  const auto updates = peers.take_updates();
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].worker, kTwo);
}

TEST_F(PeersTest, DeadPeerIsFoundByNothingButItsSlot) {
  Peers::Peer& peer = opened(2, kOne);
  peers.heard(peer);
  EXPECT_EQ(peers.of(kOne), &peer);
  EXPECT_TRUE(peers.watch());
  EXPECT_EQ(peers.bell().watched(), &peer.channel.input());
  peer.started = 1;
  EXPECT_TRUE(peers.has_unanswered());
  peers.heard(peer);
  peers.give_up(peer);
  EXPECT_EQ(peers.of(kOne), nullptr);
  EXPECT_EQ(peers.find(kOne), nullptr);
  EXPECT_EQ(peers.bell().watched(), nullptr);
  EXPECT_FALSE(peers.watch());
  EXPECT_FALSE(peers.has_unanswered());
  EXPECT_EQ(peers.at(2), &peer);
  EXPECT_EQ(peers.any(kOne), &peer);
}

TEST_F(PeersTest, FarEndOfTheOwnChannelIsFoundByItsSlotAlone) {
  Peers::Peer& near = opened(2, kOne);
  Peers::Peer& far = opened(3, kOne);
  EXPECT_FALSE(near.far_end);
  EXPECT_TRUE(far.far_end);
  peers.heard(far);
  EXPECT_EQ(peers.of(kOne), &near);
  EXPECT_EQ(peers.at(3), &far);
}

TEST_F(PeersTest, WatchMovesAfterEightMessagesOfOthers) {
  Peers::Peer& one = opened(2, kOne);
  Peers::Peer& two = opened(3, kTwo);
  EXPECT_FALSE(peers.watch());
  peers.heard(one);
  EXPECT_TRUE(peers.watch());
  for (int i = 0; i < 7; ++i) {
    peers.heard(two);
    EXPECT_TRUE(peers.watch());
  }
  EXPECT_EQ(peers.bell().watched(), &one.channel.input());
  peers.heard(two);
  EXPECT_TRUE(peers.watch());
  EXPECT_EQ(peers.bell().watched(), &two.channel.input());
}

TEST_F(PeersTest, BegunCallsArePublishedToTheirCaller) {
  Peers::Peer& peer = opened(2, kOne);
  peers.begin_call(kOne, 3);
  peers.begin_call(kOne, 2);
  peers.begin_call(kTwo, 9);
  EXPECT_EQ(peer.started, 3u);
  ring::Channel theirs(std::move(memories.front()), 0, nullptr, 0);
  EXPECT_EQ(theirs.peer_progress().started, 3u);
}

TEST_F(PeersTest, SlotsWithNewsAreDrainedUntilThereIsNone) {
  std::vector<std::uint32_t> drained;
  peers.bell().mark(5);
  peers.each_ready([&](std::uint32_t slot) {
    drained.push_back(slot);
    if (slot == 5) peers.bell().mark(6);
  });
  EXPECT_EQ(drained, (std::vector<std::uint32_t>{5, 6}));
}

}  // namespace
}  // namespace troupe::client::peers_test
