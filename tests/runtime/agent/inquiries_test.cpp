// Tests Inquiries: INQUIRY-1 to INQUIRY-3.
#include "troupe/runtime/agent/inquiries.hpp"

#include "tests/runtime/agent/played_outgoing.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::inquiries_test {
namespace {

using namespace std::chrono_literals;
constexpr NodeId kNode{0, 1}, kOther{0, 2};
constexpr ProcessIndex kProcess = 7;

struct InquiriesTest : testing::Test {
  std::uint64_t ask(NodeId node) { return inquiries.note(kProcess, ++request, node, now); }
  /// Returns the errors and bytes that the process got for a request.
  std::pair<int, std::size_t> got(std::uint64_t asked) {
    std::pair<int, std::size_t> sum{0, 0};
    for (const auto& sent : out.to_processes) {
      const auto* answer = std::get_if<wire::Answer>(&sent.message);
      if (answer == nullptr || answer->request != asked) continue;
      EXPECT_EQ(sent.to, kProcess);
      sum.first += answer->error ? 1 : 0;
      if (!answer->error) {
        EXPECT_EQ(answer->offset, sum.second);
      }
      sum.second += sent.payload.size();
    }
    return sum;
  }

  PlayedOutgoing out;
  Inquiries inquiries{out};
  std::uint64_t request = 100;
  Time now{1s};
};

TEST_F(InquiriesTest, AnswerPassesInPiecesAndEndsTheQuestion) {
  const std::uint64_t number = ask(kNode);
  const Blob half(20'000);
  inquiries.on_answer(kNode, {number, 0, 40'000, nullptr}, half);
  inquiries.on_answer(kNode, {number, 20'000, 40'000, nullptr}, half);
  EXPECT_EQ(got(request), std::pair(0, std::size_t{40'000}));
  EXPECT_GT(out.to_processes.size(), 2u);
  inquiries.on_answer(kNode, {number, 0, 40'000, nullptr}, half);
  inquiries.end(kNode, Error(Code::unavailable, "gone"));
  EXPECT_EQ(got(request), std::pair(0, std::size_t{40'000}));
}

TEST_F(InquiriesTest, OnlyTheNodeThatWasAskedMayAnswer) {
  const std::uint64_t number = ask(kNode);
  inquiries.on_answer(kOther, {number, 0, 1, nullptr}, Blob(1));
  EXPECT_TRUE(out.to_processes.empty());
  inquiries.on_answer(kNode, {number, 0, 1, nullptr}, Blob(1));
  EXPECT_EQ(got(request), std::pair(0, std::size_t{1}));
}

TEST_F(InquiriesTest, QuestionEndsWithErrorWhenItsNodeIsGone) {
  ask({});
  ask(kNode);
  inquiries.end({}, Error(Code::unavailable, "control restarts"));
  EXPECT_EQ(got(request - 1).first, 1);
  EXPECT_EQ(got(request).first, 0);
  inquiries.end(kNode, Error(Code::unavailable, "dead"));
  inquiries.end(kNode, Error(Code::unavailable, "dead"));
  EXPECT_EQ(got(request).first, 1);
}

TEST_F(InquiriesTest, QuestionTimesOutAfterTwentySeconds) {
  EXPECT_EQ(inquiries.next_deadline(), Time::max());
  ask(kNode);
  now += 5s;
  ask(kOther);
  EXPECT_EQ(inquiries.next_deadline(), Time{21s});
  inquiries.expire(Time{21s});
  EXPECT_EQ(got(request - 1).first, 1);
  EXPECT_EQ(got(request).first, 0);
  EXPECT_EQ(inquiries.next_deadline(), Time{26s});
  inquiries.expire(Time{26s});
  EXPECT_EQ(got(request).first, 1);
  EXPECT_EQ(inquiries.next_deadline(), Time::max());
}

TEST_F(InquiriesTest, ReplyOfControlEndsItsQuestionOnce) {
  const std::uint64_t own = inquiries.take_number(), number = ask({});
  EXPECT_NE(own, number);
  const control::FromControl reply = control::KvReply{};
  inquiries.on_reply(own, reply);
  EXPECT_TRUE(out.to_processes.empty());
  inquiries.on_reply(number, reply);
  inquiries.on_reply(number, reply);
  EXPECT_EQ(got(request), std::pair(0, control::encode(reply).size()));
}

TEST_F(InquiriesTest, OwedAnswersLeaveWholeAndInOrder) {
  out.full.insert(kNode);
  for (std::uint64_t i = 0; i < 9; ++i) inquiries.owe(kNode, i, Blob(300'000));
  ASSERT_EQ(out.to_nodes.size(), 1u) << "the ninth is refused";
  EXPECT_NE(std::get<wire::PeerAnswer>(out.to_nodes[0].message).error, nullptr);
  out.to_nodes.clear();
  out.full.clear();
  inquiries.send_owed(kOther);
  EXPECT_TRUE(out.to_nodes.empty());
  inquiries.send_owed(kNode);
  ASSERT_EQ(out.to_nodes.size(), 16u);
  for (std::size_t i = 0; i < 16; ++i) {
    const auto& piece = std::get<wire::PeerAnswer>(out.to_nodes[i].message);
    EXPECT_EQ(piece.request, i / 2);
    EXPECT_EQ(piece.offset, i % 2 == 0 ? 0u : out.to_nodes[i - 1].payload.size());
    EXPECT_EQ(piece.bytes, 300'000u);
  }
}

TEST_F(InquiriesTest, NodeThatIsGoneIsOwedNothing) {
  out.full.insert(kNode);
  inquiries.owe(kNode, 1, Blob(1));
  inquiries.forget(kNode);
  out.full.clear();
  inquiries.send_owed(kNode);
  EXPECT_TRUE(out.to_nodes.empty());
}

}  // namespace
}  // namespace troupe::agent::inquiries_test
