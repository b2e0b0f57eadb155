// Tests the shm back end between real processes: right results, kill -9 in the middle, late ranks
// and wrong ranks.
#include "troupe/actors/collective/shm/shm.hpp"

#include "tests/eventually.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace troupe::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Starts a child that runs f and exits with its result, or with 99 on an exception.
pid_t start(const std::function<int()>& f) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  int code = 99;
  try {
    code = f();
  } catch (const Error& e) {
    ::dprintf(2, "child: %s\n", e.what());
  }
  ::_exit(code);
}

int wait_for(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(CollectiveProcesses, AllreduceBetweenProcesses) {
  constexpr int size = 3;
  const Fd memory = create_shm_group({.size = size, .slot = {1 << 16}});
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank)
    children.push_back(start([&, rank] {
      auto c = join_shm_group(memory, rank, 1, seconds(20));
      for (int round = 0; round < 200; ++round) {
        std::vector<float> x(20000, static_cast<float>(rank + round));
        c->all_reduce(x).wait();
        for (const float value : x)
          if (value != static_cast<float>(3 + 3 * round)) return 1;
      }
      return 0;
    }));
  for (const pid_t pid : children) EXPECT_EQ(wait_for(pid), 0);
}

// Rank 1 is killed while all are busy. The two others must end with WorkerDied, long before the
// timeout.
TEST(CollectiveProcesses, KilledRankEndsTheOthersSoon) {
  constexpr int size = 3;
  const Fd memory = create_shm_group({.size = size, .slot = {1 << 16}});
  auto* rounds = static_cast<std::atomic<int>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank)
    children.push_back(start([&, rank] {
      auto c = join_shm_group(memory, rank, 1, seconds(60));
      std::vector<float> x(100000);
      try {
        while (true) {
          c->all_reduce(x).wait();
          if (rank == 0) rounds->fetch_add(1);
        }
      } catch (const WorkerDied& e) {
        return e.message().find("rank 1 (process") != std::string::npos ? 7 : 1;
      }
    }));
  ASSERT_TRUE(eventually([&] { return rounds->load() >= 20; })) << "the group does not work";
  const Time killed = steady_now();
  ::kill(children[1], SIGKILL);
  EXPECT_EQ(wait_for(children[1]), -SIGKILL);
  EXPECT_EQ(wait_for(children[0]), 7);
  EXPECT_EQ(wait_for(children[2]), 7);
  EXPECT_LT(steady_now() - killed, seconds(5));
  ::munmap(rounds, 4096);
}

// Ranks 0 and 1 are a split. Rank 1 is killed while rank 0 receives from it and rank 2 waits in
// the whole group.
TEST(CollectiveProcesses, AKilledSenderEndsItsReceiverAndTheWholeGroup) {
  constexpr int size = 3;
  const Fd memory = create_shm_group({.size = size, .slot = {1 << 16}});
  auto* messages = static_cast<std::atomic<int>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank)
    children.push_back(start([&, rank] {
      auto c = join_shm_group(memory, rank, 1, seconds(60), Progress::thread);
      const auto part = c->split(rank / 2, 0, rank == 0 ? Progress::thread : Progress::caller);
      std::vector<float> x(30000, 1);
      try {
        for (int i = 0; rank < 2 && i < 1'000'000'000; ++i) {
          if (rank == 1) {
            part->send(x, 0).wait();
          } else {
            part->receive(x, 1).wait();
            messages->fetch_add(1);
          }
        }
        c->barrier();
      } catch (const WorkerDied& e) {
        // The rank that notices the death first reports it, in the whole group or in the split.
        const bool named = e.message().find(": rank 1 ") != std::string::npos &&
                           e.message().find(") died; ") != std::string::npos;
        return named ? 7 : 1;
      }
      return 2;
    }));
  ASSERT_TRUE(eventually([&] { return messages->load() >= 20; })) << "no message arrives";
  const Time killed = steady_now();
  ::kill(children[1], SIGKILL);
  EXPECT_EQ(wait_for(children[1]), -SIGKILL);
  EXPECT_EQ(wait_for(children[0]), 7);
  EXPECT_EQ(wait_for(children[2]), 7);
  EXPECT_LT(steady_now() - killed, seconds(5));
  ::munmap(messages, 4096);
}

// Rank 2 stops before its third call. Only rank 0 has a short timeout, which starts when the
// others wait. All ranks end by that timeout with one error, and rank 2 gets the same one when it
// goes on.
TEST(CollectiveProcesses, AStoppedRankEndsTheOthersWithOneErrorThatNamesIt) {
  constexpr int size = 4;
  const Fd memory = create_shm_group({.size = size, .slot = {1 << 16}});
  struct Shared {
    char error[size][2048];
  };
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank)
    children.push_back(start([&, rank] {
      auto c = join_shm_group(memory, rank, 1, seconds(60));
      std::vector<float> x(1000);
      c->all_reduce(x).wait();
      c->all_reduce(x).wait();
      const auto all_set = [&] {
        const auto all = c->progress();
        return all[1].sequence == 3 && all[3].sequence == 3 && all[2].stopped;
      };
      if (rank == 0) {
        (void)eventually(all_set);
        c->set_timeout(milliseconds(100));
      }
      if (rank == 2) ::raise(SIGSTOP);
      try {
        c->barrier();
      } catch (const TimedOut& e) {
        std::snprintf(shared->error[rank], sizeof shared->error[rank], "%s", e.message().c_str());
        return 7;
      }
      return 1;
    }));
  const Time begun = steady_now();
  for (const int rank : {0, 1, 3}) EXPECT_EQ(wait_for(children[static_cast<std::size_t>(rank)]), 7);
  EXPECT_LT(steady_now() - begun, seconds(20));
  ::kill(children[2], SIGCONT);
  EXPECT_EQ(wait_for(children[2]), 7);
  const std::string verdict =
      " of 4: rank 2 did not arrive within 100 ms; ranks 0, 1, 3 in barrier #3; rank 2 (process " +
      std::to_string(children[2]) + ", stopped) after all_reduce #2";
  for (int rank = 0; rank < size; ++rank)
    EXPECT_EQ(shared->error[rank], "barrier #3 on rank " + std::to_string(rank) + verdict);
  ::munmap(shared, sizeof(Shared));
}

TEST(CollectiveProcesses, ARankThatNeverJoinsIsNamed) {
  const Fd memory = create_shm_group({.size = 2, .slot = {4096}});
  auto c = join_shm_group(memory, 0, 1, milliseconds(50));
  try {
    c->barrier();
    FAIL() << "the barrier must not pass";
  } catch (const TimedOut& e) {
    EXPECT_NE(e.message().find("rank 1 has not joined within 50 ms"), std::string::npos)
        << e.message();
  }
}

TEST(CollectiveProcesses, WrongGenerationRankAndSecondOwnerAreRefused) {
  const Fd memory = create_shm_group({.size = 2, .generation = 5, .slot = {4096}});
  EXPECT_THROW(join_shm_group(memory, 0, 4), InvalidArgument);
  EXPECT_THROW(join_shm_group(memory, 2, 5), InvalidArgument);
  EXPECT_THROW(join_shm_group(memory, -1, 5), InvalidArgument);
  auto owner = join_shm_group(memory, 0, 5);
  EXPECT_THROW(join_shm_group(memory, 0, 5), InvalidArgument);
}

TEST(CollectiveProcesses, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(create_shm_group({.size = 0}), InvalidArgument);
  EXPECT_THROW(create_shm_group({.size = 1025}), InvalidArgument);
  EXPECT_THROW(create_shm_group({.size = 2, .slot = {100}}), InvalidArgument);
  EXPECT_THROW(create_shm_group({.size = 2, .splits = -1}), InvalidArgument);
  EXPECT_THROW(create_shm_group({.size = 2, .splits = 65}), InvalidArgument);
}

TEST(CollectiveProcesses, MemoryThatIsNoGroupIsRefused) {
  EXPECT_THROW(join_shm_group(Fd(), 0, 1), InvalidArgument);
  const Fd plain(::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(plain.get(), 65536), 0);
  EXPECT_THROW(join_shm_group(plain, 0, 1), InvalidArgument);
  // a valid header in a file of the wrong size
  const Fd memory = create_shm_group({.size = 2, .slot = {4096}});
  std::vector<char> header(4096);
  ASSERT_EQ(::pread(memory.get(), header.data(), header.size(), 0), 4096);
  ASSERT_EQ(::pwrite(plain.get(), header.data(), header.size(), 0), 4096);
  EXPECT_THROW(join_shm_group(plain, 0, 1), InvalidArgument);
  ASSERT_EQ(::fcntl(plain.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THROW(join_shm_group(plain, 0, 1), InvalidArgument);
}

}  // namespace
}  // namespace troupe::collective
