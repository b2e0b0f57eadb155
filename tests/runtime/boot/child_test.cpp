// Tests how a launcher starts, watches and ends a child process, which a fork plays here.
#include "troupe/runtime/boot/child.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <csignal>

namespace troupe::boot {
namespace {

using namespace std::chrono_literals;

/// Runs `body` in a fork, which gets its end of the socket. The fork ends with it.
template <class Body>
std::function<Result<pid_t>(Fd)> playing(Body body) {
  return [body](Fd end) -> Result<pid_t> {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int fd = 3; fd < 1024; ++fd)  // also the launcher's end, which an exec would close
      if (fd != end.get()) ::close(fd);
    body(end.get());
    _exit(0);
  };
}

void until_closed(int socket) {
  char byte;
  while (recv(socket, &byte, 1, 0) > 0) {
  }
}
void for_ever(int) {
  while (true) pause();
}

TEST(ChildTest, IsStartingUntilItServes) {
  Child child{.who = "x"};
  EXPECT_FALSE(child.is_alive());
  ASSERT_TRUE(child.start(playing(until_closed), 10s));
  EXPECT_EQ(child.state, Child::State::starting);
  EXPECT_EQ(child.deadline, child.since + 10s);
  EXPECT_FALSE(child.reap());
  child.serves(child.since + 1s);
  EXPECT_EQ(child.state, Child::State::serving);
  EXPECT_TRUE(child.is_alive());
  child.tell_to_end();
  child.end_within(10s);
  EXPECT_FALSE(child.is_alive());
}

TEST(ChildTest, ItsEndIsToldOnceAndInWords) {
  Child child{.who = "x"};
  ASSERT_TRUE(child.start(playing([](int) { _exit(9); }), 10s));
  const auto how = child.reap_within(10s);
  ASSERT_TRUE(how);
  EXPECT_NE(how->find('9'), std::string::npos) << *how;
  EXPECT_EQ(child.reap(), "ended (somebody else waited for it)");
  child.ended();
  EXPECT_FALSE(child.pidfd);
  EXPECT_FALSE(child.socket);
}

TEST(ChildTest, WhoDoesNotEndIsKilled) {
  Child child{.who = "x"};
  ASSERT_TRUE(child.start(playing(for_ever), 10s));
  EXPECT_FALSE(child.reap_within(20ms));
  child.tell_to_end();
  const Time before = steady_now();
  child.end_within(20ms);
  EXPECT_LT(steady_now() - before, 10s);
  EXPECT_EQ(child.state, Child::State::ended);
  EXPECT_TRUE(child.reap()) << "nobody is left";
}

TEST(ChildTest, OnlyAServingOneHearsThatTheClusterEnds) {
  const auto exits_with_what_it_hears = playing([](int socket) {
    char byte = 0;
    _exit(recv(socket, &byte, 1, 0) == 1 ? 4 : 5);
  });
  for (const bool serves : {false, true}) {
    Child child{.who = "x"};
    ASSERT_TRUE(child.start(exits_with_what_it_hears, 10s));
    if (serves) child.serves(steady_now());
    child.announce_end();
    child.tell_to_end();
    const auto how = child.reap_within(10s);
    ASSERT_TRUE(how);
    EXPECT_NE(how->find(serves ? '4' : '5'), std::string::npos) << *how;
  }
}

TEST(ChildTest, WhatCannotBeStartedIsNoChild) {
  Child child{.who = "x"};
  const auto started = child.start(
      [](Fd) -> Result<pid_t> { return Error(Code::out_of_memory, "no processes are left"); }, 10s);
  ASSERT_FALSE(started);
  EXPECT_EQ(child.state, Child::State::none);
}

}  // namespace
}  // namespace troupe::boot
