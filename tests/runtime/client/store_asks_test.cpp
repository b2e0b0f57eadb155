// Tests StoreAsks: ASK-1 to ASK-3.
#include "troupe/runtime/client/store_asks.hpp"
#include "parts_world.hpp"

#include <string>

namespace troupe::client::store_asks_test {
namespace {

using namespace std::chrono_literals;

struct StoreAsksTest : WaitingWorld {
  StoreAsksTest() { asks.begin(loop); }
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* need = std::get_if<wire::NeedExtent>(&message))
      said += "extent(" + std::to_string(need->bytes) + ") ", asked = need->request;
    if (std::holds_alternative<wire::NeedReader>(message)) said += "reader ";
    if (const auto* where = std::get_if<wire::WhereIs>(&message))
      said += "where ", asked = where->request;
  }

  std::string said;
  std::uint64_t asked = 0;  ///< the number of the last question
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
