// Tests how the memory of a group reaches other processes.
#include "troupe/actors/collective/shm/rendezvous.hpp"

#include "tests/actors/children.hpp"
#include "troupe/actors/collective/shm/shm.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <chrono>
#include <string>
#include <vector>

namespace troupe::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Rendezvous, EveryPeerGetsTheMemoryOfRankZero) {
  const std::string name = new_rendezvous_name();
  const Fd memory = create_shm_group({.size = 3, .slot = {4096}});
  struct stat mine{};
  ASSERT_EQ(::fstat(memory.get(), &mine), 0);
  std::vector<Child> children(2);
  for (Child& child : children)
    child = start_child([&] {
      const Fd got = fetch_group(name, in(seconds(30)));
      struct stat status{};
      return ::fstat(got.get(), &status) == 0 && status.st_ino == mine.st_ino ? 0 : 1;
    });
  share_group(name, memory, 2, in(seconds(30)));
  for (Child& child : children) EXPECT_EQ(child.wait(), 0);
}

TEST(Rendezvous, WhoIsMissingAtTheDeadlineEndsItForBothSides) {
  const std::string name = new_rendezvous_name();
  EXPECT_THROW((void)fetch_group(name, in(milliseconds(20))), TimedOut);
  const Fd memory = create_shm_group({.size = 2, .slot = {4096}});
  EXPECT_THROW(share_group(name, memory, 1, in(milliseconds(20))), TimedOut);
}

// A connection that cannot be accepted stays in the queue, so poll() reports it again at once.
TEST(Rendezvous, NoDescriptorForAPeerIsSaidAtTheDeadlineAndTakesNoProcessorTimeUntilThen) {
  const std::string name = new_rendezvous_name();
  const Fd memory = create_shm_group({.size = 2, .slot = {4096}});
  Child host = start_child([&] {
    leave_descriptors(1);  // one for the listener
    const Duration before = processor_time();
    try {
      share_group(name, memory, 1, in(milliseconds(1000)));
    } catch (const Unavailable& e) {
      if (e.message().find("ulimit -n") == std::string::npos) return 2;
      return processor_time() - before < milliseconds(300) ? 0 : 3;
    }
    return 1;
  });
  const Time begun = steady_now();
  EXPECT_THROW((void)fetch_group(name, in(milliseconds(900))), TimedOut);
  EXPECT_EQ(host.wait(), 0);
  EXPECT_LT(steady_now() - begun, seconds(10));
}

TEST(Rendezvous, NoDescriptorForTheMemoryIsSaidByTheRankThatLacksIt) {
  const std::string name = new_rendezvous_name();
  const Fd memory = create_shm_group({.size = 2, .slot = {4096}});
  Child peer = start_child([&] {
    leave_descriptors(1);  // one for the socket
    try {
      (void)fetch_group(name, in(seconds(10)));
    } catch (const Unavailable& e) {
      return e.message().find("no descriptor is free") == std::string::npos ? 2 : 0;
    }
    return 1;
  });
  share_group(name, memory, 1, in(seconds(10)));
  EXPECT_EQ(peer.wait(), 0);
}

}  // namespace
}  // namespace troupe::collective
