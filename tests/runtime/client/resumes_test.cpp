// Tests Resumes: RESUME-1 to RESUME-4.
#include "troupe/runtime/client/resumes.hpp"
#include "parts_world.hpp"

#include <optional>
#include <string>

namespace troupe::client::resumes_test {
namespace {

using Kind = wire::Value::Kind;
constexpr ObjectId kTheirs{6, 9};

struct ResumesTest : PartsWorld {
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* wait = std::get_if<wire::Await>(&message)) said += wait->fetch ? "fetch " : "?";
    if (std::holds_alternative<wire::Rebuild>(message)) said += "rebuild ";
  }

  void add(const Handle& object, bool on_executor = false) {
    resumes.add(object, [this] { ++fired; }, on_executor);
  }
  static wire::Value value_of(Kind kind) {
    wire::Value value;
    value.kind = kind;
    return value;
  }
  std::string heard() { return std::exchange(said, {}); }

  int fired = 0;
  std::string said;
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
  resumes.add(object, [held] {}, true);
  EXPECT_EQ(held.use_count(), 2);
  resumes.clear();
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace troupe::client::resumes_test
