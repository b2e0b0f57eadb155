// Tests Recovery: RECOVERY-1 to RECOVERY-4.
#include "troupe/runtime/client/recovery.hpp"

#include "troupe/runtime/wire/cases.hpp"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace troupe::client::recovery_test {
namespace {

using Handle = detail::ObjectHandle;
constexpr ProcessIndex kSelf = 7;
constexpr std::uint64_t kHigh = 5, kTheirs = 6;

void run_nothing(detail::Invocation&) {}
const detail::Callable kFunction{.thunk = &run_nothing, .name = "nothing()"};

struct RecoveryTest : testing::Test, Recovery::Out {
  RecoveryTest() {
    values.begin(kSelf, kHigh, 1);
    recovery.belongs_to(kSelf);
  }
  // Recovery::Out
  void tell(const wire::NodeMessage& message, BlobView) override {
    const auto name = [](ObjectId id) { return std::to_string(id.low); };
    std::visit(
        wire::Cases{[&](const wire::Rebuild& m) { said += "rebuild(" + name(m.object) + ") "; },
                    [&](const wire::Rebuilt& m) {
                      const bool failed = m.value.kind == wire::Value::Kind::error;
                      said += (failed ? "refuse(" : "rebuilt(") + name(m.object) + ") ";
                    },
                    [&](const wire::KeptCall& m) {
                      said += "call(" + std::to_string(m.number & 0xffff) + ") ";
                    },
                    [&](const wire::MadeBy& m) {
                      said +=
                          "made(" + name(m.object) + "," + std::to_string(m.call & 0xffff) + ") ";
                    },
                    [&](const wire::Lineage& m) { said += "lineage(" + name(m.object) + ") "; },
                    [&](const auto&) {}},
        message);
  }
  void collect_released() override {}
  void notify() override {}
  void fire(const Waiter&, Entry&) override {}
  void unparked(Entry&) override {}
  void run_again(std::unique_ptr<Task> task) override { runs.push_back(std::move(task)); }
  void recovered() override { ++recoveries; }

  Handle keep(Handle handle) { return held.emplace_back(std::move(handle)); }
  /// A result in shared memory of a task with these arguments, whose call is kept.
  Handle computed(std::vector<Handle> arguments = {}) {
    auto task = std::make_unique<Task>();
    task->call.callable = &kFunction;
    for (Handle& argument : arguments) {
      entry_of(argument).argued = true;
      task->call.arguments.push_back({0, 0, 0, 0, std::move(argument)});
    }
    Handle result = keep(values.objects().create());
    wire::Value value;
    value.kind = wire::Value::Kind::shared;
    values.settle(entry_of(result), value, {});
    task->results.push_back(result);
    recovery.remember(std::move(task));
    return result;
  }
  /// An object of another process whose bytes lie at another node.
  Handle theirs(std::uint64_t low) {
    Handle handle = keep(values.adopt_one(ObjectId{kTheirs, low}));
    wire::Value value;
    value.kind = wire::Value::Kind::remote;
    values.settle(entry_of(handle), value, {}, NodeId{0, 3});
    return handle;
  }
  bool recover(const Handle& handle, std::string* why = nullptr) {
    Error error(Code::object_lost, "the node is dead");
    const bool may_come = recovery.recover(entry_of(handle), error);
    EXPECT_EQ(error.code(), Code::object_lost);
    if (why != nullptr) *why = error.message();
    return may_come;
  }
  static wire::Value lost(const std::string& why) {
    wire::Value value;
    value.kind = wire::Value::Kind::error;
    value.error = Error(Code::object_lost, why).shared_info();
    return value;
  }
  /// An object of another process that was forwarded to one that is lost, and whose owner refuses
  /// to have it computed again.
  Handle refused_to_follow(const std::string& why_lost, const std::string& refusal) {
    const ObjectId outer{kTheirs, 1}, inner{kTheirs, 2};
    Handle handle = keep(values.adopt_one(outer));
    wire::Value forward;
    forward.kind = wire::Value::Kind::forwarded;
    forward.forward = inner;
    values.settle(entry_of(handle), forward, {});
    const Handle source = keep(values.find_held(inner));
    values.settle(entry_of(source), lost(why_lost), {});
    EXPECT_EQ(heard(), "rebuild(1) ");
    wire::Ready answer;
    answer.object = outer;
    answer.value = lost(refusal);
    recovery.on_ready(answer, {});
    EXPECT_TRUE(entry_of(handle).ready);
    EXPECT_EQ(entry_of(handle).kind, wire::Value::Kind::error);
    return handle;
  }
  std::string heard() { return std::exchange(said, {}); }

  std::vector<Handle> held;  ///< entries outlive what names them
  std::vector<std::unique_ptr<Task>> runs;
  std::string said;
  int recoveries = 0;
  StoreUse store;
  SchedulingClasses classes;
  Recovery recovery{static_cast<Recovery::Out&>(*this), values, classes, true, Bytes{1 << 20}};
  Values values{static_cast<Values::Out&>(*this), recovery, store, classes};
};

TEST_F(RecoveryTest, LostResultGetsOneRecomputeTarget) {
  const Handle result = computed();
  EXPECT_TRUE(recover(result));
  ASSERT_EQ(runs.size(), 1u);
  Entry* target = entry_of(result).recompute_target.load();
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(&entry_of(runs[0]->results[0]), target);
  EXPECT_EQ(recoveries, 1);
  EXPECT_TRUE(recover(result)) << "it is on its way";
  EXPECT_EQ(runs.size(), 1u);
}

TEST_F(RecoveryTest, ArgumentThatIsHereIsUsedAgain) {
  const Handle first = computed();
  const Handle second = computed({first});
  EXPECT_TRUE(recover(second));
  ASSERT_EQ(runs.size(), 1u);
  ASSERT_EQ(runs[0]->call.arguments.size(), 1u);
  EXPECT_EQ(runs[0]->call.arguments[0].object, first);
}

TEST_F(RecoveryTest, OwnerIsAskedOnceAndItsRefusalIsFinal) {
  const Handle object = theirs(9);
  EXPECT_TRUE(recover(object));
  EXPECT_EQ(heard(), "rebuild(9) ");
  EXPECT_TRUE(recover(object));
  EXPECT_EQ(heard(), "") << "the answer is on its way";
  wire::Value refused;
  refused.kind = wire::Value::Kind::error;
  refused.error = Error(Code::object_lost, "nobody has it").shared_info();
  recovery.rebuilt(entry_of(object), refused, {});
  EXPECT_EQ(recoveries, 1);
  std::string why;
  EXPECT_FALSE(recover(object, &why));
  EXPECT_NE(why.find("cannot be computed again"), std::string::npos) << why;
  EXPECT_EQ(heard(), "");
}

TEST_F(RecoveryTest, AnswerThatLeadsBackToTheEntryIsRefused) {
  const Handle object = theirs(9);
  EXPECT_TRUE(recover(object));
  wire::Value back;
  back.kind = wire::Value::Kind::forwarded;
  back.forward = ObjectId{kTheirs, 9};
  recovery.rebuilt(entry_of(object), back, {});
  EXPECT_EQ(entry_of(object).recompute_target.load(), nullptr);
  EXPECT_TRUE(entry_of(object).refused);
}

TEST_F(RecoveryTest, PutObjectIsLostForGoodWithTheReason) {
  OutgoingValue value;
  value.kind = wire::Value::Kind::inline_bytes;
  const Handle object = keep(values.object_of(std::move(value)));
  entry_of(object).kind = wire::Value::Kind::remote;
  std::string why;
  EXPECT_FALSE(recover(object, &why));
  EXPECT_NE(why.find("it was put"), std::string::npos) << why;
  EXPECT_TRUE(runs.empty());
}

TEST_F(RecoveryTest, ErrorOfTheSecondRunIsNamedWithItsTask) {
  const Handle result = computed();
  EXPECT_TRUE(recover(result));
  ASSERT_EQ(runs.size(), 1u);
  const Error full(Code::out_of_memory, "the store is full", Outcome::executed);
  const Error lost = Recovery::cannot_run_again(*runs[0], full);
  EXPECT_EQ(lost.code(), Code::object_lost);
  EXPECT_EQ(lost.message(),
            "the bytes of an object are gone, and cannot be computed again: the task that "
            "computed it, nothing(), ended in an error when it ran again: out_of_memory: the "
            "store is full");
  ASSERT_NE(lost.cause(), nullptr);
  EXPECT_EQ(lost.cause()->code(), Code::out_of_memory);
  EXPECT_EQ(Recovery::cannot_run_again(*runs[0], lost).message(), lost.message()) << "said once";
}

TEST_F(RecoveryTest, RefusalDoesNotHideWhyTheSecondRunFailed) {
  const Handle object = refused_to_follow(
      "the bytes of an object are gone, and cannot be computed again: the store is full",
      "its maker does not know how");
  EXPECT_EQ(entry_of(object).error->message,
            "the bytes of an object are gone, and cannot be computed again: the store is full");
}

TEST_F(RecoveryTest, RefusalOfWhatFollowsALostObjectNamesThatAsTheCause) {
  const Handle object = refused_to_follow("the node is dead", "its maker does not know how");
  const Error error(*entry_of(object).error);
  EXPECT_EQ(error.message(),
            "the bytes of an object are gone, and cannot be computed again: its maker does not "
            "know how");
  ASSERT_NE(error.cause(), nullptr);
  EXPECT_EQ(error.cause()->message(), "the node is dead");
}

TEST_F(RecoveryTest, CallIsToldAfterThoseThatMadeItsArgumentsAndOnce) {
  const Handle first = computed();
  const Handle second = computed({first});
  values.promote(entry_of(second));
  EXPECT_EQ(heard(), "call(1) call(2) made(2,2) ");
  values.promote(entry_of(second));
  EXPECT_EQ(heard(), "");
  values.promote(entry_of(first));
  EXPECT_EQ(heard(), "made(1,1) ");
}

TEST_F(RecoveryTest, RebuildOfAnUnknownObjectIsRefused) {
  recovery.on_rebuild({ObjectId{kTheirs, 4}, ObjectId{kTheirs, 4}});
  EXPECT_EQ(heard(), "refuse(4) ");
}

TEST_F(RecoveryTest, RebuildOfAResultRunsItsTaskAndNamesTheTarget) {
  const Handle result = computed();
  values.promote(entry_of(result));
  heard();
  recovery.on_rebuild({entry_of(result).id, entry_of(result).id});
  EXPECT_EQ(runs.size(), 1u);
  EXPECT_NE(heard().find("rebuilt(1) "), std::string::npos);
}

}  // namespace
}  // namespace troupe::client::recovery_test
