// Memory that is prepared ahead: all of it when nobody wants the CPU, next to none from who does.
#include "troupe/runtime/agent/prefaulter.hpp"
#include "tests/eventually.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <chrono>
#include <ctime>
#include <memory>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;
using objectstore::Host;
using objectstore::HostOptions;

std::unique_ptr<Host> store(Bytes ahead) {
  HostOptions options;
  options.arena = Bytes{8 * ahead.count};
  options.ahead = ahead;
  options.extent = Bytes{4 << 20};
  options.layout.processes = 4;
  return Host::create(options).value();
}

/// This thread, and those that it makes, have one CPU while it lives.
class OneCpu {
 public:
  OneCpu() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCpu() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_{};
};

std::chrono::nanoseconds cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST(PrefaulterTest, WithNothingElseToDoAllIsPrepared) {
  constexpr Bytes kAhead{32 << 20};
  const auto host = store(kAhead);
  const Prefaulter prefaulter(*host);
  EXPECT_TRUE(eventually([&] { return host->stats().prefaulted == kAhead.count; }))
      << host->stats().prefaulted;
}

TEST(PrefaulterTest, WhoWantsTheCpuHasIt) {
  if (getpriority(PRIO_PROCESS, 0) > 5) GTEST_SKIP() << "this test is told to wait for others, too";
  const auto host = store(Bytes{1 << 30});
  const OneCpu one;
  const Prefaulter prefaulter(*host);
  for (const auto until = cpu_time() + 100ms; cpu_time() < until;) {
  }
  // A fair share would be a hundred milliseconds, and some 280 MiB.
  EXPECT_LE(host->stats().prefaulted, 40u << 20);
}

}  // namespace
}  // namespace troupe::agent
