/// Tests coroutine functions and methods: order, lifetime of arguments, exceptions, and no leak
/// when the engine stops.
#include "tests/runtime/front/inline_engine.hpp"

#include <gtest/gtest.h>

namespace {

using troupe::ActorContext;
using troupe::Context;
using troupe::Ref;
using troupe::Task;
using troupe::testing::InlineEngine;

/// Counts its live instances, moved-from ones included.
struct Tracked {
  static inline int live = 0;
  Tracked() { ++live; }
  Tracked(const Tracked& other) : name(other.name) { ++live; }
  Tracked(Tracked&& other) noexcept : name(std::move(other.name)) { ++live; }
  Tracked& operator=(const Tracked&) = default;
  Tracked& operator=(Tracked&&) = default;
  ~Tracked() { --live; }
  friend auto fields(Tracked& t) { return std::tie(t.name); }
  std::string name;
};
Tracked tracked(const char* name) {
  Tracked t;
  t.name = name;
  return t;
}

Task<int> add(Ref<int> a, Ref<int> b) {
  const int x = co_await a;
  const int y = co_await b;
  co_return x + y;
}
Task<std::string> keeps_arguments(const Tracked& t, std::string_view text,
                                  std::span<const double> values, Ref<int> r) {
  const int n = co_await r;
  double sum = 0;
  for (double v : values) sum += v;
  co_return t.name + std::string(text) + std::to_string(n) + std::to_string(static_cast<int>(sum));
}
Task<int> inner(Ref<int> r) {
  co_return co_await r * 10;
}
Task<int> outer(Ref<int> r, int times) {
  int total = 0;
  for (int i = 0; i < times; ++i) total += co_await inner(r);
  co_return total;
}
Task<int> leaf() {
  co_return 1;
}
Task<int> long_loop(int n) {
  int total = 0;
  for (int i = 0; i < n; ++i) total += co_await leaf();
  co_return total;
}
Task<void> waits(Ref<void> r) {
  co_await r;
}
Task<int> fails_after(Ref<int> r) {
  const int n = co_await r;
  throw std::out_of_range("after " + std::to_string(n));
}
Task<std::string> catches(Ref<int> r) {
  try {
    co_await inner(r);
  } catch (const troupe::ObjectLost& e) {
    co_return "lost: " + e.message();
  }
  co_return "fine";
}
Task<int> at_once(int x) {
  co_return x;
}
Task<int> throws_at_once(int x) {
  if (x > 0) throw std::runtime_error("at once");
  co_return x;
}
int twice(int x) {
  return 2 * x;
}
Task<Ref<int>> passes_on(Context& ctx, Ref<int> r) {
  const int n = co_await r;
  co_return ctx.submit<twice>(n);
}
Task<std::tuple<int, std::string>> two(Ref<int> r) {
  const int n = co_await r;
  co_return std::tuple(n, std::to_string(n));
}

TEST(Coroutines, wait_and_go_on) {
  InlineEngine engine;
  const Context ctx = engine.context();
  auto a = engine.promise<int>();
  auto b = engine.promise<int>();
  const Ref<int> sum = ctx.submit<add>(a, b);
  engine.drain();
  engine.keep_promise(b, 2);
  engine.drain();
  EXPECT_FALSE(engine.is_ready(troupe::detail::Access::handle(sum)));
  engine.keep_promise(a, 1);
  EXPECT_EQ(ctx.get(sum), 3);
  EXPECT_EQ(ctx.get(ctx.submit<at_once>(4)), 4);
  EXPECT_EQ(ctx.get(ctx.submit([](Ref<int> r) -> Task<int> { co_return co_await r + 1; }, a)), 2);
  EXPECT_EQ(ctx.get(ctx.submit<passes_on>(a)), 2);
  auto [n, text] = ctx.submit_split<two>(b);
  EXPECT_EQ(ctx.get(text), "2");
  EXPECT_EQ(ctx.get(n), 2);
}

TEST(Coroutines, arguments_live_until_the_end) {
  InlineEngine engine;
  const Context ctx = engine.context();
  auto r = engine.promise<int>();
  const Ref<std::string> text =
      ctx.submit<keeps_arguments>(tracked("t"), "view", std::vector<double>(1000, 2.0), r);
  const Ref<std::string> from_refs = ctx.submit<keeps_arguments>(
      ctx.put(tracked("u")), ctx.put("ref"), ctx.put(std::vector<double>(10, 1.0)), r);
  engine.drain();
  EXPECT_GT(Tracked::live, 0);
  engine.keep_promise(r, 7);
  EXPECT_EQ(ctx.get(text), "tview72000");
  EXPECT_EQ(ctx.get(from_refs), "uref710");
  EXPECT_EQ(Tracked::live, 0);
}

TEST(Coroutines, await_each_other_without_using_up_the_stack) {
  InlineEngine engine;
  const Context ctx = engine.context();
  auto r = engine.promise<int>();
  const Ref<int> total = ctx.submit<outer>(r, 3);
  const Ref<int> text = ctx.submit<long_loop>(200'000);
  EXPECT_EQ(ctx.get(text), 200'000);
  engine.keep_promise(r, 1);
  EXPECT_EQ(ctx.get(total), 30);
}

TEST(Coroutines, errors_arrive_typed) {
  InlineEngine engine;
  const Context ctx = engine.context();
  auto r = engine.promise<int>();
  auto lost = engine.promise<int>();
  const auto failing = ctx.submit<fails_after>(r);
  const auto caught = ctx.submit<catches>(lost);
  const auto uncaught = ctx.submit<add>(lost, r);
  engine.drain();
  engine.keep_promise(r, 5);
  engine.break_promise(lost, troupe::Error(troupe::Code::object_lost, "gone"));
  try {
    ctx.get(failing);
    FAIL();
  } catch (const troupe::TaskFailed& e) {
    EXPECT_TRUE(e.is<std::out_of_range>());
    EXPECT_EQ(e.message(), "after 5");
  }
  EXPECT_EQ(ctx.get(caught), "lost: gone");
  EXPECT_THROW(ctx.get(uncaught), troupe::TaskFailed);
  EXPECT_THROW(ctx.get(ctx.submit<throws_at_once>(1)), troupe::TaskFailed);
  const Ref<void> done = ctx.submit<waits>(ctx.submit([] {}));
  ctx.get(done);
}

struct Account {
  int balance = 0;
  std::vector<std::string> log = {};
  Task<int> deposit_when_ready(Ref<int> amount) {
    log.push_back("before");
    const int k = co_await amount;
    log.push_back("after");
    co_return balance += k;
  }
  int deposit(int k) {
    log.push_back("plain");
    return balance += k;
  }
  Task<int> through_self(ActorContext& self, int k) {
    const troupe::Actor<Account> me = self.self<Account>();
    auto doubled = self.submit<twice>(k);  // submitted first, awaited later
    const int d = co_await doubled;
    auto stored = me.call<&Account::deposit>(d);
    const int result = co_await stored;
    co_return result + (self.restarted() ? 1000 : 0);
  }
  std::vector<std::string> entries() const { return log; }
};

TEST(CoroutineMethods, admit_other_messages_while_they_wait) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto account = ctx.spawn<Account>();
  auto amount = engine.promise<int>();
  const auto late = account.call<&Account::deposit_when_ready>(amount);
  const auto early = account.call<&Account::deposit>(1);
  EXPECT_EQ(ctx.get(early), 1);
  engine.keep_promise(amount, 10);
  EXPECT_EQ(ctx.get(late), 11);
  EXPECT_EQ(ctx.get(account.call<&Account::entries>()),
            (std::vector<std::string>{"before", "plain", "after"}));
}

TEST(CoroutineMethods, call_their_own_actor_and_others) {
  InlineEngine engine;
  const Context ctx = engine.context();
  const auto account = ctx.spawn<Account>(100);
  EXPECT_EQ(ctx.get(account.call<&Account::through_self>(4)), 108);
}

TEST(Coroutines, that_never_end_are_freed_with_the_engine) {
  {
    InlineEngine engine;
    const Context ctx = engine.context();
    const auto never = engine.promise<int>();
    const auto account = ctx.spawn<Account>();
    auto a = ctx.submit<keeps_arguments>(tracked("x"), "y", std::vector<double>(1000), never);
    auto b = ctx.submit<outer>(never, 2);
    auto c = account.call<&Account::deposit_when_ready>(never);
    engine.drain();
    EXPECT_GT(Tracked::live, 0);
  }
  EXPECT_EQ(Tracked::live, 0);  // LeakSanitizer checks the frames
}

}  // namespace
