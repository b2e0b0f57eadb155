/// Tests objects that are used wrongly. The caller gets an error at once, with a code and a
/// sentence, and no other process is harmed.
#include "tests/process/numbers.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace misuse_test {
namespace {

using namespace std::chrono_literals;
using troupe::Code;
using troupe::Context;
using troupe::Ref;
using troupe::Session;
using troupe::SessionOptions;

constexpr auto kBound = 20s;  // the limit of each wait; a test that reaches it fails

/// Expects that `wrong` throws an error of this code whose text contains `words`.
template <class F>
void expect_told(Code code, const char* words, F&& wrong) {
  try {
    wrong();
    ADD_FAILURE() << "nothing was said, instead of: " << words;
  } catch (const troupe::Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

struct Holds {
  Ref<Numbers> ref;
};
std::uint64_t open(Context& ctx, const Holds& holds) {
  return sum(ctx.get(holds.ref, kBound));
}
int one() {
  return 1;
}
struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
};

SessionOptions small() {
  return {.cpus = 1, .memory = troupe::Bytes{16 * kMiB}};
}

TEST(Misuse, OfAnEmptyRefIsTold) {
  Session session(small());
  Context ctx = session.context();
  Ref<Numbers> ref = ctx.put(numbers(1, 64));
  const Ref<Numbers> kept = std::move(ref);
  const Ref<Numbers>& moved = ref;  // NOLINT(bugprone-use-after-move): its use is the test
  const auto told = [](auto wrong) { expect_told(Code::invalid_argument, "empty", wrong); };
  told([&] { (void)ctx.get(moved); });
  told([&] { (void)ctx.try_get(Ref<int>{}).value(); });
  told([&] { (void)ctx.view(moved); });
  told([&] { (void)ctx.wait({moved, kept}); });
  told([&] {
    for (const auto& one : ctx.as_completed(std::vector{moved, kept})) (void)one;
  });
  told([&] { (void)ctx.submit<sum>(moved); });
  expect_told(Code::task_failed, "empty",
              [&] { (void)ctx.get(ctx.submit<open>(Holds{moved}), kBound); });
  EXPECT_FALSE(ctx.get(ctx.put(Holds{moved}), kBound).ref) << "as a member it is a value like any";
  EXPECT_EQ(sum(ctx.get(kept)), sum_of_numbers(1, 64));
}

TEST(Misuse, OfSizesIsTold) {
  Session session(small());
  Context ctx = session.context();
  const auto told = [](auto wrong) { expect_told(Code::out_of_memory, "larger arena", wrong); };
  told([&] { (void)ctx.put(numbers(1, 20 * kMiB)); });
  told([&] { (void)ctx.submit<sum>(numbers(1, 20 * kMiB)); });
  told([&] { (void)ctx.get(ctx.submit<numbers>(std::uint64_t{1}, 20 * kMiB), kBound); });
  told([&] { (void)ctx.create<double>(std::size_t{1} << 40); });
  expect_told(Code::invalid_argument, "no machine",
              [&] { (void)ctx.create<double>(~std::size_t{0}); });
  EXPECT_EQ(ctx.get(ctx.create<double>(0).seal(), kBound).size(), 0u);
}

TEST(Misuse, OfABuilderOrOfReplicasIsTold) {
  Session session(small());
  Context ctx = session.context();
  auto builder = ctx.create<int>(10'000);
  expect_told(Code::invalid_argument, "from 1 to", [&] { (void)builder.seal({.replicas = 0}); });
  (void)builder.seal();
  expect_told(Code::invalid_argument, "sealed already", [&] { (void)builder.seal(); });
  expect_told(Code::invalid_argument, "from 1 to", [&] { (void)ctx.put(1, {.replicas = -1}); });
  expect_told(Code::invalid_argument, "from 1 to", [&] { (void)ctx.put(1, {.replicas = 2000}); });
  expect_told(Code::infeasible, "private node", [&] { (void)ctx.put(1, {.replicas = 2}); });
}

TEST(Misuse, OfATypeIsTold) {
  Session session(small());
  Context ctx = session.context();
  const troupe::AnyRef text = ctx.put(std::string("hello"));
  expect_told(Code::invalid_argument, "expected type",
              [&] { (void)ctx.get(text.as<Numbers>(), kBound); });
  expect_told(Code::invalid_argument, "expected type",
              [&] { (void)ctx.view(text.as<Numbers>(), kBound); });
}

/// An object of the new session lies at the same place as one of the old session did.
TEST(Misuse, OfARefOfAnEarlierSessionIsToldAndHarmsNobody) {
  Ref<Numbers> large;
  Ref<int> result, small_value;
  troupe::Actor<Counter> actor;
  {
    Session first(small());
    Context ctx = first.context();
    large = ctx.put(numbers(1, kMiB));
    small_value = ctx.put(7);
    result = ctx.submit<one>();
    actor = ctx.spawn<Counter>();
  }
  Session second(small());
  Context ctx = second.context();
  const auto mine = ctx.put(numbers(2, kMiB));
  const auto told = [](auto wrong) {
    expect_told(Code::invalid_argument, "a session that has ended", wrong);
  };
  told([&] { (void)ctx.get(large); });
  told([&] { (void)ctx.view(large); });
  told([&] { (void)ctx.get(result); });
  told([&] { (void)ctx.submit<sum>(large); });
  told([&] { (void)ctx.put(Holds{large}); });
  told([&] { (void)ctx.submit<open>(Holds{large}); });
  told([&] { (void)actor.call<&Counter::add>(1); });
  EXPECT_EQ(ctx.wait({result}).ready.size(), 1u);
  told([&] { (void)ctx.get(small_value); });
  large = {};
  const auto other = ctx.put(numbers(3, kMiB));
  EXPECT_TRUE(ctx.get(mine) == numbers(2, kMiB));
  EXPECT_TRUE(ctx.get(other) == numbers(3, kMiB));
  EXPECT_EQ(ctx.get(ctx.submit<sum>(mine), kBound), sum_of_numbers(2, kMiB));
}

TEST(Misuse, OfAFullArenaIsToldWithWhoHoldsIt) {
  ::setenv("TROUPE_SPILL_PATIENCE_MS", "100", 1);
  Session session(small());
  ::unsetenv("TROUPE_SPILL_PATIENCE_MS");
  Context ctx = session.context();
  auto builder = ctx.create<std::uint64_t>(kMiB);
  const auto told = [](auto wrong) {
    expect_told(Code::out_of_memory, "holds most", wrong);
    expect_told(Code::out_of_memory, "what is being written", wrong);
  };
  told([&] { (void)ctx.put(numbers(1, 12 * kMiB)); });
  {
    const auto view = ctx.view(std::move(builder).seal(), kBound);
    told([&] { (void)ctx.put(numbers(1, 12 * kMiB)); });
    told([&] { (void)ctx.get(ctx.submit<numbers>(std::uint64_t{1}, 12 * kMiB), kBound); });
  }
  EXPECT_EQ(sum(ctx.get(ctx.put(numbers(1, 12 * kMiB)), kBound)), sum_of_numbers(1, 12 * kMiB));
}

}  // namespace
}  // namespace misuse_test
