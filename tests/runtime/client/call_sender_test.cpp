// Tests CallSender: SENDER-1, SENDER-3 and SENDER-4. NoMemory* test SENDER-2.
#include "troupe/runtime/client/call_sender.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::client::call_sender_test {
namespace {

using Handle = detail::ObjectHandle;
constexpr ProcessIndex kSelf = 7, kWorker = 11;
constexpr ActorId kActor{0, 9};

void run_nothing(detail::Invocation&) {}
const detail::Callable kFunction{.thunk = &run_nothing};

struct CallSenderTest : testing::Test, Values::Out, Values::Lost, WorkQueue::Out, CallSender::Out {
  CallSenderTest() {
    values.begin(kSelf, 5, 1);
    object = values.objects().create();
    self.process = kSelf;
    peers.bell() = ring::Doorbell::create().value();
    const ring::Doorbell bell = ring::Doorbell::create().value();
    auto memory = ring::ChannelMemory::create().value();
    std::vector<Fd> descriptors;
    for (const int one : {memory.fd(), bell.memory_fd(), bell.event_fd()})
      descriptors.emplace_back(::dup(one));
    peer = peers.open(wire::Channel{kWorker, 1, 2, 2}, std::move(descriptors)).value();
    worker = ring::Channel(std::move(memory), 0,
                           std::make_shared<ring::Doorbell>(ring::Doorbell::create().value()), 2);
  }
  // CallSender::Out
  void settle_agent_queue() override {
    ++settled;
    counts_settled = counts;
    EXPECT_EQ(peer->channel.sent(), peer->sent) << "the frame came before its counts";
  }
  // Values::Out
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* hold = std::get_if<wire::Hold>(&message)) counts += hold->delta;
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
  // WorkQueue::Out
  void hand_back(ProcessIndex, const wire::HandBack&) override {}
  void drop_refs(const wire::Call&) override {}
  bool is_refused(ProcessIndex) override { return false; }
  void tell_blocked(bool) override {}

  static detail::Call plain_call() {
    detail::Call call;
    call.callable = &kFunction;
    return call;
  }
  /// A call whose argument travels as a reference.
  detail::Call call_with_object() {
    detail::Call call = plain_call();
    call.arguments.push_back({0, 0, 0, 0, object});
    return call;
  }
  std::uint64_t send(detail::Call call) {
    Task task;
    task.call = std::move(call);
    task.results.push_back(object);
    return sender.send(kWorker, task) ? task.sequence : 0;
  }
  /// Returns the numbers of the calls in the worker's ring.
  std::vector<std::uint64_t> read() {
    std::vector<std::uint64_t> numbers;
    std::size_t size = 0;
    while (worker.receive(frame.data(), size) == ring::Pop::frame) {
      const auto decoded = wire::decode_call(BlobView(frame.data(), size));
      if (decoded) numbers.push_back(std::get<wire::Call>(decoded->message).sequence);
    }
    return numbers;
  }

  Identity self;
  Peers peers;
  Peers::Peer* peer = nullptr;  ///< the worker
  ring::Channel worker;         ///< its end
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame;
  int settled = 0, counts = 0, counts_settled = 0;
  StoreUse store;
  SchedulingClasses classes;
  Values values{static_cast<Values::Out&>(*this), static_cast<Values::Lost&>(*this), store,
                classes};
  WorkQueue work{static_cast<WorkQueue::Out&>(*this)};
  Handle object;
  CallSender sender{static_cast<CallSender::Out&>(*this), self, peers, values, work};
};

TEST_F(CallSenderTest, CallsHaveTheNumbersOfTheirFrames) {
  EXPECT_EQ(sender.send_ahead<Task>(kWorker, plain_call(), 0, 1), 1u);
  EXPECT_EQ(send(plain_call()), 2u);
  EXPECT_EQ(sender.send_ahead<ActorCall>(kWorker, plain_call(), kActor.low, 0), 3u);
  EXPECT_EQ(read(), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(settled, 0) << "plain calls take no counts";
  EXPECT_EQ(send(call_with_object()), 4u);
  EXPECT_EQ(read(), (std::vector<std::uint64_t>{4}));
}

TEST_F(CallSenderTest, CallThatIsNotPlainOrHasNoWorkerIsNotSentAhead) {
  EXPECT_EQ(sender.send_ahead<Task>(0, plain_call(), 0, 1), 0u);
  EXPECT_EQ(sender.send_ahead<Task>(ProcessIndex{12}, plain_call(), 0, 1), 0u);
  EXPECT_EQ(sender.send_ahead<Task>(kWorker, plain_call(), 0, 2), 0u);
  EXPECT_EQ(sender.send_ahead<Task>(kWorker, call_with_object(), 0, 1), 0u);
  EXPECT_TRUE(read().empty());
  EXPECT_EQ(send(plain_call()), 1u);
}

TEST_F(CallSenderTest, CountsAreWithTheAgentBeforeTheFrameIsInTheRing) {
  EXPECT_EQ(send(call_with_object()), 1u);
  EXPECT_EQ(settled, 1);
  EXPECT_EQ(counts_settled, 1);
  EXPECT_EQ(counts, 1);
}

TEST_F(CallSenderTest, FrameBehindAFullRingWaitsAndIsCountedOnce) {
  std::vector<std::uint64_t> sent;
  while (peer->channel.waiting() == 0) {
    sent.push_back(send(call_with_object()));
    ASSERT_EQ(sent.back(), sent.size());
    ASSERT_EQ(static_cast<std::size_t>(counts), sent.size());
  }
  EXPECT_EQ(sender.send_ahead<Task>(kWorker, plain_call(), 0, 1), 0u);
  EXPECT_EQ(send(plain_call()), 0u) << "it would pass the one that waits";
  EXPECT_EQ(send(call_with_object()), 0u);
  EXPECT_EQ(static_cast<std::size_t>(counts), sent.size());
  std::vector<std::uint64_t> all = read();
  EXPECT_TRUE(peer->channel.flush());
  for (const std::uint64_t number : read()) all.push_back(number);
  EXPECT_EQ(all, sent);
  EXPECT_EQ(send(plain_call()), sent.size() + 1);
}

TEST_F(CallSenderTest, CallToTheActorOfThisProcessJoinsItsQueue) {
  for (const std::uint64_t number : {1u, 2u}) {
    ActorCall call;
    call.actor = kActor;
    call.call = plain_call();
    sender.deliver_here(call);
    EXPECT_EQ(call.sequence, number);
    std::shared_ptr<Incoming> incoming;
    std::optional<ActorStart> actor;
    std::function<void()> coroutine;
    ASSERT_TRUE(work.has_calls());
    work.next(incoming, actor, coroutine);
    EXPECT_EQ(incoming->from, kSelf);
    EXPECT_EQ(incoming->call.sequence, number);
    EXPECT_EQ(incoming->call.actor_low, kActor.low);
  }
  EXPECT_TRUE(read().empty());
}

TEST_F(CallSenderTest, CallMayComeBackUntilItsWorkerHasBegunIt) {
  EXPECT_EQ(send(plain_call()), 1u);
  EXPECT_TRUE(sender.may_come_back(kWorker, 1));
  worker.count_started(1);
  EXPECT_FALSE(sender.may_come_back(kWorker, 1));
  EXPECT_TRUE(sender.may_come_back(kWorker, 2));
  EXPECT_FALSE(sender.may_come_back(ProcessIndex{12}, 2)) << "there is no such worker";
}

}  // namespace
}  // namespace troupe::client::call_sender_test
