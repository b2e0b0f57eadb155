// Tests Calls: CALLS-2 to CALLS-6. NoMemory* test CALLS-1.
#include "parts_world.hpp"
#include "troupe/runtime/wire/cases.hpp"

#include <string>

namespace troupe::client::calls_test {
namespace {

using namespace std::chrono_literals;
using Kind = wire::Value::Kind;
constexpr ActorId kActor{0, 9};
constexpr Time kNow{};

struct CallsTest : PartsWorld {
  void tell(const wire::NodeMessage& message, BlobView) override {
    std::visit(wire::Cases{[&](const wire::RequestLease& m) {
                             said += m.backlog == 0 ? "withdraw " : "request ";
                           },
                           [&](const wire::LeaseReturned& m) {
                             said += "return(" + std::to_string(m.lease.value) + ") ";
                           },
                           [&](const wire::WatchActor&) { said += "watch "; },
                           [&](const wire::KeptCall&) { said += "call "; },
                           [&](const wire::Fulfil&) { said += "fulfil "; },
                           [&](const wire::Free&) { said += "free "; }, [&](const auto&) {}},
               message);
  }

  void grant(std::uint64_t lease, LeaseKey key = 0) {
    wire::LeaseGranted granted;
    granted.key = key;
    granted.lease = LeaseId::of(lease);
    granted.worker = kOther;
    calls.grant(granted, kNow);
  }
  void lives(wire::ActorState state) {
    wire::ActorUpdate update;
    update.actor = kActor;
    update.state = state;
    update.worker = kOther;
    update.incarnation = 1;
    calls.update(update);
  }
  Handle call(std::vector<Handle> objects = {}) {
    Handle result;
    const bool takes_objects = !objects.empty();
    calls.call({kActor, lifetime}, call_of(std::move(objects)), {&result, 1}, takes_objects);
    return result;
  }
  /// Returns the numbers of the calls that the worker gets.
  std::vector<std::uint64_t> sent() {
    std::vector<std::uint64_t> numbers;
    std::size_t size = 0;
    while (far_end && far_end.receive(frame.data(), size) == ring::Pop::frame) {
      const auto decoded = wire::decode_call(BlobView(frame.data(), size));
      if (!decoded) continue;
      if (const auto* one = std::get_if<wire::Call>(&decoded->message))
        numbers.push_back(one->sequence);
    }
    return numbers;
  }
  static wire::Reply reply_of(std::uint64_t number, Kind kind) {
    wire::Reply reply;
    reply.sequence = number;
    reply.value.kind = kind;
    return reply;
  }
  std::string heard() { return std::exchange(said, {}); }

  std::string said;
  Handle lifetime;
};

TEST_F(CallsTest, TaskIsSentWhenItsArgumentIsReady) {
  connect();
  const Handle argument = values.objects().create();
  const Handle result = submit({argument});
  EXPECT_EQ(heard(), "");
  values.settle(entry_of(argument), reply_of(0, Kind::inline_bytes).value, {});
  EXPECT_EQ(heard(), "request ");
  EXPECT_TRUE(sent().empty());
  grant(1);
  EXPECT_EQ(sent(), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(calls.live(), 1u);
}

TEST_F(CallsTest, CallWithAFailedArgumentIsNotSent) {
  connect();
  const Handle failed = values.objects().create();
  values.settle_error(entry_of(failed), Error(Code::task_failed, "it threw"));
  const Handle pending = values.objects().create();
  const std::vector<Handle> results{submit({failed}), call({failed}), submit({pending}),
                                    call({pending})};
  values.settle_error(entry_of(pending), Error(Code::task_failed, "it threw"));
  for (const Handle& result : results) {
    ASSERT_EQ(entry_of(result).kind, Kind::error);
    EXPECT_EQ(entry_of(result).error->outcome, Outcome::not_executed);
  }
  EXPECT_TRUE(sent().empty());
  EXPECT_EQ(calls.live(), 0u);
}

TEST_F(CallsTest, FirstReplySettlesAResultAndALaterOneIsGivenBack) {
  Peers::Peer& peer = connect();
  const Handle task = submit();
  grant(1);
  const Handle answer = call();
  lives(wire::ActorState::alive);
  EXPECT_EQ(sent(), (std::vector<std::uint64_t>{1, 2}));
  heard();
  for (const std::uint64_t number : {1u, 2u}) {
    wire::PlainReply reply;
    reply.sequence = number;
    reply.value = {0, 4};
    calls.take_plain(peer, reply, Blob(4), kNow);
    const Handle& result = number == 1 ? task : answer;
    ASSERT_EQ(entry_of(result).kind, Kind::inline_bytes);
    EXPECT_EQ(BlobView(entry_of(result).value->bytes).size(), 4u);
    calls.take_reply(kOther, reply_of(number, Kind::shared), {}, kNow);
    EXPECT_EQ(heard(), "free ");
  }
  EXPECT_EQ(calls.live(), 0u);
  calls.drop_spent();
}

TEST_F(CallsTest, AgentGetsTheCallBeforeTheResult) {
  connect();
  const Handle result = submit();
  grant(1);
  values.promote(entry_of(result));
  heard();
  calls.take_reply(kOther, reply_of(1, Kind::shared), {}, kNow);
  EXPECT_EQ(heard(), "call fulfil ");
}

TEST_F(CallsTest, LeaseThatNoTaskWantsGoesBack) {
  connect();
  grant(5, LeaseKey::of(77));
  EXPECT_EQ(heard(), "return(5) ");
}

TEST_F(CallsTest, GrantAndLifeWaitForTheChannel) {
  submit();
  grant(1);
  call();
  lives(wire::ActorState::alive);
  EXPECT_EQ(calls.live(), 2u);
  connect();
  EXPECT_TRUE(sent().empty());
  calls.go_on(kNow);
  EXPECT_EQ(sent(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(CallsTest, UnreachableWorkersEndWhatWaitsForThem) {
  const Handle task = submit();
  grant(1);
  const Handle answer = call();
  lives(wire::ActorState::alive);
  heard();
  calls.refuse_unreachable(Error(Code::unavailable, "no descriptor is left"));
  EXPECT_EQ(entry_of(task).kind, Kind::error);
  EXPECT_EQ(entry_of(answer).kind, Kind::error);
  EXPECT_EQ(heard(), "withdraw return(1) ");
  EXPECT_EQ(calls.live(), 0u);
}

TEST_F(CallsTest, TickIsDueAtTheEarliestWish) {
  EXPECT_EQ(calls.next_tick(), Time::max());
  calls.wake_by(kNow + 9s);
  calls.wake_by(kNow + 20s);
  EXPECT_EQ(calls.tick(kNow + 8s), kNow + 9s) << "nothing is due";
  EXPECT_EQ(calls.tick(kNow + 9s), Time::max());
  submit();
  EXPECT_LE(calls.next_tick(), steady_now() + TaskManager::kAskAgain);
}

}  // namespace
}  // namespace troupe::client::calls_test
