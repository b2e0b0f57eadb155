// Tests the local socket of a node: processes of the same user connect, and others are refused.
#include "troupe/runtime/os/local_listener.hpp"

#include "tests/runtime/net/proxy.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

namespace troupe::os {
namespace {

constexpr uid_t kStranger = 65534;

std::string fresh_name() {
  return door_name(ClusterId::random(), NodeId::random());
}

bool readable(int fd, int limit_ms = 5000) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, limit_ms) == 1;
}

/// Runs the check as another user and returns its exit code.
template <class Check>
int as_stranger(Check check) {
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(kStranger, kStranger, kStranger) != 0) _exit(100);
    _exit(check());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

TEST(LocalListener, TheSameUserComesInAndTalks) {
  const std::string name = fresh_name();
  LocalListener door = LocalListener::listen(name).value();
  EXPECT_FALSE(door.accept().has_value());
  Visitor mine = knock(name).value();
  EXPECT_EQ(mine.pid, getpid());
  ASSERT_TRUE(readable(door.fd()));
  auto visitor = door.accept();
  ASSERT_TRUE(visitor.has_value());
  EXPECT_EQ(visitor->pid, getpid());
  ASSERT_EQ(send(mine.socket.get(), "hello", 5, 0), 5);
  char text[8] = {};
  ASSERT_TRUE(readable(visitor->socket.get()));
  EXPECT_EQ(recv(visitor->socket.get(), text, sizeof text, 0), 5);
  EXPECT_EQ(std::string(text), "hello");
  EXPECT_EQ(door.refused(), 0u);
}

TEST(LocalListener, AnotherUserIsRefusedAndTheNextIsServed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can play another user";
  const std::string name = fresh_name();
  LocalListener door = LocalListener::listen(name).value();
  // The stranger notices on its side that another user owns the socket.
  EXPECT_EQ(as_stranger([&] {
              auto socket = knock(name);
              if (socket.ok()) return 1;
              return socket.error().code() == Code::invalid_argument ? 0 : 2;
            }),
            0);
  // A stranger that does not look is disconnected by the listener, which reads nothing from it.
  EXPECT_EQ(as_stranger([&] {
              sockaddr_un address{};
              address.sun_family = AF_UNIX;
              name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
              const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
              const auto size =
                  static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
              if (connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) return 3;
              return send(fd, "hello", 5, MSG_NOSIGNAL) == 5 ? 0 : 4;
            }),
            0);
  Visitor mine = knock(name).value();
  ASSERT_TRUE(readable(door.fd()));
  auto visitor = door.accept();
  ASSERT_TRUE(visitor.has_value());
  EXPECT_EQ(visitor->pid, getpid());
  EXPECT_EQ(door.refused(), 2u);
  EXPECT_FALSE(door.accept().has_value());
}

TEST(LocalListener, WhoComesWhenNoDescriptorIsLeftIsClosedAndTheNextIsServed) {
  const std::string name = fresh_name();
  LocalListener door = LocalListener::listen(name).value();
  const auto unlucky = knock(name);
  ASSERT_TRUE(unlucky);
  {
    const test::Descriptors taken(0);
    EXPECT_FALSE(door.accept());
    EXPECT_EQ(door.refused(), 1u);
    EXPECT_FALSE(readable(door.fd(), 0)) << "the loop that serves it would turn for nothing";
    EXPECT_TRUE(readable(unlucky->socket.get())) << "it hears of it";
  }
  const auto lucky = knock(name);
  ASSERT_TRUE(lucky);
  EXPECT_TRUE(door.accept());
}

int calls = 0;
/// Every other call says that no descriptor is left; the calls between find a visitor.
int accept_without_end(int) {
  if (++calls % 2 == 0) return open("/dev/null", O_RDONLY | O_CLOEXEC);
  errno = EMFILE;
  return -1;
}

TEST(LocalListener, OneCallRefusesABoundedNumberOfVisitors) {
  LocalListener door = LocalListener::listen(fresh_name(), accept_without_end).value();
  EXPECT_FALSE(door.accept());
  const std::uint64_t first = door.refused();
  EXPECT_GT(first, 0u);
  EXPECT_FALSE(door.accept());
  EXPECT_EQ(door.refused(), 2 * first);
}

int accept_error = 0;
int accept_or_fail(int listener) {
  if (accept_error == 0) return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  errno = accept_error;
  return -1;
}

TEST(LocalListener, RestsWhileTheKernelLetsNobodyIn) {
  const std::string name = fresh_name();
  LocalListener door = LocalListener::listen(name, accept_or_fail).value();
  const auto patient = knock(name);
  ASSERT_TRUE(patient);
  for (const int error : {ENOMEM, ENOBUFS, EPERM, EPROTO, EMFILE}) {
    accept_error = error;
    const Time before = steady_now();
    EXPECT_FALSE(door.accept());
    EXPECT_TRUE(readable(door.fd(), 0)) << "so who polls it now turns for nothing";
    EXPECT_GE(door.opens_at(), before + LocalListener::kRest) << error;
    EXPECT_LT(door.opens_at(), steady_now() + 2 * LocalListener::kRest) << error;
  }
  accept_error = 0;
  EXPECT_TRUE(door.accept()) << "who waited is not lost";
  const Time open = door.opens_at();
  EXPECT_FALSE(door.accept());
  EXPECT_EQ(door.opens_at(), open) << "nobody waits: the next one rings";
}

TEST(LocalListener, ATakenNameAndAnEmptyOneAreRefused) {
  const std::string name = fresh_name();
  LocalListener door = LocalListener::listen(name).value();
  const auto again = LocalListener::listen(name);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code(), Code::unavailable);
  EXPECT_NE(again.error().message().find(name), std::string::npos);
  EXPECT_EQ(LocalListener::listen("").error().code(), Code::invalid_argument);
  EXPECT_EQ(LocalListener::listen(std::string(101, 'x')).error().code(), Code::invalid_argument);
  EXPECT_EQ(knock(std::string("a\0b", 3)).error().code(), Code::invalid_argument);
}

TEST(LocalListener, ADoorThatIsGoneIsUnavailableAtOnce) {
  const std::string name = fresh_name();
  EXPECT_EQ(knock(name).error().code(), Code::unavailable);
  {
    LocalListener door = LocalListener::listen(name).value();
  }
  EXPECT_EQ(knock(name).error().code(), Code::unavailable);
  EXPECT_TRUE(LocalListener::listen(name).ok()) << "and its name is free again";
}

TEST(LocalListener, AFullQueueDoesNotBlock) {
  const std::string name = fresh_name();
  LocalListener door = LocalListener::listen(name).value();
  std::vector<Visitor> visitors;
  bool full = false;
  for (int i = 0; i < 2000 && !full; ++i) {
    auto visitor = knock(name);
    full = !visitor.ok();
    if (visitor) visitors.push_back(std::move(*visitor));
  }
  EXPECT_TRUE(full);
  EXPECT_TRUE(door.accept().has_value());
  EXPECT_TRUE(knock(name).ok());
}

}  // namespace
}  // namespace troupe::os
