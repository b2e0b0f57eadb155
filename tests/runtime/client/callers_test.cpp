// Tests Callers: CALLER-1 to CALLER-4.
#include "troupe/runtime/client/callers.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::client::callers_test {
namespace {

using Handle = detail::ObjectHandle;
constexpr ProcessIndex kSelf = 7, kCaller = 11, kGone = 12;
constexpr ActorId kActor{0, 9};

void run_nothing(detail::Invocation&) {}
const detail::Callable kFunction{.thunk = &run_nothing};

struct CallersTest : testing::Test, Calls::Out, Recovery::Out {
  CallersTest() {
    self.process = kSelf;
    values.begin(kSelf, 5, 1);
    recovery.belongs_to(kSelf);
    callers.work().belongs_to(kSelf);
    peers.bell() = ring::Doorbell::create().value();
    const ring::Doorbell bell = ring::Doorbell::create().value();
    auto memory = ring::ChannelMemory::create().value();
    std::vector<Fd> descriptors;
    for (const int one : {memory.fd(), bell.memory_fd(), bell.event_fd()})
      descriptors.emplace_back(::dup(one));
    peer = peers.open(wire::Channel{kCaller, 1, 2, 2}, std::move(descriptors)).value();
    caller = ring::Channel(std::move(memory), 0,
                           std::make_shared<ring::Doorbell>(ring::Doorbell::create().value()), 2);
  }
  // Calls::Out and Recovery::Out
  void settle_agent_queue() override {
    said += "settle ";
    sent_at_settle = peer->channel.sent();
  }
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* hold = std::get_if<wire::Hold>(&message); hold && hold->process == kCaller)
      said += "hold ";
    if (std::holds_alternative<wire::LeaseReturned>(message)) said += "return ";
    if (std::holds_alternative<wire::Blocked>(message)) said += "blocked ";
    if (std::holds_alternative<wire::Unblocked>(message)) said += "unblocked ";
  }
  void collect_released() override {}
  void notify() override {}
  void fire(const Waiter& waiter, Entry& entry) override { waiter.fire(calls, waiter.who, entry); }
  void unparked(Entry&) override {}
  void run_again(std::unique_ptr<Task>) override {}
  void recovered() override {}

  void take_plain(std::uint64_t number) {
    wire::PlainCall call;
    call.sequence = number;
    wire::PlainFrame made;
    EXPECT_TRUE(callers.take_plain(*peer, wire::write_plain(call, made)));
  }
  void take(std::uint64_t number) {
    wire::Call call;
    call.sequence = number;
    callers.take(*peer, std::move(call), {});
  }
  /// Returns the number of the call that runs next; 0: there is none.
  std::uint64_t next() {
    std::shared_ptr<Incoming> call;
    std::optional<ActorStart> actor;
    std::function<void()> coroutine;
    if (!callers.work().has_any()) return 0;
    callers.work().next(call, actor, coroutine);
    return call->call.sequence;
  }
  template <class Message>
  std::optional<Message> heard() {
    std::size_t size = 0;
    if (caller.receive(frame.data(), size) != ring::Pop::frame) return std::nullopt;
    auto decoded = wire::decode_call(BlobView(frame.data(), size));
    if (!decoded || !std::holds_alternative<Message>(decoded->message)) return std::nullopt;
    return std::get<Message>(std::move(decoded->message));
  }
  wire::LeaseReclaim silence() const {
    wire::LeaseReclaim question;
    question.lease = LeaseId::of(3);
    question.holder = kCaller;
    return question;
  }

  std::string said;
  std::optional<std::uint64_t> sent_at_settle;
  Identity self;
  Peers peers;
  Peers::Peer* peer = nullptr;  ///< the caller
  ring::Channel caller;         ///< its end
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame;
  StoreUse store;
  Callers callers{static_cast<Calls::Out&>(*this), self, peers, values, calls};
  Calls calls{static_cast<Calls::Out&>(*this), self, peers, values, recovery, callers.work()};
  Recovery recovery{static_cast<Recovery::Out&>(*this), values, calls.classes(), true,
                    Bytes{1 << 20}};
  Values values{static_cast<Values::Out&>(*this), recovery, store, calls.classes()};
};

TEST_F(CallersTest, CallsOfBothLayoutsJoinTheQueueInOrder) {
  take_plain(1);
  take(2);
  take_plain(3);
  EXPECT_FALSE(callers.take_plain(*peer, Blob(64))) << "no plain call";
  EXPECT_EQ(next(), 1u);
  EXPECT_EQ(next(), 2u);
  EXPECT_EQ(next(), 3u);
  EXPECT_EQ(next(), 0u);
}

TEST_F(CallersTest, LastReplyIsCounted) {
  take_plain(1);
  take(2);
  EXPECT_EQ(next(), 1u);
  wire::PlainReply reply;
  reply.sequence = 1;
  reply.value = {0, 3};
  callers.reply_plain(kCaller, reply, Blob(3));
  EXPECT_FALSE(callers.work().is_serving());
  EXPECT_EQ(caller.peer_progress().completed, 1u);
  EXPECT_EQ(heard<wire::Reply>().value().sequence, 1u);
  OutgoingValue value;
  value.kind = wire::Value::Kind::inline_bytes;
  callers.reply(kCaller, 2, 0, false, {}, value);
  EXPECT_EQ(caller.peer_progress().completed, 1u) << "more results follow";
  callers.reply(kCaller, 2, 1, true, {}, value);
  EXPECT_EQ(caller.peer_progress().completed, 2u);
  EXPECT_FALSE(heard<wire::Reply>().value().last);
  EXPECT_TRUE(heard<wire::Reply>().value().last);
}

TEST_F(CallersTest, CountsAreWithTheAgentBeforeTheFrameIsInTheRing) {
  OutgoingValue value;
  value.kind = wire::Value::Kind::inline_bytes;
  value.refs.push_back(values.objects().create());
  callers.reply(kCaller, 1, 0, true, {}, value);
  EXPECT_EQ(said, "hold settle ");
  EXPECT_EQ(sent_at_settle, 0u) << "the frame came before its counts";
  EXPECT_EQ(heard<wire::Reply>().value().value.refs.size(), 1u);
}

TEST_F(CallersTest, AnswerToACallerThatIsGoneIsDropped) {
  OutgoingValue value;
  value.kind = wire::Value::Kind::inline_bytes;
  value.refs.push_back(values.objects().create());
  callers.reply(kGone, 1, 0, true, {}, value);
  callers.reply_plain(kGone, {}, {});
  EXPECT_EQ(said, "");
}

TEST_F(CallersTest, CallOfThisProcessToItselfIsAnsweredAtOnce) {
  wire::ActorUpdate update;
  update.actor = kActor;
  update.state = wire::ActorState::alive;
  update.worker = kSelf;
  update.incarnation = 1;
  for (const bool plain : {true, false}) {
    detail::Call call;
    call.callable = &kFunction;
    Handle result;
    calls.call({kActor, {}}, std::move(call), {&result, 1}, false);
    calls.update(update);
    wire::PlainReply reply;
    reply.sequence = next();
    OutgoingValue value;
    value.kind = wire::Value::Kind::inline_bytes;
    if (plain)
      callers.reply_plain(kSelf, reply, {});
    else
      callers.reply(kSelf, reply.sequence, 0, true, {}, value);
    EXPECT_TRUE(is_here(entry_of(result)));
  }
  EXPECT_EQ(calls.live(), 0u);
}

TEST_F(CallersTest, LeaseOfASilentHolderGoesBackWhenNothingRuns) {
  take(1);
  EXPECT_EQ(next(), 1u);
  callers.leave_silent_holder(silence());
  EXPECT_EQ(said, "") << "its call runs";
  peers.begin_call(kCaller, 1);
  callers.reply_plain(kCaller, {}, {});
  callers.leave_silent_holder(silence());
  EXPECT_EQ(said, "return ");
  EXPECT_TRUE(peer->refused);
  EXPECT_TRUE(heard<wire::Reply>());
  take(2);
  EXPECT_EQ(next(), 0u);
  EXPECT_TRUE(callers.work().has_refused());
  callers.work().judge_refused();
  EXPECT_EQ(heard<wire::HandBack>().value().first, 2u);
}

TEST_F(CallersTest, AgentHearsOfTheFreeCpu) {
  callers.work().block();
  callers.work().unblock();
  EXPECT_EQ(said, "blocked unblocked ");
}

}  // namespace
}  // namespace troupe::client::callers_test
