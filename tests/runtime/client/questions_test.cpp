// Tests Questions: QUESTION-1 to QUESTION-4.
#include "troupe/runtime/client/questions.hpp"

#include <gtest/gtest.h>
#include <string>
#include <utility>

namespace troupe::client::questions_test {
namespace {

bool explain(Questions& questions, std::uint64_t request, std::string why) {
  wire::Explained message{request, std::move(why)};
  return questions.answer(message);
}

bool list(Questions& questions, std::uint64_t request, const std::string& name, bool more) {
  wire::Nodes message;
  message.request = request;
  message.rows.emplace_back().name = name;
  message.more = more;
  return questions.answer(message);
}

TEST(QuestionsTest, QuestionsOfAllKindsHaveDifferentNumbers) {
  Questions questions;
  const auto first = questions.ask<wire::Explained>();
  const auto reader = questions.ask_reader(true, 1);
  const auto second = questions.ask<wire::Nodes>();
  EXPECT_EQ(second, first + 1) << "a question for a reader takes no number from the others";
  EXPECT_NE(reader, first);
  EXPECT_NE(reader, questions.ask_reader(true, 1));
}

TEST(QuestionsTest, AnswerWithoutAQuestionOfItsKindChangesNothing) {
  Questions questions;
  const auto number = questions.ask<wire::Nodes>();
  EXPECT_FALSE(explain(questions, number, "of another kind"));
  EXPECT_FALSE(explain(questions, number + 1, "of no question"));
  EXPECT_FALSE(questions.is_answered(number));
  wire::FoundActor found;
  found.request = number + 1;
  found.class_name = "Account";
  EXPECT_FALSE(questions.answer(found));
  EXPECT_EQ(found.class_name, "Account") << "what it holds is the caller's";
}

TEST(QuestionsTest, AnswerInSeveralMessagesIsThereWithTheLast) {
  Questions questions;
  const auto number = questions.ask<wire::Nodes>();
  EXPECT_TRUE(list(questions, number, "a", true));
  EXPECT_FALSE(questions.is_answered(number));
  EXPECT_TRUE(list(questions, number, "b", false));
  EXPECT_TRUE(questions.is_answered(number));
  const auto answer = questions.take<wire::Nodes>(number);
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->rows.size(), 2u);
  EXPECT_EQ(answer->rows[0].name + answer->rows[1].name, "ab");
}

TEST(QuestionsTest, PlacesOfObjectsAreJoinedInOrder) {
  Questions questions;
  const auto number = questions.ask<wire::Located>();
  wire::Located part;
  part.request = number;
  part.more = true;
  part.places.emplace_back().index = 1;
  EXPECT_TRUE(questions.answer(part));
  EXPECT_FALSE(questions.is_answered(number));
  wire::Located rest;
  rest.request = number;
  rest.places.emplace_back().index = 2;
  EXPECT_TRUE(questions.answer(rest));
  const auto answer = questions.take<wire::Located>(number);
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->places.size(), 2u);
  EXPECT_EQ(answer->places[1].index, 2u);
}

TEST(QuestionsTest, TakeEndsAQuestionAnsweredOrNot) {
  Questions questions;
  const auto answered = questions.ask<wire::Explained>(), open = questions.ask<wire::Explained>();
  EXPECT_TRUE(explain(questions, answered, "busy"));
  const auto answer = questions.take<wire::Explained>(answered);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->why, "busy");
  EXPECT_FALSE(questions.take<wire::Explained>(open).has_value());
  EXPECT_FALSE(explain(questions, answered, "late"));
  EXPECT_FALSE(explain(questions, open, "late"));
}

TEST(QuestionsTest, ViewAnswersAllThreadsThatAskedForIt) {
  Questions questions;
  const auto one = questions.ask_reader(true, 5), two = questions.ask_reader(true, 5);
  const auto other = questions.ask_reader(false, 5), extent = questions.ask<Questions::Extent>();
  const Error gone(Code::object_lost, "gone");
  questions.answer_readers(true, 5, &gone);
  questions.answer_readers(false, 6, nullptr);
  EXPECT_FALSE(questions.is_answered(other));
  EXPECT_FALSE(questions.is_answered(extent));
  for (const auto number : {one, two}) {
    const auto answer = questions.take<Questions::Reader>(number);
    ASSERT_TRUE(answer.has_value());
    ASSERT_NE(answer->failed, nullptr);
    EXPECT_EQ(answer->failed->code(), Code::object_lost);
  }
  questions.answer_readers(false, 5, nullptr);
  const auto answer = questions.take<Questions::Reader>(other);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->failed, nullptr);
}

TEST(QuestionsTest, RefusedExtentsEndInTheErrorAndAnsweredOnesStay) {
  Questions questions;
  const auto given = questions.ask<Questions::Extent>(), open = questions.ask<Questions::Extent>();
  const auto other = questions.ask<wire::NowAt>();
  Questions::Extent added{true};
  EXPECT_TRUE(questions.answer(given, added));
  questions.refuse_extents(Error(Code::unavailable, "no descriptor"));
  EXPECT_FALSE(questions.is_answered(other));
  const auto first = questions.take<Questions::Extent>(given);
  const auto second = questions.take<Questions::Extent>(open);
  ASSERT_TRUE(first.has_value());
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(first->added.value());
  ASSERT_FALSE(second->added);
  EXPECT_EQ(second->added.error().code(), Code::unavailable);
}

}  // namespace
}  // namespace troupe::client::questions_test
