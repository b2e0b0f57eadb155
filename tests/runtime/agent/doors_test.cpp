// Tests Doors with a launcher and visitors on real sockets: DOOR-1, DOOR-2, and the most
// visitors of DOOR-3. No accept() fails here, so the local socket never rests.
#include "troupe/runtime/agent/doors.hpp"

#include "troupe/runtime/os/launch.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent::doors_test {
namespace {

using namespace std::chrono_literals;

struct DoorsTest : testing::Test {
  DoorsTest() {
    auto ends = os::LocalSocket::pair().value();
    doors.set_launcher(std::move(ends.first));
    launcher = os::LocalSocket(std::move(ends.second));
  }
  void open(std::size_t together = 1) { ASSERT_TRUE(doors.open(name, together).ok()); }
  /// Returns what is ready now.
  PollSet& ready() {
    set.clear();
    doors.wait_for(set, steady_now());
    set.wait(Duration(0));
    return set;
  }

  const std::string name = os::door_name(ClusterId::random(), NodeId::random());
  Doors doors;
  os::LocalSocket launcher;
  PollSet set;
};

TEST_F(DoorsTest, LauncherIsToldOnceWhenTheNodesThatStartTogetherAreKnown) {
  open(3);
  std::vector<std::byte> packet(os::kMaxPacket);
  doors.tell_launcher(2, "tcp://here:1");
  EXPECT_EQ(launcher.receive(packet).kind, os::Received::Kind::empty);
  doors.tell_launcher(3, "tcp://here:1");
  doors.tell_launcher(4, "tcp://here:2");
  const auto told = os::receive_ready(launcher.fd(), 1s, "the node");
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told.value().door, "tcp://here:1");
  EXPECT_EQ(launcher.receive(packet).kind, os::Received::Kind::empty);
}

TEST_F(DoorsTest, NodeIsOverWhenTheLauncherIsGone) {
  EXPECT_FALSE(doors.is_over(ready()));
  ASSERT_TRUE(launcher.send(Blob(3), {}));
  EXPECT_FALSE(doors.is_over(ready())) << "nobody reads what it says";
  EXPECT_FALSE(doors.is_over(ready()));
  EXPECT_EQ(set.wait(Duration(0)), 0) << "it was read away";
  ASSERT_TRUE(launcher.send(Blob(3), {}));
  launcher = {};
  EXPECT_TRUE(doors.is_over(ready()));
}

TEST_F(DoorsTest, VisitorsEnterInTheirOrder) {
  open();
  EXPECT_TRUE(doors.visitors(ready()).empty());
  std::vector<os::LocalSocket> outside;
  for (int i = 0; i < 3; ++i) {
    auto visitor = os::knock(name);
    ASSERT_TRUE(visitor.ok());
    outside.emplace_back(std::move(visitor->socket));
    ASSERT_TRUE(outside.back().send(Blob(static_cast<std::size_t>(1 + i)), {}));
  }
  const std::vector<Fd> inside = doors.visitors(ready());
  ASSERT_EQ(inside.size(), 3u);
  std::vector<std::byte> packet(os::kMaxPacket);
  for (std::size_t i = 0; i < 3; ++i) {
    os::LocalSocket socket(Fd(fcntl(inside[i].get(), F_DUPFD_CLOEXEC, 0)));
    EXPECT_EQ(socket.receive(packet).size, 1 + i);
  }
  EXPECT_TRUE(doors.visitors(ready()).empty());
  EXPECT_EQ(doors.next_deadline(steady_now()), Time::max());
}

TEST_F(DoorsTest, VisitorsBeyondTheMostEnterInTheNextPass) {
  open();
  std::vector<Fd> outside;
  for (std::size_t i = 0; i < Doors::kMostVisitors + 1; ++i)
    outside.push_back(std::move(os::knock(name).value().socket));
  EXPECT_EQ(doors.visitors(ready()).size(), Doors::kMostVisitors);
  EXPECT_EQ(doors.visitors(ready()).size(), 1u);
}

TEST_F(DoorsTest, NameThatIsTakenIsAnError) {
  open();
  Doors other;
  EXPECT_EQ(other.open(name, 1).error().code(), Code::unavailable);
}

}  // namespace
}  // namespace troupe::agent::doors_test
