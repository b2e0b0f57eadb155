/// Tests what a process without a free descriptor receives.
#include "troupe/runtime/os/local_socket.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace troupe::os {
namespace {

using Kind = Received::Kind;

/// Takes all descriptors of this process while it lives.
class AllDescriptors {
 public:
  AllDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{std::min<rlim_t>(before_.rlim_cur, 256), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    for (Fd fd; (fd = make_fd(open("/dev/null", O_RDONLY | O_CLOEXEC)));)
      taken_.push_back(std::move(fd));
  }
  ~AllDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  void close_one() { taken_.pop_back(); }

 private:
  rlimit before_{};
  std::vector<Fd> taken_;
};

struct LocalSockets : testing::Test {
  LocalSockets() {
    auto ends = LocalSocket::pair().value();
    here = LocalSocket(std::move(ends.first));
    there = LocalSocket(std::move(ends.second));
  }
  void send(const char* text, std::span<const int> descriptors) {
    const auto* bytes = reinterpret_cast<const std::byte*>(text);
    ASSERT_TRUE(there.send({bytes, 1}, descriptors));
  }
  Received receive() { return here.receive(buffer); }
  char text() const { return static_cast<char>(buffer[0]); }

  LocalSocket here, there;
  std::array<std::byte, 16> buffer{};
};

TEST_F(LocalSockets, APacketWaitsWhileThereIsNoRoomForItsDescriptors) {
  const std::array<int, 2> both{0, 1};
  send("a", both);
  send("b", {});
  {
    AllDescriptors all;
    EXPECT_EQ(receive().kind, Kind::starved);
    EXPECT_EQ(text(), 'a') << "its bytes say what waits";
    all.close_one();
    EXPECT_EQ(receive().kind, Kind::starved) << "one is not enough";
    EXPECT_FALSE(here.is_hung_up());
  }
  const Received whole = receive();
  EXPECT_EQ(whole.kind, Kind::packet);
  EXPECT_EQ(whole.descriptors.size(), 2u);
  EXPECT_EQ(receive().kind, Kind::packet);
  EXPECT_EQ(text(), 'b');
  EXPECT_EQ(receive().kind, Kind::empty);
}

TEST_F(LocalSockets, ALackDoesNotHideThePeersEnd) {
  const std::array<int, 1> one{0};
  send("a", one);
  there.shut_down();
  const AllDescriptors all;
  EXPECT_EQ(receive().kind, Kind::starved);
  EXPECT_TRUE(here.is_hung_up());
  here.skip();
  EXPECT_EQ(receive().kind, Kind::closed);
}

}  // namespace
}  // namespace troupe::os
