// Tests Processes on real sockets and rings, with the processes' ends here: PROCESS-1 to PROCESS-5.
#include "troupe/runtime/agent/processes.hpp"

#include "tests/runtime/agent/played_processes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent::processes_test {
namespace {

constexpr NodeId kOther{0, 2};
constexpr ObjectId kObject{0, 16};

struct ProcessesTest : testing::Test, PlayedProcesses {
  void end(ProcessIndex index) {
    Process& process = *processes.record(index);
    processes.read_to_the_end(process);
    processes.tell_peers(process);
    processes.remove(index);
  }
  std::size_t handled_from(const Peer& peer) const {
    std::size_t count = 0;
    for (const auto& [from, kind] : handled) count += from == peer.index;
    return count;
  }
};

TEST_F(ProcessesTest, StrangerMaySayHelloAndNothingElse) {
  Peer stranger = connect();
  stranger.say(wire::Hello{});
  processes.read_socket(of(stranger));
  EXPECT_EQ(handled_from(stranger), 1u);
  stranger.say(wire::Await{kObject, true});
  processes.read_socket(of(stranger));
  EXPECT_EQ(handled_from(stranger), 1u);
  EXPECT_EQ(processes.find(stranger.index), nullptr) << "its connection ends";
  EXPECT_EQ(of(stranger).objections, 1u);
}

TEST_F(ProcessesTest, ClaimOfAnothersCountIsDroppedAndTheConnectionStays) {
  Peer one = worker();
  wire::Hold hold;
  hold.object = kObject;
  hold.process = kSelf;
  hold.delta = 1;
  EXPECT_TRUE(post(one, hold));
  processes.read_rings();
  EXPECT_EQ(handled_from(one), 0u);
  EXPECT_NE(processes.find(one.index), nullptr);
  hold.process = one.index;
  EXPECT_TRUE(post(one, hold));
  processes.read_rings();
  EXPECT_EQ(handled_from(one), 1u);
}

TEST_F(ProcessesTest, DamagedMessageEndsTheConnection) {
  Peer one = connect();
  const std::array<std::byte, 5> noise{};
  ASSERT_TRUE(one.socket.send(noise, {}));
  processes.read_socket(of(one));
  EXPECT_TRUE(of(one).ending);
  EXPECT_NE(of(one).reason.find("bad message"), std::string::npos);
}

TEST_F(ProcessesTest, EndingProcessGetsNothingAndItsRingIsReadOnceMore) {
  Peer one = worker();
  processes.break_off(of(one), "a test ends it");
  EXPECT_TRUE(processes.has_unread());
  EXPECT_EQ(processes.ending(), std::vector<ProcessIndex>{one.index});
  processes.send(of(one), wire::PeerDied{});
  EXPECT_EQ(one.in_ring<wire::PeerDied>(), 0);
  ASSERT_TRUE(post(one, wire::Await{kObject, true}));
  processes.read_rings();
  EXPECT_EQ(handled_from(one), 0u);
  processes.read_to_the_end(of(one));
  EXPECT_EQ(handled_from(one), 1u);
  EXPECT_TRUE(of(one).ending);
  processes.remove(one.index);
  EXPECT_FALSE(processes.has_unread());
  EXPECT_EQ(processes.record(one.index), nullptr);
}

TEST_F(ProcessesTest, AnswerThatReachesADeadProcessNoMoreDoesNotEndItsLastMessages) {
  Peer one = worker();
  ASSERT_TRUE(post(one, wire::Await{kObject, true}));
  ASSERT_TRUE(post(one, wire::Await{kObject, true}));
  one.socket = {};
  processes.break_off(of(one), "its connection closed");
  answer = [&](Process& from) { processes.send_with(from, wire::PeerDied{}, {}); };
  processes.read_to_the_end(of(one));
  EXPECT_EQ(handled_from(one), 2u);
  EXPECT_TRUE(of(one).ending);
  EXPECT_EQ(of(one).reason, "its connection closed");
}

TEST_F(ProcessesTest, WriterThatNeverPausesDoesNotKeepTheLoop) {
  constexpr std::size_t kFlood = 200'000;
  Peer one = worker(), other = worker();
  std::size_t posted = 0;
  answer = [&](Process& from) {  // the ring never gets empty
    if (from.index == one.index && ++posted < kFlood) (void)post(one, wire::Await{kObject, true});
  };
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(post(one, wire::Await{kObject, true}));
  ASSERT_TRUE(post(other, wire::Await{kObject, true}));
  EXPECT_FALSE(processes.read_rings());
  EXPECT_LT(handled_from(one), kFlood / 2);
  EXPECT_GE(handled_from(one), 100u) << "what was there before has been read";
  EXPECT_EQ(handled_from(other), 1u);
  EXPECT_TRUE(processes.bell().pending()) << "the rest is read in the next pass";
  const std::size_t before = handled_from(one);
  EXPECT_FALSE(processes.read_rings());
  EXPECT_GT(handled_from(one), before);
  processes.break_off(of(one), "a test ends it");
  processes.read_to_the_end(of(one));
  EXPECT_LT(handled_from(one), kFlood) << "it may live, and go on";
}

TEST_F(ProcessesTest, ObserverThatNeverPausesDoesNotKeepTheLoop) {
  constexpr std::size_t kFlood = 5'000;
  Peer one = connect();
  of(one).speaks_as = Talker::observer;
  answer = [&](Process&) {
    if (handled.size() < kFlood) one.say(wire::Inquire{});
  };
  one.say(wire::Inquire{});
  EXPECT_FALSE(processes.read_socket(of(one)));
  EXPECT_LT(handled_from(one), kFlood / 2);
  while (!processes.read_socket(of(one))) {
  }
  EXPECT_EQ(handled_from(one), kFlood);
}

TEST_F(ProcessesTest, ProcessForWhichAMessageIsTooLargeIsBrokenOff) {
  Peer one = worker(), observer = connect();
  of(observer).introduced = true;
  processes.send(of(one), wire::Ready{}, Blob(ring::kMaxFrame));
  processes.send(of(observer), wire::Answer{}, Blob(os::kMaxPacket));
  for (const Peer* peer : {&one, &observer}) {
    EXPECT_TRUE(of(*peer).ending);
    EXPECT_NE(of(*peer).reason.find("larger than"), std::string::npos) << of(*peer).reason;
  }
  Peer other = worker();
  processes.send(of(other), wire::Ready{}, Blob(ring::kMaxFrame - 4096));
  EXPECT_FALSE(of(other).ending);
}

TEST_F(ProcessesTest, TwoProcessesHaveOneChannelWhichComesBeforeAnyMessageAboutTheOther) {
  Peer one = worker(), other = worker();
  processes.connect(one.index, other.index);
  processes.connect(of(other), of(one));
  const auto at_one = one.read<wire::Channel>(), at_other = other.read<wire::Channel>();
  ASSERT_TRUE(at_one && at_other);
  EXPECT_EQ(at_one->peer, other.index);
  EXPECT_EQ(at_other->peer, one.index);
  EXPECT_NE(at_one->side, at_other->side);
  EXPECT_EQ(at_one->my_slot, at_other->peer_slot);
  EXPECT_EQ(at_one->peer_slot, at_other->my_slot);
  EXPECT_FALSE(one.read<wire::Channel>()) << "one channel is enough";
  processes.break_off(of(other), "a test ends it");
  end(other.index);
  EXPECT_EQ(one.in_ring<wire::PeerDied>(), 1);
}

TEST_F(ProcessesTest, SlotIsGivenOutAgainWhenItsProcessIsGone) {
  Peer one = worker(), other = worker();
  const std::uint32_t slot = of(one).slot;
  EXPECT_NE(slot, of(other).slot);
  processes.break_off(of(one), "a test ends it");
  Peer third = worker();
  EXPECT_NE(of(third).slot, slot) << "the ending process is still read";
  end(one.index);
  Peer fourth = worker();
  EXPECT_EQ(of(fourth).slot, slot);
  ASSERT_TRUE(post(fourth, wire::Await{kObject, true}));
  processes.read_rings();
  EXPECT_EQ(handled_from(fourth), 1u);
}

TEST_F(ProcessesTest, ProxyChannelHasSlotsOfBothDoorbellsUntilItIsClosed) {
  Peer one = worker();
  const ProcessIndex proxy_process = remote.connect(one.index, kOther, 44, ActorId{0, 1}, 1);
  const auto channel = one.read<wire::Channel>();
  ASSERT_TRUE(channel);
  EXPECT_EQ(channel->peer, proxy_process);
  EXPECT_TRUE(channel->remote);
  EXPECT_NE(channel->peer_slot, of(one).slot);
  remote.node_died(kOther, "it died", true);
  EXPECT_EQ(take<wire::PeerDied>().size(), 1u);
  Peer other = worker();
  EXPECT_EQ(of(other).slot, channel->peer_slot);
}

TEST_F(ProcessesTest, IndexIsNeverUsedAgain) {
  Peer one = connect();
  const ProcessIndex first = one.index;
  end(first);
  Peer other = connect();
  EXPECT_LT(first, other.index);
  EXPECT_LT(other.index, processes.take_index());
}

TEST_F(ProcessesTest, SocketIsReadBeforeTheLifeOfItsProcessEndsIt) {
  Peer one = connect();
  one.say(wire::Hello{});
  auto life = os::LocalSocket::pair().value();
  of(one).life = std::move(life.first);
  life.second.reset();  // readable from now on
  PollSet set;
  set.add(-1);
  processes.wait_for(set);
  ASSERT_EQ(set.size(), 3u);
  EXPECT_EQ(set.wait(Duration(0)), 2);
  processes.serve(set);
  EXPECT_EQ(handled_from(one), 1u);
  EXPECT_EQ(of(one).reason, "its process ended");
}

TEST_F(ProcessesTest, DriverIsPreferredAsLastingProcess) {
  constexpr JobNumber kJob = 7;
  Peer leaves = worker(), goes_on = worker();
  of(leaves).job_number = of(goes_on).job_number = kJob;
  of(leaves).leaving = true;
  EXPECT_EQ(processes.lasting_process(kJob), goes_on.index);
  Peer driver = worker();
  of(driver).job_number = kJob;
  of(driver).kind = wire::ProcessKind::driver;
  Peer later = worker();
  of(later).job_number = kJob;
  EXPECT_EQ(processes.lasting_process(kJob), driver.index);
  EXPECT_EQ(processes.lasting_process(8), std::nullopt);
}

}  // namespace
}  // namespace troupe::agent::processes_test
