/// Tests a zygote between an agent, which the test plays, and children that end at once. There
/// are more orders and reports than any socket buffer holds.
#include "troupe/runtime/os/zygote.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/os/role.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace troupe::os {
namespace {

using namespace std::chrono_literals;

/// Well above what a socket of the default size takes (about 280 packets).
constexpr std::uint64_t kWorkers = 900;

/// A zygote as a child of this test. Its workers call `work` and end.
class ZygoteBursts : public testing::Test {
 protected:
  /// A zygote of a process with a second thread would start its workers by exec of this test's
  /// program, which is no worker.
  void SetUp() override {
    if (count_threads() != 1) GTEST_SKIP() << "this process has threads of its own";
  }
  void start(const std::function<void(Forked)>& work) {
    auto ends = LocalSocket::pair().value();
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      ends.first.reset();
      work(run_zygote(std::move(ends.second)));
      _exit(0);
    }
    ends.second.reset();
    link_ = ZygoteLink(std::move(ends.first));
  }
  void TearDown() override {
    link_ = ZygoteLink();  // closing the link makes the zygote reap its children and end
    const Time until = steady_now() + 10s;
    while (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (steady_now() > until) {
        ADD_FAILURE() << "the zygote has not ended";
        ::kill(pid_, SIGKILL);
      }
      usleep(1000);
    }
  }
  /// Takes reports until `forked` workers have been forked and `exited` have ended. Each report
  /// is due within 30 s of the one before. The total time depends on the machine.
  void expect(std::size_t forked, std::size_t exited) {
    Time until = steady_now() + 30s;
    while (forked_.size() < forked || exited_.size() < exited) {
      ASSERT_LT(steady_now(), until) << forked_.size() << " forked, " << exited_.size() << " ended";
      pollfd entry{link_.fd(), link_.events(), 0};
      poll(&entry, 1, 100);
      bool gone = false;
      for (const ZygoteEvent& event : link_.read(gone)) {
        until = steady_now() + 30s;
        if (event.kind == ZygoteEvent::Kind::forked) {
          EXPECT_TRUE(forked_.insert(event.pid).second);
        }
        if (event.kind == ZygoteEvent::Kind::exited) {
          EXPECT_TRUE(exited_.insert(event.token).second);
        }
        EXPECT_NE(event.kind, ZygoteEvent::Kind::failed);
      }
      ASSERT_FALSE(gone);
    }
  }
  void order(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t token = first; token <= last; ++token) {
      auto ends = LocalSocket::pair().value();
      ASSERT_TRUE(link_.fork_worker(token, std::move(ends.second)));
    }
  }

  pid_t pid_ = 0;
  ZygoteLink link_;
  std::set<std::int32_t> forked_;
  std::set<std::uint64_t> exited_;
};

TEST_F(ZygoteBursts, AnyNumberOfOrdersAtOnceIsCarriedOut) {
  start([](const Forked&) {});
  order(1, 4000);
  expect(4000, 4000);
}

TEST_F(ZygoteBursts, EachOfManyEndsAtOnceIsReported) {
  start([](const Forked&) {
    for (;;) pause();
  });
  order(1, kWorkers);
  expect(kWorkers, 0);
  // All workers die while the test does not read the reports.
  for (const std::int32_t pid : forked_) ::kill(pid, SIGKILL);
  const Time until = steady_now() + 30s;
  const auto reaped = [&] {
    return std::count_if(forked_.begin(), forked_.end(),
                         [](const std::int32_t pid) { return ::kill(pid, 0) != 0; });
  };
  while (reaped() < 200 && steady_now() < until) usleep(1000);
  EXPECT_GE(reaped(), 200);
  expect(kWorkers, kWorkers);
}

TEST_F(ZygoteBursts, AWorkerMayEndByItselfWhenTheAgentIsGone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  start([&ends](const Forked& worker) {
    pollfd entry{worker.socket.get(), POLLIN, 0};
    poll(&entry, 1, -1);  // until the agent's end closes, after that of the zygote
    (void)!write(ends[1], "x", 1);
  });
  std::vector<Fd> sockets;
  for (std::uint64_t token = 1; token <= 3; ++token) {
    auto both = LocalSocket::pair().value();
    ASSERT_TRUE(link_.fork_worker(token, std::move(both.second)));
    sockets.push_back(std::move(both.first));
  }
  expect(3, 0);
  link_ = ZygoteLink();
  sockets.clear();
  close(ends[1]);
  std::string said;
  char c = 0;
  while (read(ends[0], &c, 1) == 1) said += c;
  EXPECT_EQ(said, "xxx");
  close(ends[0]);
}

}  // namespace
}  // namespace troupe::os
