// Tests ValueBytes without a store: BYTES-1 and BYTES-3 of inline values, and arguments that arrive.
// ExtentsTest and RemoteTest have values in shared memory, and BYTES-2.
#include "troupe/runtime/client/value_bytes.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::client::value_bytes_test {
namespace {

using Handle = detail::ObjectHandle;
using Kind = wire::Value::Kind;

struct ValueBytesTest : testing::Test, Calls::Out, ValueBytes::Out, Values::Out, Values::Lost {
  ValueBytesTest() { values.begin(ProcessIndex{7}, 5, 1); }
  // Calls::Out and Values::Out
  void settle_agent_queue() override {}
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* wait = std::get_if<wire::Await>(&message))
      said += (wait->fetch ? "fetch(" : "await(") + std::to_string(wait->object.low) + ") ";
  }
  void collect_released() override {}
  void notify() override {}
  void fire(const Waiter&, Entry&) override {}
  // ValueBytes::Out
  Result<detail::Value> try_get(const Handle&, Duration) override {
    return Error(Code::internal, "no bundle is read here");
  }
  // Values::Lost
  bool recover_pending(Entry&, Error&) override { return false; }
  void outlive(Entry&) override {}
  void tell_calls() override {}
  void hand_over(Entry&) override {}
  bool park(Entry&) override { return false; }
  Handle revive(Entry& entry) override { return ObjectTable::keep(entry); }

  std::string said;
  StoreUse store;
  SchedulingClasses classes;
  Values values{static_cast<Values::Out&>(*this), static_cast<Values::Lost&>(*this), store,
                classes};
  EngineGate gate{static_cast<Values::Out&>(*this), values, store};
  ValueBytes bytes{static_cast<Calls::Out&>(*this),
                   static_cast<ValueBytes::Out&>(*this),
                   gate,
                   store,
                   values,
                   1};
};

TEST_F(ValueBytesTest, SmallValueIsInlineAndItsViewKeepsIt) {
  ValueRoom room = bytes.make_room(wire::kInlineValue, {"mix(int)"});
  ASSERT_EQ(room.bytes().size(), wire::kInlineValue);
  room.bytes()[0] = std::byte{9};
  const Handle inner = values.objects().create();
  OutgoingValue value = bytes.finish_room(std::move(room), std::vector{inner});
  EXPECT_EQ(value.kind, Kind::inline_bytes);
  Handle object = values.object_of(std::move(value));
  auto view = bytes.open(object, {});
  ASSERT_TRUE(view);
  object = {};
  EXPECT_EQ(view->bytes.size(), wire::kInlineValue);
  EXPECT_EQ(view->bytes[0], std::byte{9});
  ASSERT_EQ(view->refs.size(), 1u);
  EXPECT_EQ(view->refs[0], inner);
  EXPECT_TRUE(bytes.sites().texts().empty()) << "small values have no line";
}

TEST_F(ValueBytesTest, ErrorIsOpenedAsOneAndAValueOnItsWayIsLost) {
  const Handle object = values.objects().create();
  EXPECT_EQ(bytes.open(object, {}).error().code(), Code::object_lost);
  values.settle_error(entry_of(object), Error(Code::task_failed, "it threw"));
  EXPECT_EQ(bytes.open(object, {}).error().code(), Code::task_failed);
}

TEST_F(ValueBytesTest, RefOfAnotherSessionIsRefused) {
  const Handle object = values.objects().create();
  entry_of(object).session = 2;
  EXPECT_THROW(bytes.finish_room(bytes.make_room(1, {"f"}), std::vector{object}), InvalidArgument);
}

TEST_F(ValueBytesTest, ObjectsOfAnArrivedCallAreHeldByArgument) {
  wire::Call call;
  call.arguments.resize(2);
  call.arguments[0].kind = Kind::inline_bytes;
  EXPECT_TRUE(bytes.adopt_arguments(call).empty()) << "there are none";
  call.arguments[0].refs = {ObjectId{6, 1}, ObjectId{6, 2}};
  call.arguments[1].kind = Kind::forwarded;
  call.arguments[1].forward = ObjectId{6, 3};
  const auto held = bytes.adopt_arguments(call);
  ASSERT_EQ(held.size(), 2u);
  ASSERT_EQ(held[0].size(), 2u);
  EXPECT_EQ(held[0][1].id().low, 2u);
  ASSERT_EQ(held[1].size(), 1u);
  EXPECT_EQ(held[1][0].id().low, 3u);
  EXPECT_EQ(said, "fetch(3) ");
}

}  // namespace
}  // namespace troupe::client::value_bytes_test
