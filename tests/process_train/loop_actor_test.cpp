// Tests loops as actors: their output, their commands, how they end, and how little waiting
// costs.
#include "troupe/actors/loop_actor/loop_actor.hpp"
#include "tests/eventually.hpp"
#include "tests/leeway.hpp"
#include "troupe/actors/loop_actor/loop_controller.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace loop_actors {

using namespace std::chrono_literals;
using troupe::steady_now;

/// A loop that emits as many numbers as it is told; a negative command ends its process.
class Counter : public troupe::LoopActor<int, int> {
 public:
  Counter() {
    run([this] {
      while (const auto order = next()) {
        if (*order < 0) ::_exit(3);
        for (int k = 0; k < *order; ++k) emit(++count_);
      }
    });
  }
  ~Counter() { stop(); }
  int pid() const { return ::getpid(); }
  int parent() const { return ::getppid(); }

 private:
  int count_ = 0;
};

using Counters = troupe::LoopController<int>;

auto take_of(const troupe::Actor<Counter>& counter) {
  return [counter] { return counter.call<&Counter::take>(); };
}

std::vector<std::string> threads_of(int pid) {
  std::vector<std::string> names;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    names.push_back(name);
  }
  return names;
}

int caf_threads_of(int pid) {
  int count = 0;
  for (const std::string& name : threads_of(pid)) count += name.starts_with("caf.");
  return count;
}

/// Returns how often the threads of a process yielded or lost their CPU.
long switches_of(int pid) {
  long sum = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.find("_switches:") != std::string::npos)
        sum += std::stol(line.substr(line.find(':') + 1));
  }
  return sum;
}

double own_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/// Kills the loops at a test's end: a call that is under way would keep the session for 2 s.
void kill_all(troupe::Context ctx, const std::vector<troupe::Actor<Counter>>& loops) {
  for (const auto& loop : loops) ctx.kill(loop);
}

int caf_threads_here() {
  return caf_threads_of(::getpid());
}

TEST(LoopActor, EventsComeOnceAndInTheirOrder) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  std::vector<troupe::Actor<Counter>> loops;
  Counters heard;
  for (int i = 0; i < 3; ++i) {
    loops.push_back(ctx.spawn<Counter>());
    heard.follow(i, take_of(loops.back()));
  }
  for (int round = 0; round < 20; ++round)
    for (auto& loop : loops) loop.tell<&Counter::tell>(5);
  std::map<int, int> last;
  const troupe::Time deadline = steady_now() + 20s;
  for (int events = 0; events < 300;) {
    const auto news = heard.next(deadline);
    ASSERT_TRUE(news && !news->death) << events;
    for (const int number : news->events) {
      EXPECT_EQ(number, ++last[news->from]);
      ++events;
    }
  }
  EXPECT_FALSE(heard.next(steady_now() + 50ms));
  kill_all(ctx, loops);
}

TEST(LoopActor, ADeadProcessIsADeathNoticeAndTheOthersGoOn) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  auto dies = ctx.spawn<Counter>();
  auto lives = ctx.spawn<Counter>();
  Counters heard;
  heard.follow(1, take_of(dies));
  heard.follow(2, take_of(lives));
  dies.tell<&Counter::tell>(-1);
  const auto death = heard.next(steady_now() + 20s);
  ASSERT_TRUE(death && death->death);
  EXPECT_EQ(death->from, 1);
  EXPECT_EQ(death->death->code(), troupe::Code::actor_died);
  lives.tell<&Counter::tell>(1);
  const auto news = heard.next(steady_now() + 20s);
  ASSERT_TRUE(news && !news->death);
  EXPECT_EQ(news->from, 2);
  kill_all(ctx, {lives});
}

TEST(LoopActor, WhoIsForgottenIsNotHeardEvenIfItHasSpoken) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  auto first = ctx.spawn<Counter>();
  auto second = ctx.spawn<Counter>();
  Counters heard;
  heard.follow(1, take_of(first));
  heard.follow(2, take_of(second));
  first.tell<&Counter::tell>(1);
  second.tell<&Counter::tell>(1);
  ctx.get(second.call<&Counter::pid>());
  heard.forget(1);
  const auto news = heard.next(steady_now() + 20s);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->from, 2);
  ctx.kill(first);
  EXPECT_FALSE(heard.next(steady_now() + 100ms));
  kill_all(ctx, {second});
}

int parent_of(int pid) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
  int parent = 0;
  std::istringstream(stat.substr(stat.rfind(')') + 4)) >> parent;
  return parent;
}

TEST(LoopActor, TheDeathOfTheDriversAgentIsADeathNotice) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  auto counter = ctx.spawn<Counter>();
  const int agent = parent_of(ctx.get(counter.call<&Counter::parent>()));
  Counters heard;
  heard.follow(1, take_of(counter));
  ASSERT_GT(agent, 1);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  const auto news = heard.next(steady_now() + 20s);
  ASSERT_TRUE(news && news->death);
  EXPECT_EQ(news->death->code(), troupe::Code::unavailable) << news->death->what();
}

/// CAF's actor system has threads, and a process with threads cannot be a zygote.
TEST(LoopActor, CafRunsWhereALoopLivesAndInNoOtherProcess) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  auto counter = ctx.spawn<Counter>();
  const int pid = ctx.get(counter.call<&Counter::pid>());
  EXPECT_TRUE(eventually([pid] { return caf_threads_of(pid) > 0; }));  // CAF names its threads
  const int zygote = ctx.get(counter.call<&Counter::parent>());
  ASSERT_GT(zygote, 1);
  EXPECT_EQ(threads_of(zygote).size(), 1U);
  EXPECT_EQ(ctx.get(ctx.submit<caf_threads_here>()), 0);
}

TEST(LoopActor, LoopsThatWaitCostNeitherThemNorTheirController) {
  constexpr int kLoops = 16;
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  std::vector<troupe::Actor<Counter>> loops;
  std::vector<int> pids;
  Counters heard;
  for (int i = 0; i < kLoops; ++i) {
    loops.push_back(ctx.spawn<Counter>());
    pids.push_back(ctx.get(loops.back().call<&Counter::pid>()));
    heard.follow(i, take_of(loops.back()));
  }
  EXPECT_FALSE(heard.next(steady_now() + 500ms));  // drains the messages of the start
  const auto switches = [&] {
    long sum = 0;
    for (const int pid : pids) sum += switches_of(pid);
    return sum;
  };
  const double cpu = own_cpu_seconds();
  const long before = switches();
  EXPECT_FALSE(heard.next(steady_now() + 2s));
  EXPECT_LT(own_cpu_seconds() - cpu, 2 * 0.02 * kLeeway);
  // Polling 50 times a second would cause 200 switches of each loop.
  EXPECT_LT(switches() - before, 20 * kLoops * kLeeway);
  kill_all(ctx, loops);
}

}  // namespace loop_actors
