// Crashes tasks and actors in private clusters and on three nodes. The error must name the place,
// in a text of its own, and stay as short as before.
#include "tests/leeway.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace crash_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;

constexpr auto kBound = 20s;              // the limit of each wait; a test that reaches it fails
constexpr bool kSanitized = kLeeway > 2;  // a sanitizer handles the signals

enum class How { segv, abort, exit, kill, overflow };

int* volatile g_nowhere = nullptr;
constexpr int kLine = __LINE__ + 2;
[[gnu::noinline]] int writes_nowhere() {
  *g_nowhere = 1;
  return 0;
}

[[gnu::noinline]] int runs_deep(int depth) {
  volatile char room[4096];
  room[0] = static_cast<char>(depth);
  return depth > 1'000'000'000 ? 0 : runs_deep(depth + 1) + room[0];
}

int ends(int how) {
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  switch (static_cast<How>(how)) {
    case How::segv: return writes_nowhere();
    case How::abort: std::abort();
    case How::exit: _exit(7);
    case How::kill: ::raise(SIGKILL); break;
    case How::overflow: return runs_deep(0);
  }
  return 0;
}

void own_handler(int) {
  _exit(9);
}
/// Sets a handler as a program does that brings its own report.
int ends_in_own_handler() {
  std::signal(SIGSEGV, own_handler);
  return writes_nowhere();
}

class Fragile {
 public:
  int falls(int how) { return ends(how); }
};

/// What an error says of a crash.
struct Said {
  std::string what, stack, explained;
};

template <class Ask>
Said said_by(const Ask& ask) {
  try {
    ask();
  } catch (const troupe::Error& error) {
    return {error.what(), error.remote_stack(), troupe::explain(error)};
  }
  ADD_FAILURE() << "no error";
  return {};
}

Said of_task(Context& ctx, How how, troupe::Placement where = {}) {
  const auto once = ctx.with(troupe::TaskOptions{.placement = where, .max_retries = 0});
  return said_by([&] { (void)ctx.get(once.submit<ends>(static_cast<int>(how)), kBound); });
}
Said of_actor(Context& ctx, How how, troupe::Placement where = {}) {
  auto actor = ctx.with(troupe::ActorOptions{.placement = where}).spawn<Fragile>();
  return said_by(
      [&] { (void)ctx.get(actor.call<&Fragile::falls>(static_cast<int>(how)), kBound); });
}

void expect_place(const Said& said, const char* function, const std::string& place) {
  EXPECT_LT(said.what.size(), 400u) << said.what;
  EXPECT_EQ(said.what.find('\n'), std::string::npos) << said.what;
  if (kSanitized) return;
  EXPECT_EQ(said.stack.find("    killed by SIG"), 0u) << said.stack << '\n' << said.what;
#ifdef TROUPE_HAS_LIBDW
  EXPECT_NE(said.stack.find(function), std::string::npos) << said.stack;
  EXPECT_NE(said.stack.find(place), std::string::npos) << said.stack;
#else
  (void)function, (void)place;
  EXPECT_NE(said.stack.find("process_test+0x"), std::string::npos) << said.stack;
#endif
  EXPECT_NE(said.explained.find(said.stack), std::string::npos) << said.explained;
}

class Crash : public testing::TestWithParam<unsigned> {
 protected:
  troupe::Session session{{.cpus = 1, .nodes = GetParam()}};
  Context ctx = session.context();
};

TEST_P(Crash, TheErrorOfATaskNamesTheLine) {
  for (const auto& node : ctx.cluster().nodes)
    expect_place(of_task(ctx, How::segv, troupe::Placement::on(node.id)), "writes_nowhere",
                 "crash_test.cpp:" + std::to_string(kLine));
  expect_place(of_task(ctx, How::abort), "ends", "crash_test.cpp:");
}

TEST_P(Crash, TheErrorOfAnActorNamesTheLine) {
  const std::string place = "crash_test.cpp:" + std::to_string(kLine);
  for (const auto& node : ctx.cluster().nodes)
    expect_place(of_actor(ctx, How::segv, troupe::Placement::on(node.id)), "writes_nowhere", place);
  const auto actor = ctx.spawn<Fragile>();
  const auto dies = actor.call<&Fragile::falls>(static_cast<int>(How::segv));
  said_by([&] { (void)ctx.get(dies, kBound); });
  // A call after the death learns of it from the directory.
  expect_place(said_by([&] { (void)ctx.get(actor.call<&Fragile::falls>(0), kBound); }),
               "writes_nowhere", place);
}

TEST_P(Crash, TheOverflowOfAStackIsNamed) {
  expect_place(of_task(ctx, How::overflow), "runs_deep", "crash_test.cpp:");
  expect_place(of_actor(ctx, How::overflow), "runs_deep", "crash_test.cpp:");
}

TEST_P(Crash, AnEndWithoutASignalHandlerHasNoStack) {
  for (const How how : {How::exit, How::kill}) {
    const Said said = of_task(ctx, how);
    EXPECT_EQ(said.stack, "") << said.what;
    EXPECT_NE(said.what.find(how == How::exit ? "exited with code 7" : "killed by signal 9"),
              std::string::npos)
        << said.what;
    EXPECT_EQ(of_actor(ctx, how).stack, "");
  }
}

TEST_P(Crash, AHandlerOfTheProgramStays) {
  const auto once = ctx.with(troupe::TaskOptions{.max_retries = 0});
  const Said said = said_by([&] { (void)ctx.get(once.submit<ends_in_own_handler>(), kBound); });
  EXPECT_NE(said.what.find("exited with code 9"), std::string::npos) << said.what;
  EXPECT_EQ(said.stack, "");
}

// Without descriptors no further child can look anything up.
TEST_P(Crash, CrashesAtOnePlaceCostOneLookUp) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer handles the signals";
  const auto once = ctx.with(troupe::TaskOptions{.max_retries = 0});
  const std::string place = "crash_test.cpp:" + std::to_string(kLine);
  expect_place(of_task(ctx, How::segv), "writes_nowhere", place);
  try {
    (void)ctx.get(once.submit<ends>(static_cast<int>(How::segv)), kBound);
    ADD_FAILURE() << "no error";
  } catch (const troupe::Error& error) {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{3, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    const std::string& stack = error.remote_stack();
    setrlimit(RLIMIT_NOFILE, &before);
    expect_place({error.what(), stack, stack}, "writes_nowhere", place);
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, Crash, testing::Values(1U, 3U),
                         [](const auto& info) { return "On" + std::to_string(info.param); });

}  // namespace
}  // namespace crash_test
