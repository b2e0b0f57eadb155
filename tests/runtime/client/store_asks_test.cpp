// Tests StoreAsks: ASK-1 to ASK-3.
#include "troupe/runtime/client/store_asks.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace troupe::client::store_asks_test {
namespace {

using namespace std::chrono_literals;

struct StoreAsksTest : testing::Test, Calls::Out, Recovery::Out, WorkQueue::Out, IoLoop::Host {
  StoreAsksTest() {
    values.begin(ProcessIndex{7}, 5, 1);
    waits.begin(loop);
    asks.begin(loop);
  }
  // Calls::Out and Recovery::Out
  void settle_agent_queue() override {}
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* need = std::get_if<wire::NeedExtent>(&message))
      said += "extent(" + std::to_string(need->bytes) + ") ", asked = need->request;
    if (std::holds_alternative<wire::NeedReader>(message)) said += "reader ";
    if (const auto* where = std::get_if<wire::WhereIs>(&message))
      said += "where ", asked = where->request;
  }
  void collect_released() override {}
  void notify() override { loop.notify(); }
  void fire(const Waiter& waiter, Entry& entry) override { waiter.fire(calls, waiter.who, entry); }
  void unparked(Entry&) override {}
  void run_again(std::unique_ptr<Task>) override {}
  // WorkQueue::Out
  void hand_back(ProcessIndex, const wire::HandBack&) override {}
  void drop_refs(const wire::Call&) override {}
  bool is_refused(ProcessIndex) override { return false; }
  void tell_blocked(bool) override {}
  // IoLoop::Host
  Time drain(Time) override {
    if (arrives) std::exchange(arrives, nullptr)();
    return Time::max();
  }
  Time next_timer() const noexcept override { return Time::max(); }
  int socket_fd() const override { return socket.get(); }
  bool wants_write() const override { return false; }
  void socket_ready() noexcept override {}
  bool has_leftovers() const noexcept override { return gate.has_leftovers(); }
  bool watch_peer() noexcept override { return false; }
  bool drain_watched(Time) override { return false; }

  Identity self;
  std::string said;
  std::uint64_t asked = 0;        ///< the number of the last question
  std::function<void()> arrives;  ///< runs when the loop reads next
  const Fd socket{::eventfd(0, EFD_CLOEXEC)};
  ring::Doorbell bell = ring::Doorbell::create().value();
  Peers peers;
  AgentLink agent;
  StoreUse store;
  WorkerLease lease;
  WorkQueue work{static_cast<WorkQueue::Out&>(*this)};
  EngineGate gate{static_cast<Recovery::Out&>(*this), values, store};
  Calls calls{static_cast<Calls::Out&>(*this), self, peers, values, recovery, work};
  Recovery recovery{static_cast<Recovery::Out&>(*this), values, calls.classes(), true,
                    Bytes{1 << 20}};
  Values values{static_cast<Values::Out&>(*this), recovery, store, calls.classes()};
  IoLoop loop{static_cast<IoLoop::Host&>(*this), bell, gate.lock()};
  Waits waits{self, gate, agent, work, calls, lease};
  Questions questions;
  StoreAsks asks{static_cast<Calls::Out&>(*this), gate, agent, questions, store, values, waits};
};

TEST_F(StoreAsksTest, ErrorOfTheAgentEndsTheQuestionForMemory) {
  arrives = [this] {
    wire::GiveExtent answer;
    answer.request = asked;
    answer.error = Error(Code::out_of_memory, "the arena is full").shared_info();
    asks.on_extent(answer, {});
  };
  const auto added = asks.need_extent(4096);
  EXPECT_EQ(said, "extent(4096) ");
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().message(), "the arena is full");
  EXPECT_TRUE(gate.lock().try_lock());
  gate.lock().unlock();
}

TEST_F(StoreAsksTest, LossOfTheAgentEndsEachQuestion) {
  const auto lose = [this] { agent.lose(Error(Code::unavailable, "the node's agent has died")); };
  arrives = lose;
  EXPECT_EQ(asks.need_extent(1).error().message(), "the node's agent has died");
  EXPECT_EQ(asks.where_is({}).error().message(), "the node's agent has died");
  Error error(Code::internal, "");
  EXPECT_FALSE(asks.fetch_reader(true, 1, error));
  EXPECT_EQ(error.message(), "the node's agent has died");
}

TEST_F(StoreAsksTest, PlaceOfAnObjectIsTheAgents) {
  arrives = [this] {
    wire::NowAt answer;
    answer.request = asked;
    answer.location.length = 5;
    EXPECT_TRUE(questions.answer(answer));
  };
  const auto place = asks.where_is({});
  ASSERT_TRUE(place);
  EXPECT_EQ(wire_location(*place).length, 5u);
}

TEST_F(StoreAsksTest, ExtentThatNobodyAwaitsIsNoAnswer) {
  wire::GiveExtent late;
  late.request = 9;
  late.error = Error(Code::out_of_memory, "the arena is full").shared_info();
  asks.on_extent(late, {});
  EXPECT_EQ(said, "");
}

TEST_F(StoreAsksTest, EndedViewCollectsWhatIsLeftUnlessTheSessionIsOver) {
  const auto leave = [this] {
    gate.lock().lock();
    auto* entry = new Entry;
    entry->id = ObjectId{5, 1};
    gate.release(entry);
    gate.lock().unlock();
  };
  leave();
  asks.views_ended();
  EXPECT_FALSE(gate.has_leftovers());
  waits.end();
  leave();
  asks.views_ended();
  EXPECT_TRUE(gate.has_leftovers());
}

}  // namespace
}  // namespace troupe::client::store_asks_test
