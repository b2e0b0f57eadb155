// Tests Values: VALUE-1 to VALUE-6.
#include "troupe/runtime/client/values.hpp"

#include "troupe/runtime/wire/cases.hpp"

#include <gtest/gtest.h>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::client::values_test {
namespace {

using Handle = detail::ObjectHandle;
constexpr ProcessIndex kSelf = 7, kOther = 8;
constexpr std::uint64_t kHigh = 5, kTheirs = 6;

struct ValuesTest : testing::Test, Values::Out, Values::Lost {
  ValuesTest() { values.begin(kSelf, kHigh, 1); }
  // Values::Out
  void tell(const wire::NodeMessage& message, BlobView) override {
    const auto name = [](ObjectId id) { return std::to_string(id.low); };
    std::visit(wire::Cases{
                   [&](const wire::Promote& m) { said += "promote(" + name(m.object) + ") "; },
                   [&](const wire::Fulfil& m) { said += "fulfil(" + name(m.object) + ") "; },
                   [&](const wire::Await& m) {
                     said += (m.fetch ? "fetch(" : "await(") + name(m.object) + ") ";
                   },
                   [&](const wire::Hold& m) {
                     said += "hold(" + name(m.object) + "," + std::to_string(m.process.value) +
                             "," + std::to_string(m.delta) + ") ";
                   },
                   [&](const wire::Adopt&) { said += "adopt "; },
                   [&](const wire::Free&) { said += "free "; }, [&](const auto&) { said += "? "; }},
               message);
  }
  void collect_released() override {}
  void notify() override { ++notified; }
  void fire(const Waiter& waiter, Entry& entry) override {
    auto* told = static_cast<std::function<void(Entry&)>*>(waiter.who);
    (*told)(entry);
  }
  // Values::Lost
  bool recover_pending(Entry&, Error& error) override {
    error = Error(Code::object_lost, "for good");
    return false;
  }
  void outlive(Entry&) override {}
  void tell_calls() override {}
  void hand_over(Entry&) override {}
  bool park(Entry&) override { return false; }
  Handle revive(Entry& entry) override { return ObjectTable::keep(entry); }

  static wire::Value bytes_of(std::size_t size) {
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    value.payload_size = static_cast<std::uint32_t>(size);
    return value;
  }
  Handle pending() { return values.objects().create(); }
  Handle ready(std::vector<Handle> refs = {}) {
    OutgoingValue value;
    value.kind = wire::Value::Kind::inline_bytes;
    value.bytes.resize(3);
    value.refs = std::move(refs);
    return values.object_of(std::move(value));
  }
  void settle(const Handle& handle) { values.settle(entry_of(handle), bytes_of(4), Blob(4)); }
  /// Calls `then` when the object is ready.
  void when_ready(const Handle& handle, std::function<void(Entry&)>& then) {
    const auto fires = [](Calls&, void*, Entry&) {};
    entry_of(handle).waiters.edit().push_back({fires, &then});
  }
  std::string heard() { return std::exchange(said, {}); }

  std::string said;
  int notified = 0;
  StoreUse store;
  SchedulingClasses classes;
  Values values{static_cast<Values::Out&>(*this), static_cast<Values::Lost&>(*this), store,
                classes};
};

TEST_F(ValuesTest, EntryIsSettledOnceAndWakesItsWaiters) {
  const Handle object = pending();
  int woken = 0;
  std::function<void(Entry&)> count = [&](Entry& entry) {
    ++woken;
    EXPECT_TRUE(entry.ready.load());
  };
  when_ready(object, count);
  settle(object);
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(notified, 1);
  values.settle_error(entry_of(object), Error(Code::internal, "late"));
  EXPECT_EQ(entry_of(object).kind, wire::Value::Kind::inline_bytes);
  EXPECT_EQ(woken, 1);
}

TEST_F(ValuesTest, WaitersRunAfterEachOtherAndNotInside) {
  const Handle first = pending(), second = pending();
  std::string order;
  std::function<void(Entry&)> one = [&](Entry&) {
    order += "1(";
    settle(second);
    order += ")";
  };
  std::function<void(Entry&)> two = [&](Entry&) { order += "2"; };
  when_ready(first, one);
  when_ready(second, two);
  settle(first);
  EXPECT_EQ(order, "1()2");
}

TEST_F(ValuesTest, WakeLaterHoldsWaitersBack) {
  const Handle object = pending();
  int woken = 0;
  std::function<void(Entry&)> count = [&](Entry&) { ++woken; };
  when_ready(object, count);
  {
    const Values::WakeLater later(values);
    settle(object);
    EXPECT_EQ(woken, 0);
  }
  EXPECT_EQ(woken, 1);
}

TEST_F(ValuesTest, ObjectsThatARecordNamesArePromotedBeforeIt) {
  const Handle inner = ready();
  const Handle middle = ready({inner});
  const Handle outer = ready({middle});
  values.promote(entry_of(outer));
  EXPECT_EQ(heard(), "promote(1) promote(2) promote(3) ");
  values.promote(entry_of(outer));
  EXPECT_EQ(heard(), "") << "once";
}

TEST_F(ValuesTest, ChainsOfAnyLengthArePromotedAndFollowed) {
  Handle last = ready();
  for (int i = 0; i < 100'000; ++i) last = ready({last});
  values.promote(entry_of(last));
  EXPECT_EQ(heard().substr(0, 22), "promote(1) promote(2) ");
  const Handle source = pending();
  std::vector<Handle> chain{source};
  for (int i = 0; i < 2'000; ++i) {
    chain.push_back(pending());
    entry_of(chain.back()).source = chain[chain.size() - 2];
    values.follow(entry_of(chain.back()));
  }
  settle(source);
  EXPECT_TRUE(entry_of(chain.back()).ready.load());
  while (!chain.empty()) {  // the handles inside go one after another
    entry_of(chain.back()).source = {};
    chain.pop_back();
  }
}

TEST_F(ValuesTest, PendingObjectIsFulfilledWhenItIsReady) {
  const Handle object = pending();
  values.promote(entry_of(object));
  EXPECT_EQ(heard(), "promote(1) ");
  settle(object);
  EXPECT_EQ(heard(), "fulfil(1) ");
}

TEST_F(ValuesTest, ReceiverIsCountedBeforeTheFrame) {
  const Handle inner = ready();
  const Handle object = ready({inner});
  Blob payload;
  const wire::Value value = values.outgoing(object, {.holder = kOther}, payload);
  EXPECT_EQ(value.kind, wire::Value::Kind::inline_bytes);
  ASSERT_EQ(value.refs.size(), 1u);
  EXPECT_EQ(heard(), "promote(1) hold(1,8,1) ") << "small values travel without their own id";
  const Handle wanted = pending();
  EXPECT_EQ(values.outgoing(wanted, {.holder = kOther}, payload).kind,
            wire::Value::Kind::forwarded);
  EXPECT_EQ(heard(), "promote(3) hold(3,8,1) ");
  values.outgoing(wanted, for_agent(), payload);
  EXPECT_EQ(heard(), "") << "the agent counts what it receives itself";
}

TEST_F(ValuesTest, CountOfARefThatWasKnownGoesBack) {
  const ObjectId id{kTheirs, 9};
  const Handle first = values.adopt_one(id);
  EXPECT_EQ(heard(), "") << "the new entry takes the count over";
  const Handle second = values.adopt_one(id);
  EXPECT_EQ(heard(), "hold(9,7,-1) ");
  EXPECT_EQ(&entry_of(first), &entry_of(second));
  wire::Value unwanted;
  unwanted.refs = {id};
  values.give_back(unwanted);
  EXPECT_EQ(heard(), "hold(9,7,-1) ");
  unwanted.kind = wire::Value::Kind::shared;
  values.discard(unwanted);
  EXPECT_EQ(heard(), "hold(9,7,-1) free ");
}

TEST_F(ValuesTest, LastHandleOfAPromotedEntryGivesItsCountBack) {
  Handle object = values.adopt_one(ObjectId{kTheirs, 9});
  Entry& entry = entry_of(object);
  entry.handles = 2;  // the test's count keeps it when the handle goes
  object = {};
  entry.handles = 0;
  values.free(&entry);
  EXPECT_EQ(heard(), "hold(9,7,-1) ");
  EXPECT_EQ(values.objects().find(ObjectId{kTheirs, 9}), nullptr);
}

TEST_F(ValuesTest, NeedAsksOncePerKindOfWish) {
  const Handle object = values.adopt_one(ObjectId{kTheirs, 9});
  values.need(entry_of(object), false);
  values.need(entry_of(object), false);
  EXPECT_EQ(heard(), "await(9) ");
  values.need(entry_of(object), true);
  values.need(entry_of(object), true);
  EXPECT_EQ(heard(), "fetch(9) ");
}

TEST_F(ValuesTest, FollowerGetsTheValueOfItsSource) {
  const Handle source = pending(), object = pending();
  OutgoingValue value;
  value.kind = wire::Value::Kind::forwarded;
  value.forward = source;
  values.settle_own(entry_of(object), std::move(value));
  EXPECT_FALSE(entry_of(object).ready.load());
  settle(source);
  ASSERT_TRUE(entry_of(object).ready.load());
  EXPECT_EQ(entry_of(object).value, entry_of(source).value);
}

TEST_F(ValuesTest, ObjectThatIsForwardedToItselfEndsInAnError) {
  const Handle object = pending(), other = pending();
  for (const auto& [from, to] : {std::pair(object, other), std::pair(other, object)}) {
    OutgoingValue value;
    value.kind = wire::Value::Kind::forwarded;
    value.forward = to;
    values.settle_own(entry_of(from), std::move(value));
  }
  ASSERT_TRUE(entry_of(other).ready.load());
  EXPECT_EQ(entry_of(other).kind, wire::Value::Kind::error);
  EXPECT_EQ(entry_of(object).kind, wire::Value::Kind::error) << "it follows";
}

TEST_F(ValuesTest, FollowersOfALostSourceEndAsTheirOwnerDecides) {
  const Handle source = pending(), object = pending();
  entry_of(object).source = source;
  values.follow(entry_of(object));
  values.settle_error(entry_of(source), Error(Code::object_lost, "gone"));
  ASSERT_TRUE(entry_of(object).ready.load());
  EXPECT_EQ(entry_of(object).error->message, "for good");
}

TEST_F(ValuesTest, FollowerThatLeavesIsNotWoken) {
  const Handle source = pending(), object = pending();
  entry_of(object).source = source;
  values.follow(entry_of(object));
  std::vector<Handle> followers;
  values.leave(entry_of(source), followers);
  ASSERT_EQ(followers.size(), 1u);
  EXPECT_EQ(&entry_of(followers[0]), &entry_of(object));
  settle(source);
  EXPECT_FALSE(entry_of(object).ready.load());
}

}  // namespace
}  // namespace troupe::client::values_test
