// Tests MemoryWatch on a real store and a real child: WATCH-1 to WATCH-4.
#include "troupe/runtime/agent/memory_watch.hpp"

#include "tests/runtime/agent/played_child.hpp"
#include "tests/runtime/agent/played_processes.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace troupe::agent::memory_watch_test {
namespace {

using namespace std::chrono_literals;
constexpr JobNumber kJob = 7;

struct MemoryWatchTest : testing::Test, PlayedProcesses {
  MemoryWatchTest() : PlayedProcesses(one_cpu()) {}
  /// Returns a worker whose process is a child that does nothing.
  Process& worker() {
    Process& process = processes.add({});
    process.kind = wire::ProcessKind::worker;
    process.job_number = kJob;
    process.pid = child.start();
    process.told_pid = static_cast<std::uint32_t>(process.pid);
    return process;
  }
  void lease(const Process& worker) {
    scheduling::RequestKind kind;
    kind.job = kJob;
    table.worker_started(worker.index, now, false, kJob);
    table.request(1, LeaseKey::of(9), one_cpu_wanted(), 1, now, kind);
    (void)table.take_events();
    EXPECT_EQ(table.lease_count(), 1u);
  }
  static wire::Adopt adopt(std::uint32_t slot, std::uint64_t bytes, std::uint32_t site) {
    wire::Adopt message;
    message.location.slot = slot;
    message.location.length = bytes;
    message.site = site;
    return message;
  }

  Time now{100s};
  PlayedChild child;
  AgentOptions options;
  std::unique_ptr<objectstore::Host> host =
      objectstore::Host::create({.arena = Bytes{16 << 20}, .extent = Bytes{1 << 20}}).value();
  MemoryWatch memory{{name, events, options, *host, table, actors, processes}};
};

TEST_F(MemoryWatchTest, WorkerEndsAtTheNodesLimitOnlyWhileLeasesAreOut) {
  options.node_memory = Bytes{1000};
  Process& one = worker();
  memory.guard(now);
  EXPECT_FALSE(one.killed) << "it has no lease";
  lease(one);
  memory.guard(now);
  EXPECT_TRUE(one.killed);
  EXPECT_NE(one.sentence.find("the node's limit"), std::string::npos) << one.sentence;
  EXPECT_NE(one.sentence.find("(on node)"), std::string::npos) << one.sentence;
  EXPECT_TRUE(child.is_killed());
}

TEST_F(MemoryWatchTest, WorkersBelowTheLimitLiveOn) {
  options.node_memory = Bytes{1ull << 50};
  Process& one = worker();
  lease(one);
  memory.guard(now);
  EXPECT_FALSE(one.killed);
}

TEST_F(MemoryWatchTest, GuardLooksEvery250Milliseconds) {
  options.node_memory = Bytes{1ull << 50};
  memory.prefault().prepared(false, now);
  EXPECT_EQ(memory.next_deadline(), Time::max());
  Process& one = worker();
  lease(one);
  memory.guard(now);
  EXPECT_EQ(memory.next_deadline(), now + 250ms);
  options.node_memory = Bytes{1000};
  memory.guard(now + 249ms);
  EXPECT_FALSE(one.killed);
  memory.guard(now + 250ms);
  EXPECT_TRUE(one.killed);
}

TEST_F(MemoryWatchTest, MemoryIsTouchedAheadOnlyInAPassWithoutEvents) {
  for (int pass = 0; pass < 20; ++pass) memory.touch_ahead(false);
  EXPECT_EQ(host->stats().prefaulted, 0u);
  EXPECT_NE(memory.next_deadline(), Time::max()) << "there is memory to touch";
  EXPECT_TRUE(eventually([&] {
    memory.touch_ahead(true);
    return host->stats().prefaulted != 0;
  }));
}

TEST_F(MemoryWatchTest, ObjectCountsOnceForItsFirstMakerUntilItIsFreed) {
  Process& maker = processes.add({});
  maker.job_number = kJob;
  memory.on_call_site(maker, {1, "main.cpp:12"});
  memory.on_call_site(maker, {3, "the second is missing"});
  Process& other = processes.add({});
  other.job_number = 8;
  const wire::Adopt object = adopt(3, 1000, 1);
  memory.made(object, maker);
  memory.made(object, other);
  EXPECT_EQ(memory.accounting().bytes_of(kJob), 1000u);
  EXPECT_EQ(memory.accounting().bytes_of(8), 0u);
  ASSERT_NE(memory.site_of(object.location), nullptr);
  EXPECT_EQ(*memory.site_of(object.location), "main.cpp:12");
  memory.freed(object.location, now);
  memory.freed(object.location, now);
  EXPECT_EQ(memory.accounting().bytes_of(kJob), 0u);
  EXPECT_EQ(memory.accounting().freed_of(kJob), 0u) << "it begins anew without bytes";
  EXPECT_EQ(memory.site_of(object.location), nullptr);
  memory.made(adopt(4, 10, 3), maker);
  EXPECT_EQ(*memory.site_of(adopt(4, 10, 3).location), "") << "an unknown site";
}

}  // namespace
}  // namespace troupe::agent::memory_watch_test
