// Tests CallEncoder: ENCODE-1 to ENCODE-3.
#include "troupe/runtime/client/call_encoder.hpp"

#include "troupe/runtime/ring/ring.hpp"

#include <gtest/gtest.h>
#include <map>
#include <utility>
#include <vector>

namespace troupe::client::call_encoder_test {
namespace {

using Handle = detail::ObjectHandle;
using Kind = wire::Value::Kind;
constexpr ProcessIndex kSelf = 7;
constexpr Receiver kOther{.holder = ProcessIndex{8}};

void run_nothing(detail::Invocation&) {}
const detail::Callable kFunction{.thunk = &run_nothing};

struct CallEncoderTest : testing::Test, Values::Out, Values::Lost {
  CallEncoderTest() { values.begin(kSelf, 5, 1); }
  // Values::Out
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* hold = std::get_if<wire::Hold>(&message))
      if (hold->process == kOther.holder) counts[hold->object] += hold->delta;
  }
  void collect_released() override {}
  void notify() override {}
  void fire(const Waiter&, Entry&) override {}
  // Values::Lost
  bool recover_pending(Entry&, Error&) override { return false; }
  void outlive(Entry&) override {}
  void tell_calls() override {}
  void hand_over(Entry&) override {}
  bool park(Entry&) override { return false; }
  Handle revive(Entry& entry) override { return ObjectTable::keep(entry); }

  Handle ready(std::size_t size, std::vector<Handle> refs = {}) {
    OutgoingValue value;
    value.kind = Kind::inline_bytes;
    value.bytes.resize(size);
    value.refs = std::move(refs);
    return values.object_of(std::move(value));
  }
  static detail::Call call_of(const std::vector<Handle>& objects) {
    detail::Call call;
    call.callable = &kFunction;
    for (const Handle& object : objects) call.arguments.push_back({0, 0, 0, 0, object});
    return call;
  }
  /// The message fits a frame beside so many bytes.
  wire::Call encode(const detail::Call& call, std::size_t beside = 0) {
    wire::Call message = encoder.encode(call, kOther, beside);
    wire::FrameWriter writer;
    EXPECT_LE(writer.encode(wire::CallMessage(message)).size() + encoder.payload().size() + beside,
              ring::kMaxFrame);
    return message;
  }

  std::map<ObjectId, int> counts;  ///< of the receiver
  StoreUse store;
  SchedulingClasses classes;
  Values values{static_cast<Values::Out&>(*this), static_cast<Values::Lost&>(*this), store,
                classes};
  CallEncoder encoder{values};
};

TEST_F(CallEncoderTest, SmallValuesTravelAlong) {
  const Handle inner = ready(3), one = ready(10, {inner}), two = ready(20);
  const wire::Call message = encode(call_of({one, two}));
  ASSERT_EQ(message.arguments.size(), 2u);
  EXPECT_EQ(message.arguments[0].kind, Kind::inline_bytes);
  EXPECT_EQ(message.arguments[1].payload_size, 20u);
  EXPECT_GE(encoder.payload().size(), 30u);
  EXPECT_EQ(counts, (std::map<ObjectId, int>{{inner.id(), 1}}));
}

TEST_F(CallEncoderTest, ValuesWithoutRoomTravelAsReferences) {
  const Handle inner = ready(3);
  std::vector<Handle> large;
  for (int i = 0; i < 8; ++i) large.push_back(ready(3000, {inner}));
  const wire::Call message = encode(call_of(large));
  ASSERT_EQ(message.arguments.size(), large.size());
  for (std::size_t i = 0; i < large.size(); ++i) {
    EXPECT_EQ(message.arguments[i].kind, Kind::forwarded);
    EXPECT_EQ(message.arguments[i].forward, large[i].id());
    EXPECT_EQ(counts[large[i].id()], 1);
  }
  EXPECT_EQ(counts[inner.id()], 0) << "the receiver gets no frame that names it";
  EXPECT_TRUE(encoder.payload().empty());
}

TEST_F(CallEncoderTest, WhatStandsBesideTheCallCounts) {
  const Handle object = ready(1500);
  EXPECT_EQ(encode(call_of({object})).arguments[0].kind, Kind::inline_bytes);
  EXPECT_EQ(encode(call_of({object}), ring::kMaxFrame - 1000).arguments[0].kind, Kind::forwarded);
}

TEST_F(CallEncoderTest, CallThatCannotFitCarriesAnError) {
  const Handle object = ready(3);
  detail::Call call = call_of({object});
  for (std::uint32_t i = 0; i < 4; ++i) {
    call.refs.insert(call.refs.end(), wire::kMaxRefs, object);
    call.arguments.push_back({0, 0, i * std::uint32_t{wire::kMaxRefs}, wire::kMaxRefs, {}});
  }
  const wire::Call message = encode(call);
  ASSERT_EQ(message.arguments.size(), 1u);
  ASSERT_EQ(message.arguments[0].kind, Kind::error);
  EXPECT_EQ(message.arguments[0].error->code, Code::invalid_argument);
  EXPECT_EQ(message.arguments[0].error->outcome, Outcome::not_executed);
  EXPECT_EQ(counts[object.id()], 0);
  EXPECT_TRUE(encoder.payload().empty());
}

}  // namespace
}  // namespace troupe::client::call_encoder_test
