// Tests tasks on real processes of one node: arguments, nesting, retries, errors and memory.
#include "tests/eventually.hpp"
#include "tests/process/tally.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tasks_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::Ref;

constexpr auto kBound = 20s;  // the limit of each wait; a test that reaches it fails

int twice(int x) {
  return 2 * x;
}
int plus(int a, int b) {
  return a + b;
}
int my_pid() {
  return ::getpid();
}
std::vector<double> ramp(std::size_t n) {
  std::vector<double> v(n);
  std::iota(v.begin(), v.end(), 0.0);
  return v;
}
double total(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0);
}
bool maps_file(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(name) != std::string::npos) return true;
  return false;
}
struct NetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
int fails(int) {
  throw NetError("no route");
}
int die(int) {
  ::raise(SIGKILL);
  return 0;
}
/// Kills itself until the file has more than `times` lines; each attempt writes one line.
int die_first(const std::string& path, int times) {
  std::ofstream(path, std::ios::app) << ::getpid() << '\n';
  std::ifstream in(path);
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  if (lines <= times) ::raise(SIGKILL);
  return lines;
}
/// Returns the number of runs before this one. The sixth run never ends.
int stay_in_sixth(const std::string& path) {
  std::ofstream(path, std::ios::app) << "x\n";
  std::ifstream in(path);
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  if (lines == 6) ::pause();
  return lines - 1;
}
int throw_first(const std::string& path, int times) {
  std::ofstream(path, std::ios::app) << "x\n";
  std::ifstream in(path);
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  if (lines <= times) throw NetError("flaky");
  return lines;
}
int depth(Context& ctx, int n) {
  return n == 0 ? 0 : 1 + ctx.get(ctx.submit<depth>(n - 1));
}
int fan(Context& ctx, int n) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < n; ++i) refs.push_back(ctx.submit<twice>(i));
  int sum = 0;
  for (auto& ref : refs) sum += ctx.get(ref);
  return sum;
}
void nap(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

std::string scratch_file(const char* name) {
  const std::string path = testing::TempDir() + "troupe_" + name + "_" + std::to_string(::getpid());
  ::unlink(path.c_str());
  return path;
}

TEST(Tasks, ValuesAndRefsAsArguments) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  auto a = ctx.submit<twice>(4);
  auto b = ctx.submit<plus>(a, 1);
  EXPECT_EQ(ctx.get(b, kBound), 9);
  EXPECT_EQ(ctx.get(b, kBound), 9) << "get is repeatable";
  EXPECT_NE(ctx.get(ctx.submit<my_pid>(), kBound), ::getpid()) << "runs in another process";
}

TEST(Tasks, ThousandsInFlightEachItsOwnResult) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 5000; ++i) refs.push_back(ctx.submit<twice>(i));
  for (int i = 0; i < 5000; ++i)
    ASSERT_EQ(ctx.get(refs[static_cast<std::size_t>(i)], kBound), 2 * i);
}

TEST(Tasks, NestedThreeLevelsDeepOnOneCpuFinish) {
  troupe::Session session({.cpus = 1});
  EXPECT_EQ(session.context().get(session.context().submit<depth>(3), kBound), 3);
}

TEST(Tasks, BlockedParentsOfManyChildrenFinishOnOneCpu) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 4; ++i) refs.push_back(ctx.submit<fan>(20));
  for (auto& ref : refs) EXPECT_EQ(ctx.get(ref, kBound), 380);
}

TEST(Tasks, ParentsThatBlockBehindADeepPipelineFinish) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  std::vector<Ref<int>> quick;
  for (int i = 0; i < 2000; ++i)
    quick.push_back(ctx.submit<twice>(i));  // short tasks make the pipeline deep
  for (auto& ref : quick) ctx.get(ref, kBound);
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 30; ++i) refs.push_back(ctx.submit<fan>(5));
  for (int i = 0; i < 30; ++i) quick.push_back(ctx.submit<twice>(i));
  for (auto& ref : refs) EXPECT_EQ(ctx.get(ref, kBound), 20);
  for (auto& ref : quick) ctx.get(ref, kBound);
}

TEST(Tasks, LargeValuesTravelThroughSharedMemory) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  const std::size_t n = 1 << 20;  // 8 MiB
  auto made = ctx.submit<ramp>(n);
  auto sum = ctx.submit<total>(made);  // the array does not go through the driver
  const double expected = static_cast<double>(n) * static_cast<double>(n - 1) / 2;
  EXPECT_EQ(ctx.get(sum, kBound), expected);
  const auto view = ctx.view(made);
  EXPECT_EQ(view->size(), n);
  EXPECT_EQ((*view)[n - 1], static_cast<double>(n - 1));
  auto put = ctx.put(ramp(n));
  EXPECT_EQ(ctx.get(ctx.submit<total>(put), kBound), expected);
}

TEST(Tasks, BuiltInPlaceAndReadInPlace) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto builder = ctx.create<int>(100'000);
  for (std::size_t i = 0; i < builder.size(); ++i) builder[i] = static_cast<int>(i);
  const auto ref = builder.seal();
  const auto view = ctx.view(ref);
  EXPECT_EQ((*view)[99'999], 99'999);
}

struct Batch {
  int label = 0;
  troupe::Tensor<float> images;
};
/// Returns whether the elements lie in memory that processes share.
bool is_in_place(const Batch& batch) {
  const auto at = reinterpret_cast<std::uintptr_t>(batch.images.data());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::size_t dash = 0;
    const auto first = std::stoull(line, &dash, 16);
    if (at >= first && at < std::stoull(line.substr(dash + 1), nullptr, 16))
      return line.find("memfd:") != std::string::npos;
  }
  return false;
}
troupe::Tensor<float> image(const Batch& batch, int i) {
  return batch.images[static_cast<std::size_t>(i)];
}

TEST(Tasks, ATensorInsideAValueIsReadInPlaceAndItsPartsTravel) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  std::vector<float> elements(16 * 64 * 64);
  std::iota(elements.begin(), elements.end(), 0.0F);
  const auto batch = ctx.put(Batch{3, {{16, 64, 64}, std::move(elements)}});
  EXPECT_TRUE(ctx.get(ctx.submit<is_in_place>(batch), kBound));
  EXPECT_TRUE(is_in_place(*ctx.view(batch)));
  const auto part = ctx.get(ctx.submit<image>(batch, 2), kBound);
  EXPECT_EQ(part.shape(), (std::vector<std::uint64_t>{64, 64}));
  EXPECT_EQ(part(1, 1), static_cast<float>(2 * 64 * 64 + 64 + 1));
}

TEST(Tasks, MemoryOfDeadObjectsComesBack) {
  troupe::Session session({.cpus = 2, .memory = troupe::Bytes{64u << 20}});
  Context ctx = session.context();
  for (int round = 0; round < 48; ++round) {  // 48 x 2 MiB through 64 MiB
    auto made = ctx.submit<ramp>(std::size_t{1} << 18);
    EXPECT_GT(ctx.get(ctx.submit<total>(made), kBound), 0);
  }
  // Messages that free objects are under way: the last ones may take a moment.
  EXPECT_TRUE(eventually([&] { return ctx.cluster().nodes.at(0).store_used.count == 0; }));
}

TEST(Tasks, ACallWhoseArgumentFailedDidNotRun) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto bad = ctx.submit<fails>(1);
  const auto before = ctx.submit<plus>(bad, 1);
  EXPECT_THROW(ctx.get(bad, kBound), troupe::TaskFailed);
  const auto after = ctx.submit<plus>(bad, 1);
  for (const auto& call : {before, after}) try {
      ctx.get(call, kBound);
      FAIL() << "no exception";
    } catch (const troupe::TaskFailed& e) {
      EXPECT_TRUE(e.is<NetError>());
      EXPECT_EQ(e.outcome(), troupe::Outcome::not_executed);
    }
}

TEST(Tasks, ExceptionsArriveTypedWithTheirPlace) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto bad = ctx.submit<fails>(1);
  try {
    ctx.get(bad, kBound);
    FAIL() << "no exception";
  } catch (const troupe::TaskFailed& e) {
    EXPECT_TRUE(e.is<NetError>());
    EXPECT_EQ(e.message(), "no route");
    EXPECT_NE(e.where().function.find("fails"), std::string::npos) << e.what();
    EXPECT_EQ(e.outcome(), troupe::Outcome::executed);
    EXPECT_NE(e.where().pid, 0);
    EXPECT_NE(e.remote_stack().find("process_test+0x"), std::string::npos) << e.remote_stack();
  }
  EXPECT_THROW(ctx.get(ctx.submit<plus>(bad, 1), kBound), troupe::TaskFailed)
      << "dependants fail with it";
  const auto result = ctx.try_get(bad, kBound);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), troupe::Code::task_failed);
}

TEST(Tasks, ARetryableExceptionIsRetried) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  const std::string path = scratch_file("throws");
  EXPECT_EQ(ctx.get(ctx.with({.max_retries = 3, .retry_on = troupe::errors<NetError>()})
                        .submit<throw_first>(path, 2),
                    kBound),
            3);
  ::unlink(path.c_str());
}

TEST(Tasks, AKilledWorkersTaskIsRunAgain) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  const std::string path = scratch_file("dies");
  EXPECT_EQ(ctx.get(ctx.submit<die_first>(path, 2), kBound), 3)
      << "two attempts died, the third answered";
  ::unlink(path.c_str());
}

TEST(Tasks, RetriesEndInATypedErrorThatSaysUnknown) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  try {
    ctx.get(ctx.with({.max_retries = 1}).submit<die>(1), kBound);
    FAIL() << "no exception";
  } catch (const troupe::WorkerDied& e) {
    EXPECT_EQ(e.outcome(), troupe::Outcome::unknown);
    EXPECT_NE(e.message().find("signal 9"), std::string::npos) << e.what();
    EXPECT_NE(e.where().function.find("die(int)"), std::string::npos) << e.what();
    EXPECT_EQ(e.where().attempt, 2) << e.what();
  }
  EXPECT_EQ(ctx.get(ctx.submit<twice>(1), kBound), 2) << "the node goes on";
}

TEST(Tasks, OneThatStaysAwayGetsASecondAttemptIfItMay) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  const std::string path = scratch_file("stays");
  const troupe::TaskOptions may{.second_attempt = true};
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(ctx.get(ctx.with(may).submit<stay_in_sixth>(path), kBound), i);
  EXPECT_EQ(ctx.get(ctx.with(may).submit<stay_in_sixth>(path), kBound), 6);
  ::unlink(path.c_str());
}

TEST(Tasks, GoodTasksBesideDyingOnesAllAnswer) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  std::vector<Ref<int>> good, bad;
  for (int i = 0; i < 400; ++i) {
    good.push_back(ctx.submit<twice>(i));
    if (i % 20 == 0) bad.push_back(ctx.with({.max_retries = 0}).submit<die>(i));
  }
  for (int i = 0; i < 400; ++i)
    ASSERT_EQ(ctx.get(good[static_cast<std::size_t>(i)], kBound), 2 * i);
  for (auto& ref : bad) EXPECT_THROW(ctx.get(ref, kBound), troupe::WorkerDied);
}

TEST(Tasks, ATaskThatKillsThreeWorkersIsQuarantined) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  std::vector<Ref<int>> good, bad;
  for (int i = 0; i < 200; ++i) {
    good.push_back(ctx.submit<twice>(i));
    if (i % 50 == 0) bad.push_back(ctx.with({.max_retries = -1}).submit<die>(i));
  }
  for (auto& ref : bad) EXPECT_THROW(ctx.get(ref, kBound), troupe::PoisonTask);
  for (int i = 0; i < 200; ++i)
    ASSERT_EQ(ctx.get(good[static_cast<std::size_t>(i)], kBound), 2 * i);
}

TEST(Tasks, WaitReturnsInOrderOfCompletionAndKeepsTheRest) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  Scratch scratch;
  auto slow = ctx.submit<hold_until>(scratch.path, 1);
  auto quick = ctx.submit<hold_until>(scratch.path, 0);
  auto [ready, pending] = ctx.wait(std::vector{slow, quick}, {.count = 1, .timeout = kBound});
  ASSERT_EQ(ready.size(), 1u);
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_TRUE(ready[0] == quick);
  auto [none, all] = ctx.wait(std::move(pending), {.count = 1, .timeout = 0s});
  EXPECT_EQ(none.size(), 0u);
  ASSERT_EQ(all.size(), 1u);
  Tally(scratch.path).add(1);
  EXPECT_EQ(ctx.get(all[0], kBound), 1);
}

TEST(Tasks, ARefThatIsNamedTwiceCountsTwice) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  const auto slow = ctx.submit<nap>(50);
  const auto quick = ctx.submit<nap>(0);
  const std::vector all{slow, quick, slow, quick};
  auto [ready, pending] = ctx.wait(all, {.count = 3, .timeout = kBound});
  ASSERT_EQ(ready.size(), 3u) << "waited for by two at once, it is ready for both";
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(ctx.wait(all, {.count = 4, .timeout = kBound}).ready.size(), 4u);
  std::size_t completed = 0;
  for (const auto& ref : ctx.as_completed(all)) completed += ref == slow || ref == quick ? 1 : 0;
  EXPECT_EQ(completed, 4u);
  const Ref<std::vector<int>> large = ctx.put(std::vector<int>(100'000, 1));
  const auto twice = ctx.get(std::vector{large, large}, kBound);
  EXPECT_EQ(twice[0], twice[1]);
}

TEST(Tasks, GetGivesUpAtItsTimeoutAndTheWorkGoesOn) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  Scratch scratch;
  auto slow = ctx.submit<hold_until>(scratch.path, 1);
  EXPECT_THROW(ctx.get(slow, 5ms), troupe::TimedOut);
  Tally(scratch.path).add(1);
  EXPECT_EQ(ctx.get(slow, kBound), 1);
}

TEST(Tasks, WhatNoNodeHasIsRefusedWithASentence) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  try {
    ctx.get(ctx.with({.cpus = 64}).submit<twice>(1), kBound);
    FAIL() << "no exception";
  } catch (const troupe::Infeasible& e) {
    EXPECT_NE(e.message().find("64 CPU"), std::string::npos) << e.what();
  }
  EXPECT_THROW(ctx.with({.cpus = -1}).submit<twice>(1), troupe::InvalidArgument);
}

TEST(ClusterTasks, WhatNoNodeOfAProgramsOwnClusterHasIsRefusedSoon) {
  troupe::Session session({.cpus = 1, .memory = {}, .nodes = 2, .address = ""});
  Context ctx = session.context();
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_THROW(ctx.get(ctx.with({.cpus = 64}).submit<twice>(1), kBound), troupe::Infeasible);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s) << "nobody can join it";
}

TEST(Tasks, FractionalCpusRunSideBySide) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 20; ++i) refs.push_back(ctx.with({.cpus = 0.25}).submit<twice>(i));
  int sum = 0;
  for (auto& ref : refs) sum += ctx.get(ref, kBound);
  EXPECT_EQ(sum, 380);
}

TEST(Tasks, RefsInsideValuesStayAliveAndResolve) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  std::vector<Ref<int>> inner;
  for (int i = 0; i < 10; ++i) inner.push_back(ctx.submit<twice>(i));
  auto sum = ctx.submit<[](Context& c, const std::vector<Ref<int>>& refs) {
    int total = 0;
    for (auto& ref : refs) total += c.get(ref);
    return total;
  }>(inner);
  inner.clear();  // the task's own handles keep the objects
  EXPECT_EQ(ctx.get(sum, kBound), 90);
}

TEST(Tasks, ArgumentsThatDoNotFitAFrameTogetherGoAsReferences) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  std::vector<Ref<int>> many;
  for (int i = 0; i < 510; ++i) many.push_back(ctx.put(i));
  const auto count = [](const std::vector<Ref<int>>& refs) {
    return static_cast<int>(refs.size());
  };
  EXPECT_EQ(ctx.get(ctx.submit(count, many), kBound), 510);
  const auto both = [](const std::vector<Ref<int>>& a, const std::vector<Ref<int>>& b) {
    return static_cast<int>(a.size() + b.size());
  };
  auto first = ctx.put(many);
  auto second = ctx.put(many);
  EXPECT_EQ(ctx.get(ctx.submit(both, first, second), kBound), 1020);
}

TEST(Tasks, ATaskMayReturnARefOfItsChild) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto flat = ctx.submit<[](Context& c, int x) { return c.submit<twice>(x); }>(21);
  EXPECT_EQ(ctx.get(flat, kBound), 42);
  auto boxed =
      ctx.submit<[](Context& c) { return std::vector<Ref<int>>{c.submit<twice>(1), c.put(5)}; }>();
  auto refs = ctx.get(boxed, kBound);
  ASSERT_EQ(refs.size(), 2u);
  EXPECT_EQ(ctx.get(refs[0], kBound) + ctx.get(refs[1], kBound), 7);
}

TEST(Tasks, SeveralThreadsShareOneContext) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&ctx, &wrong, t] {
      for (int i = 0; i < 300; ++i)
        if (ctx.get(ctx.submit<twice>(t * 1000 + i), kBound) != 2 * (t * 1000 + i)) ++wrong;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tasks, NeitherDriverNorWorkerLoadsWhatOnlyControlNeeds) {
  EXPECT_FALSE(maps_file("rocksdb"));  // loading it would dominate a process's start
  EXPECT_TRUE(maps_file("libtroupe"));
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  EXPECT_FALSE(ctx.get(ctx.submit<maps_file>(std::string("rocksdb")), kBound));
}

TEST(Tasks, SessionsFollowEachOther) {
  for (int round = 0; round < 5; ++round) {
    troupe::Session session({.cpus = 1});
    EXPECT_EQ(session.context().get(session.context().submit<twice>(round), kBound), 2 * round);
  }
}

}  // namespace
}  // namespace tasks_test
