// Tests Resumes: RESUME-1 to RESUME-4.
#include "troupe/runtime/client/resumes.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe::client::resumes_test {
namespace {

using Handle = detail::ObjectHandle;
using Kind = wire::Value::Kind;
constexpr ProcessIndex kSelf = 7;
constexpr ObjectId kTheirs{6, 9};

struct ResumesTest : testing::Test, Recovery::Out, WorkQueue::Out {
  ResumesTest() {
    values.begin(kSelf, 5, 1);
    recovery.belongs_to(kSelf);
  }
  // Recovery::Out
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* wait = std::get_if<wire::Await>(&message)) said += wait->fetch ? "fetch " : "?";
    if (std::holds_alternative<wire::Rebuild>(message)) said += "rebuild ";
  }
  void collect_released() override {}
  void notify() override {}
  void fire(const Waiter& waiter, Entry& entry) override {
    waiter.fire(reinterpret_cast<Calls&>(no_calls), waiter.who, entry);
  }
  void unparked(Entry&) override {}
  void run_again(std::unique_ptr<Task>) override {}
  // WorkQueue::Out
  void hand_back(ProcessIndex, const wire::HandBack&) override {}
  void drop_refs(const wire::Call&) override {}
  bool is_refused(ProcessIndex) override { return false; }
  void tell_blocked(bool) override {}

  void add(const Handle& object, bool on_executor = false) {
    resumes.add(
        object, [this] { ++fired; }, on_executor);
  }
  static wire::Value value_of(Kind kind) {
    wire::Value value;
    value.kind = kind;
    return value;
  }
  std::string heard() { return std::exchange(said, {}); }

  int fired = 0;
  std::string said;
  std::byte no_calls{};  ///< no waiter of this test looks at the calls
  StoreUse store;
  SchedulingClasses classes;
  Recovery recovery{static_cast<Recovery::Out&>(*this), values, classes, true, Bytes{1 << 20}};
  Values values{static_cast<Values::Out&>(*this), recovery, store, classes};
  WorkQueue work{static_cast<WorkQueue::Out&>(*this)};
  Resumes resumes{values, recovery, work};
};

TEST_F(ResumesTest, CallbackRunsOnceWhenTheValueIsReady) {
  const Handle object = values.objects().create();
  add(object);
  EXPECT_EQ(fired, 0);
  values.settle(entry_of(object), value_of(Kind::inline_bytes), {});
  EXPECT_EQ(fired, 1);
  values.wake(entry_of(object));
  EXPECT_EQ(fired, 1);
  resumes.give_up_notices();
  EXPECT_EQ(fired, 1);
}

TEST_F(ResumesTest, CoroutineRunsThroughTheWorkQueue) {
  const Handle object = values.objects().create();
  add(object, true);
  int seen = 0;
  resumes.each_on_executor([&](const Handle& awaited) { return ++seen, awaited == object; });
  EXPECT_EQ(seen, 1);
  resumes.give_up_notices();
  values.settle_error(entry_of(object), Error(Code::task_failed, "it threw"));
  EXPECT_EQ(fired, 0);
  std::shared_ptr<Incoming> call;
  std::optional<ActorStart> actor;
  std::function<void()> coroutine;
  ASSERT_TRUE(work.has_any());
  work.next(call, actor, coroutine);
  coroutine();
  EXPECT_EQ(fired, 1);
}

TEST_F(ResumesTest, NoticesAreGivenUpOnce) {
  const Handle object = values.objects().create();
  add(object);
  resumes.give_up_notices();
  EXPECT_EQ(fired, 1);
  resumes.give_up_notices();
  values.settle(entry_of(object), value_of(Kind::inline_bytes), {});
  EXPECT_EQ(fired, 1);
}

TEST_F(ResumesTest, BytesAreAwaitedAndLostOnesAskedForAgain) {
  const Handle object = values.adopt_one(kTheirs);
  add(object);
  EXPECT_EQ(heard(), "fetch ");
  values.settle(entry_of(object), value_of(Kind::remote), {}, NodeId{0, 3});
  EXPECT_EQ(fired, 0) << "its bytes are elsewhere";
  wire::Value lost = value_of(Kind::error);
  lost.error = Error(Code::object_lost, "the node is dead").shared_info();
  values.arrive(entry_of(object), lost, {});
  EXPECT_EQ(heard(), "rebuild ");
  EXPECT_EQ(fired, 0);
  recovery.rebuilt(entry_of(object), lost, {});
  EXPECT_EQ(fired, 1) << "its owner has refused";
}

TEST_F(ResumesTest, WhatHasNotFiredIsDropped) {
  const Handle object = values.objects().create();
  const auto held = std::make_shared<int>();
  resumes.add(
      object, [held] {}, true);
  EXPECT_EQ(held.use_count(), 2);
  resumes.clear();
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace troupe::client::resumes_test
