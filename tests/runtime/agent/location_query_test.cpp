/// Tests LocationQuery: it finds where the bytes of objects are from the answers of all nodes.
#include "troupe/runtime/agent/location_query.hpp"

#include <gtest/gtest.h>
#include <map>
#include <utility>
#include <vector>

namespace troupe::agent::location_query_test {
namespace {

using namespace std::chrono_literals;
using State = wire::PlaceState;
constexpr NodeId kHere{0, 1}, kA{0, 2}, kB{0, 3};
constexpr ObjectId kObject{5, 1}, kValue{5, 2}, kUnknown{5, 3};
constexpr ProcessIndex kProcess = 7;

struct LocationQueryTest : testing::Test, LocationQuery::Out {
  LocationQueryTest() { query.start(kHere); }
  wire::PeerPlace place_of(ObjectId object) override { return here[object]; }
  std::vector<NodeId> nodes_to_ask() override { return nodes; }
  void ask_place(NodeId node, const wire::PeerLocate& message) override {
    asked.emplace_back(node, message);
  }
  void located(ProcessIndex process, const wire::Located& answer) override {
    EXPECT_EQ(process, kProcess);
    answers.push_back(answer);
  }
  void ask(std::vector<ObjectId> objects) { query.ask(kProcess, {11, std::move(objects)}, now); }
  void say(NodeId node, std::vector<wire::PeerPlace> places) {
    query.answered(node, {asked.back().second.request, std::move(places)});
  }

  LocationQuery query{*this};
  std::map<ObjectId, wire::PeerPlace> here;
  std::vector<NodeId> nodes{kA, kB};
  std::vector<std::pair<NodeId, wire::PeerLocate>> asked;
  std::vector<wire::Located> answers;
  Time now{100s};
};

TEST_F(LocationQueryTest, EveryNodeIsAskedOnceAndAllThatHaveTheBytesAreNamed) {
  here[kObject] = {0, State::large, 100, true, true, {}};
  ask({kUnknown, kObject});
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].second.objects, (std::vector{kUnknown, kObject}));
  say(kA, {});
  EXPECT_TRUE(answers.empty());
  say(kA, {{1, State::large, 100, true, false, {}}});
  EXPECT_TRUE(answers.empty()) << "nobody answers for another";
  say(kB, {{1, State::large, 100, true, true, {}}, {9, State::large, 1, true, false, {}}});
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].request, 11u);
  ASSERT_EQ(answers[0].places.size(), 2u);
  EXPECT_EQ(answers[0].places[0].state, State::unknown);
  EXPECT_EQ(answers[0].places[1].nodes, (std::vector{kHere, kB}));
  EXPECT_EQ(answers[0].places[1].bytes, 100u);
  EXPECT_TRUE(answers[0].places[1].spilled) << "on the disks of both";
  EXPECT_EQ(query.next_deadline(), Time::max());
}

TEST_F(LocationQueryTest, ACopyInMemorySomewhereIsNoSpilledObject) {
  here[kObject] = {0, State::large, 100, true, true, {}};
  ask({kObject});
  say(kA, {{0, State::large, 100, true, false, {}}});
  say(kB, {});
  EXPECT_FALSE(answers.at(0).places[0].spilled);
}

TEST_F(LocationQueryTest, AValueThatIsAnothersIsFollowedToIt) {
  here[kObject] = {0, State::large, 64, false, false, kValue};
  here[kValue] = {0, State::large, 64, false, false, {}};
  ask({kObject});
  EXPECT_EQ(asked.at(0).second.objects, (std::vector{kValue})) << "as far as it is known here";
  say(kA, {});
  say(kB, {{0, State::large, 64, true, false, {}}});
  EXPECT_EQ(answers.at(0).places[0].nodes, (std::vector{kB}));
  // Now only the owner knows to which object kObject forwards.
  here.clear();
  asked.clear();
  ask({kObject});
  say(kA, {{0, State::large, 64, false, false, kValue}});
  say(kB, {});
  ASSERT_EQ(asked.size(), 4u) << "all are asked again";
  EXPECT_EQ(asked[2].second.objects, (std::vector{kValue}));
  query.answered(kB, {asked[0].second.request, {{0, State::failed, 0, true, false, {}}}});
  say(kA, {{0, State::large, 64, true, false, {}}});
  say(kB, {});
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].places[0].state, State::large) << "a late answer to the first is no answer";
  EXPECT_EQ(answers[1].places[0].nodes, (std::vector{kA}));
}

TEST_F(LocationQueryTest, ValuesThatNameEachOtherEnd) {
  ask({kObject});
  for (int i = 0; i < 20 && answers.empty(); ++i) {
    const ObjectId next = asked.back().second.objects.at(0) == kObject ? kValue : kObject;
    say(kA, {{0, State::unknown, 0, false, false, next}});
    say(kB, {});
  }
  EXPECT_EQ(answers.size(), 1u);
}

TEST_F(LocationQueryTest, WhoDiesOrIsSilentIsNotWaitedFor) {
  here[kObject] = {0, State::small, 4, true, false, {}};
  ask({kObject});
  say(kA, {});
  query.node_died(kB);
  EXPECT_EQ(answers.size(), 1u);
  ask({kObject});
  EXPECT_EQ(query.next_deadline(), now + 2s);
  now += 2s;
  query.carry_out(now);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].places[0].state, State::small);
  say(kA, {});  // too late
  ask({kObject});
  query.process_died(kProcess);
  EXPECT_EQ(query.next_deadline(), Time::max());
  EXPECT_EQ(answers.size(), 2u);
}

TEST_F(LocationQueryTest, AnswersAreCutToWhatAFrameTakes) {
  nodes.clear();
  std::vector<ObjectId> objects;
  for (std::uint64_t i = 0; i < wire::kMaxRefs; ++i) objects.push_back({9, i});
  for (const ObjectId object : objects) here[object] = {0, State::small, 4, true, false, {}};
  ask(objects);
  ASSERT_GT(answers.size(), 1u);
  std::size_t places = 0;
  wire::FrameWriter writer;
  for (const wire::Located& answer : answers) {
    EXPECT_EQ(answer.more, &answer != &answers.back());
    for (const wire::ObjectPlace& place : answer.places) EXPECT_EQ(place.index, places++);
    EXPECT_LT(writer.encode(wire::NodeMessage(answer)).size(), 16384u);
  }
  EXPECT_EQ(places, objects.size());
}

}  // namespace
}  // namespace troupe::agent::location_query_test
