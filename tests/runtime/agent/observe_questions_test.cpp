// Tests ObserveQuestions: who is asked, that answers are joined, and that late, dead and hostile
// sources become rows of the unanswered.
#include "troupe/runtime/agent/observe_questions.hpp"

#include "troupe/runtime/observe/answer_bytes.hpp"

#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent::observe_questions_test {
namespace {

using namespace std::chrono_literals;
using observe::Answer;
using observe::RowKind;

constexpr ProcessIndex kObserver = 90, kFirst = 5, kSecond = 6;
const NodeId kOther{1, 2}, kAsking{3, 4};

struct Agent final : ObserveQuestions::Out {
  std::string node_name() override { return "node-0"; }
  std::vector<ObserveQuestions::ProcessSource> processes() override {
    return {{kFirst, 31}, {kSecond, 32}};
  }
  std::vector<ObserveQuestions::NodeSource> other_nodes() override { return nodes; }
  void ask_process(ProcessIndex process, const wire::AskRows& question) override {
    asked.emplace_back(process, question.request);
  }
  void ask_node(NodeId, const wire::PeerInquire& question) override {
    EXPECT_TRUE(question.rows);
    asked_nodes.push_back(question.request);
  }
  bool add_own(const observe::Query&, observe::Selection& selection,
               ObserveQuestions::Place& place) override {
    if (own.empty()) return false;
    place.begun = true;
    selection.offer(observe::make_row(RowKind::tasks, own.front()));
    own.erase(own.begin());
    return !own.empty();
  }
  std::vector<ObserveQuestions::NodeSource> nodes{{kOther, "node-1"}};
  std::vector<std::string> own;  // a row a pass
  void answer(const Asker& asker, Blob bytes) override {
    asked_by = asker;
    answered = observe::decode_answer(bytes).value();
  }
  void refuse(const Asker&, const Error& why) override { refused = why.message(); }
  std::vector<std::pair<ProcessIndex, std::uint64_t>> asked;
  std::vector<std::uint64_t> asked_nodes;
  Asker asked_by;
  std::optional<Answer> answered;
  std::string refused;
};

wire::ListQuestion tasks(std::uint32_t limit = 10) {
  wire::ListQuestion question;
  question.kind = static_cast<std::uint8_t>(RowKind::tasks);
  question.limit = limit;
  return question;
}
Blob rows(const std::vector<std::string>& ids) {
  Answer answer;
  answer.total = answer.matched = ids.size();
  for (const std::string& id : ids) answer.rows.push_back(observe::make_row(RowKind::tasks, id));
  return observe::encode(answer);
}

struct Questions : testing::Test {
  Agent agent;
  ObserveQuestions questions{agent};
  Time now = Time{} + 10s;

  void ask() { questions.ask({kObserver, {}, 7}, tasks(), now); }
  void tell(ProcessIndex from, const Blob& bytes, std::size_t piece = 1 << 20) {
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      wire::GiveRows message;
      message.request = agent.asked.back().second;
      message.offset = at;
      message.bytes = bytes.size();
      questions.process_answered(from, message,
                                 BlobView(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
  }
  void tell_node(const Blob& bytes) {
    EXPECT_TRUE(questions.node_answered(
        kOther, {agent.asked_nodes.back(), 0, bytes.size(), nullptr}, bytes));
  }
};

TEST_F(Questions, AnObserversQuestionGoesToProcessesAndNodesAndTheirAnswersAreOne) {
  ask();
  ASSERT_EQ(agent.asked.size(), 2U);
  ASSERT_EQ(agent.asked_nodes.size(), 1U);
  tell(kFirst, rows({"a", "b"}), 5);  // in pieces
  tell_node(rows({"c"}));
  EXPECT_FALSE(agent.answered);
  tell(kSecond, rows({"d"}));
  ASSERT_TRUE(agent.answered);
  EXPECT_EQ(agent.answered->rows.size(), 4U);
  EXPECT_EQ(agent.answered->total, 4U);
  EXPECT_TRUE(agent.answered->unanswered.empty());
  EXPECT_EQ(agent.asked_by.request, 7U);
  EXPECT_EQ(questions.open(), 0U);
  EXPECT_EQ(questions.next_deadline(), Time::max());
}

TEST_F(Questions, TheAgentsOwnRowsTakeAsManyPassesAsTheyNeed) {
  agent.own = {"x", "y", "z"};
  ask();
  tell(kFirst, rows({"a"}));
  tell(kSecond, rows({"b"}));
  tell_node(rows({"c"}));
  EXPECT_FALSE(agent.answered) << "own rows are missing";
  for (int passes = 0; passes < 2; ++passes) {
    EXPECT_LE(questions.next_deadline(), now) << "the next pass comes at once";
    questions.on_timer(now);
  }
  ASSERT_TRUE(agent.answered);
  EXPECT_EQ(agent.answered->rows.size(), 6U);
  EXPECT_TRUE(agent.answered->unanswered.empty());
  EXPECT_EQ(questions.next_deadline(), Time::max());
}

TEST_F(Questions, AnotherNodesQuestionGoesToProcessesAlone) {
  questions.ask({{}, kAsking, 8}, tasks(), now);
  EXPECT_EQ(agent.asked.size(), 2U);
  EXPECT_TRUE(agent.asked_nodes.empty());
}

TEST_F(Questions, LateSourcesAreRowsOfTheUnanswered) {
  ask();
  tell(kFirst, rows({"a"}));
  EXPECT_EQ(questions.next_deadline(), now + 1s);
  questions.on_timer(now + 1s);
  EXPECT_FALSE(agent.answered) << "the other node may take longer";
  questions.on_timer(now + 1500ms);
  ASSERT_TRUE(agent.answered);
  ASSERT_EQ(agent.answered->unanswered.size(), 2U);
  EXPECT_EQ(agent.answered->unanswered[0].pid, 32);
  EXPECT_EQ(agent.answered->unanswered[1].node, "node-1");
  agent.answered.reset();
  tell(kSecond, rows({"late"}));
  tell_node(rows({"late"}));
  EXPECT_FALSE(agent.answered) << "an answer comes once";
}

TEST_F(Questions, NodesThatCannotBeAskedAreRowsOfTheUnansweredAtOnce) {
  agent.nodes = {{kOther, "node-1", "it has died"}};
  ask();
  EXPECT_TRUE(agent.asked_nodes.empty());
  tell(kFirst, rows({"a"}));
  tell(kSecond, rows({"b"}));
  ASSERT_TRUE(agent.answered);
  ASSERT_EQ(agent.answered->unanswered.size(), 1U);
  EXPECT_EQ(agent.answered->unanswered[0].node, "node-1");
  EXPECT_EQ(agent.answered->unanswered[0].why, "it has died");
}

TEST_F(Questions, ALateNodeIsListedWithWhatIsKnownOfIt) {
  agent.nodes = {{kOther, "node-1", "", "node-0 gets no connection to it"}};
  ask();
  ASSERT_EQ(agent.asked_nodes.size(), 1U) << "it may be back";
  questions.on_timer(now + 1500ms);
  ASSERT_TRUE(agent.answered);
  EXPECT_EQ(agent.answered->unanswered.back().why,
            "no answer in 1.5 s, and node-0 gets no connection to it");
}

TEST_F(Questions, TheDeadAreNotWaitedFor) {
  ask();
  tell(kFirst, rows({"a"}));
  questions.process_died(kSecond);
  EXPECT_FALSE(agent.answered);
  questions.node_died(kOther, "the node is dead: killed");
  ASSERT_TRUE(agent.answered);
  EXPECT_EQ(agent.answered->rows.size(), 1U);
  ASSERT_EQ(agent.answered->unanswered.size(), 1U);
  EXPECT_EQ(agent.answered->unanswered[0].why, "the node is dead: killed");
}

TEST_F(Questions, TheQuestionOfAnAskerThatDiedIsForgotten) {
  ask();
  questions.process_died(kObserver);
  EXPECT_EQ(questions.open(), 0U);
  questions.ask({{}, kAsking, 8}, tasks(), now);
  questions.node_died(kAsking, "gone");
  EXPECT_EQ(questions.open(), 0U);
  EXPECT_FALSE(agent.answered);
}

TEST_F(Questions, HostileAnswersAreNotKept) {
  ask();
  const std::uint64_t request = agent.asked.back().second;
  const Blob piece(100);
  wire::GiveRows message;
  message.request = request;
  message.bytes = std::uint64_t{1} << 60;
  questions.process_answered(kFirst, message, piece);  // far too long
  message.bytes = 50;
  questions.process_answered(kSecond, message, piece);    // more than the whole
  questions.process_answered(kObserver, message, piece);  // nobody asked it
  tell_node(Blob(64, std::byte{0xff}));
  ASSERT_TRUE(agent.answered);
  EXPECT_EQ(agent.answered->unanswered.size(), 3U);
  EXPECT_TRUE(agent.answered->rows.empty());
}

TEST_F(Questions, BadQuestionsAreRefused) {
  questions.ask({kObserver, {}, 1}, tasks(0), now);
  EXPECT_NE(agent.refused.find("limit"), std::string::npos);
  wire::ListQuestion question = tasks();
  question.kind = 200;
  questions.ask({kObserver, {}, 1}, question, now);
  EXPECT_NE(agent.refused.find("kind"), std::string::npos);
  question = tasks();
  question.where = "state =";
  questions.ask({kObserver, {}, 1}, question, now);
  EXPECT_EQ(questions.open(), 0U);
  for (std::size_t i = 0; i < ObserveQuestions::kMostOpen; ++i) ask();
  agent.refused.clear();
  ask();
  EXPECT_NE(agent.refused.find("too many"), std::string::npos);
}

TEST_F(Questions, NumbersOfOtherPartsAreLeftToThem) {
  const wire::PeerAnswer other{std::uint64_t{1} << 62, 0, 0, nullptr};
  EXPECT_FALSE(questions.node_answered(kOther, other, {}));
}

}  // namespace
}  // namespace troupe::agent::observe_questions_test
