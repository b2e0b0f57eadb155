// Tests Lineage. LINEAGE-1: its bytes are bounded. LINEAGE-2: which objects are parked.
// LINEAGE-3: a call that is under way is not begun again. LINEAGE-4: long chains need no
// recursion. It also tests which calls are gathered, in which order, and what prevents it.
#include "troupe/runtime/client/lineage.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace troupe::client {
namespace {

using Handle = detail::ObjectHandle;

struct Lineages : testing::Test {
  struct Out final : Lineage::Out {
    std::vector<Entry*> freed;
    void unparked(Entry& entry) override { freed.push_back(&entry); }
    void forgotten(std::uint64_t) override {}
  } out;
  std::uint64_t next = 0;
  std::vector<std::unique_ptr<Entry>> entries;

  /// Returns a ready object that lives as long as the test.
  Handle object(std::size_t bytes = 0) {
    Entry* entry = entries.emplace_back(std::make_unique<Entry>()).get();
    entry->id = ObjectId{1, ++next};
    entry->kind = wire::Value::Kind::shared;
    entry->location.edit().length = bytes;
    entry->ready = true;
    entry->handles = 2;  // one count is the test's, so release_object() does not delete it
    return Handle::adopt(entry);
  }
  static std::unique_ptr<Task> task(std::vector<Handle> arguments, std::vector<Handle> results,
                                    int retries = 3) {
    auto made = std::make_unique<Task>();
    for (Handle& argument : arguments)
      made->call.arguments.push_back({0, 0, 0, 0, std::move(argument)});
    made->results.assign(results.begin(), results.end());
    made->retries_left = retries;
    return made;
  }
  /// Drops the last handle; returns whether the object was parked.
  static bool drop(Lineage& lineage, Handle& handle) {
    Entry& entry = entry_of(handle);
    handle = {};
    entry.handles = 0;
    if (lineage.park(entry)) return true;
    lineage.forget(entry);
    return false;
  }
  static std::vector<Spec*> gather(Lineage& lineage, Spec& spec) {
    std::vector<Spec*> order;
    std::vector<Handle> held;
    lineage.gather(spec, order, held).value();
    return order;
  }
};

TEST_F(Lineages, AnArgumentThatATaskMadeIsNotKept) {
  Lineage lineage(out, Bytes{1 << 20});
  Handle a = object(1000), b = object(1000);
  lineage.keep(task({}, {a}));
  lineage.keep(task({a}, {b}));
  EXPECT_EQ(lineage.kept(), 2u);
  const std::size_t before = lineage.bytes();
  EXPECT_FALSE(drop(lineage, a)) << "its bytes go";
  EXPECT_EQ(lineage.bytes(), before);
  Spec& second = *entry_of(b).made_by;
  const auto order = gather(lineage, second);
  ASSERT_EQ(order.size(), 2u) << "what made it runs first";
  EXPECT_EQ(order[1], &second);
  drop(lineage, b);
  EXPECT_EQ(lineage.kept(), 0u) << "nobody can name a result of either";
  EXPECT_EQ(lineage.bytes(), 0u);
}

TEST_F(Lineages, AnArgumentThatNothingMadeIsParked) {
  Lineage lineage(out, Bytes{1 << 20});
  Handle put = object(5000), result = object();
  lineage.keep(task({put}, {result}));
  const std::size_t before = lineage.bytes();
  Entry& parked = entry_of(put);
  EXPECT_TRUE(drop(lineage, put));
  EXPECT_GE(lineage.bytes(), before + 5000) << "LINEAGE-1";
  {
    const Handle again = lineage.revive(parked);
    EXPECT_TRUE(again);
    EXPECT_EQ(lineage.bytes(), before);
    parked.handles = 2;
  }
  parked.handles = 0;
  EXPECT_TRUE(lineage.park(parked));
  EXPECT_TRUE(out.freed.empty());
  drop(lineage, result);
  EXPECT_EQ(out.freed, std::vector<Entry*>{&parked}) << "LINEAGE-2";
  EXPECT_EQ(lineage.bytes(), 0u);
}

TEST_F(Lineages, TheOldestIsEvictedAndSaysSo) {
  Lineage lineage(out, Bytes{15'000});
  Handle put = object(8'000), first = object(), second = object(), large = object(9'000);
  lineage.keep(task({put}, {first}));
  lineage.keep(task({large}, {second}));
  Entry& parked = entry_of(put);
  drop(lineage, put);
  EXPECT_EQ(lineage.kept(), 2u);
  drop(lineage, large);  // together they exceed the limit
  EXPECT_LE(lineage.bytes(), 15'000u);
  EXPECT_EQ(lineage.kept(), 1u);
  EXPECT_EQ(out.freed, std::vector<Entry*>{&parked});
  std::vector<Spec*> order;
  std::vector<Handle> held;
  const auto possible = lineage.gather(*entry_of(first).made_by, order, held);
  ASSERT_FALSE(possible);
  EXPECT_EQ(possible.error().code(), Code::object_lost);
  EXPECT_NE(possible.error().message().find("TROUPE_LINEAGE"), std::string::npos);
  EXPECT_EQ(gather(lineage, *entry_of(second).made_by).size(), 1u);
}

TEST_F(Lineages, WhatIsToRunIsNotEvicted) {
  Lineage lineage(out, Bytes{15'000});
  Handle a = object(), b = object(), c = object(), large = object(20'000);
  lineage.keep(task({}, {a}));
  lineage.keep(task({a}, {b}));
  lineage.keep(task({large}, {c}));
  drop(lineage, a);
  std::vector<Handle> held;
  const auto runs = lineage.begin_all(*entry_of(b).made_by, held).value();
  drop(lineage, large);  // more than the whole limit
  EXPECT_EQ(lineage.kept(), 0u);
  ASSERT_EQ(runs.size(), 2u);
  for (const Lineage::Run& run : runs) {
    ASSERT_TRUE(run.task);
    EXPECT_EQ(run.task->attempt, 2u);
    EXPECT_TRUE(run.spec->running);
  }
  EXPECT_EQ(runs[1].spec->inputs.size(), 1u) << "it still knows its argument";
}

TEST_F(Lineages, AnEarlierResultThatOthersHoldIsNotForgottenForALaterOne) {
  Lineage lineage(out, Bytes{1 << 20});
  Handle a = object(), b = object(), told = object();
  lineage.keep(task({}, {a}));
  Spec& spec = *entry_of(a).made_by;
  auto running = lineage.begin(spec);
  lineage.is_result(spec, 0, entry_of(b));
  running->results.push_back(b);
  lineage.keep(std::move(running));
  EXPECT_TRUE(lineage.send_away(entry_of(a))) << "its bytes were there when its task ran again";
  lineage.forget_away(a.id());
  entry_of(a).recompute_target = static_cast<Entry*>(told.entry());
  EXPECT_FALSE(lineage.send_away(entry_of(a))) << "who holds it was told of the later one";
  entry_of(a).recompute_target = nullptr;
}

TEST_F(Lineages, AnEvictedArgumentStandsInTheWayOnlyWhenItIsGone) {
  Lineage lineage(out, Bytes{1 << 20});
  Handle a = object(), b = object();
  lineage.keep(task({}, {a}));
  lineage.keep(task({a}, {b}));
  lineage.failed(*entry_of(a).made_by, Spec::End::evicted);
  EXPECT_EQ(gather(lineage, *entry_of(b).made_by).size(), 1u);
  drop(lineage, a);
  std::vector<Spec*> order;
  std::vector<Handle> held;
  EXPECT_FALSE(lineage.gather(*entry_of(b).made_by, order, held));
}

TEST_F(Lineages, EachRunCostsARetry) {
  Lineage lineage(out, Bytes{1 << 20});
  Handle a = object();
  lineage.keep(task({}, {a}, 1));
  Spec& spec = *entry_of(a).made_by;
  auto running = lineage.begin(spec);
  EXPECT_EQ(running->attempt, 2u);
  EXPECT_TRUE(gather(lineage, spec).empty()) << "LINEAGE-3";
  Handle target = object();
  lineage.is_result(spec, 0, entry_of(target));
  running->results.push_back(target);
  lineage.keep(std::move(running));
  EXPECT_EQ(spec.results[0], &entry_of(target));
  std::vector<Spec*> order;
  std::vector<Handle> held;
  const auto possible = lineage.gather(spec, order, held);
  ASSERT_FALSE(possible);
  EXPECT_NE(possible.error().message().find("max_retries"), std::string::npos);
  drop(lineage, a);
  drop(lineage, target);
  EXPECT_EQ(lineage.bytes(), 0u);
}

TEST_F(Lineages, AResultThatOnlyOthersHoldKeepsItsCall) {
  Lineage lineage(out, Bytes{1 << 20});
  Handle a = object();
  const ObjectId id = a.id();
  lineage.keep(task({}, {a}));
  EXPECT_TRUE(lineage.send_away(entry_of(a)));
  drop(lineage, a);
  ASSERT_NE(lineage.away(id), nullptr);
  EXPECT_EQ(gather(lineage, *lineage.away(id)->spec).size(), 1u);
  lineage.forget_away(id);
  EXPECT_EQ(lineage.kept(), 0u);
}

TEST_F(Lineages, AChainOfAHundredThousandCalls) {
  Lineage lineage(out, Bytes{1 << 30});
  Handle last = object();
  lineage.keep(task({}, {last}));
  for (int i = 0; i < 100'000; ++i) {
    Handle next_one = object();
    lineage.keep(task({last}, {next_one}));
    drop(lineage, last);
    last = next_one;
  }
  EXPECT_EQ(gather(lineage, *entry_of(last).made_by).size(), 100'001u) << "LINEAGE-4";
  drop(lineage, last);
  EXPECT_EQ(lineage.kept(), 0u);
}

TEST_F(Lineages, WithoutALimitNothingIsKept) {
  Lineage lineage(out, Bytes{0});
  Handle a = object();
  lineage.keep(task({}, {a}));
  EXPECT_EQ(entry_of(a).made_by, nullptr);
}

}  // namespace
}  // namespace troupe::client
