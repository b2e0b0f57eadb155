/// Tests NamedObjects at the keeper of an object. The keeper holds the object from its question
/// to control until control has no such name, whichever message is lost in between.
#include "troupe/runtime/agent/named_objects.hpp"

#include <gtest/gtest.h>
#include <map>
#include <vector>

namespace troupe::agent::named_objects_test {
namespace {

using Verb = control::NameObject::Verb;
constexpr NodeId kHere{0, 1}, kOther{0, 2};
constexpr ObjectId kObject{5, 1}, kOtherObject{5, 2};
constexpr ProcessIndex kProcess = 7;

struct NamedObjectsTest : testing::Test, NamedObjects::Out {
  NamedObjectsTest() { named.start(kHere); }
  void hold_named(ObjectId object, std::int32_t delta) override { held[object] += delta; }
  void to_control(const control::NameObject& message) override { asked.push_back(message); }
  void answer(ProcessIndex process, const wire::NamedObject& answer,
              const control::ObjectName&) override {
    EXPECT_EQ(process, kProcess);
    answers.push_back(answer);
  }
  void ask(wire::NameObject::Verb verb, ObjectId object = {}) {
    named.ask(kProcess, {++request, verb, "weights", object, 77, "Weights"},
              {.owner = kHere, .job = {}, .bytes = 10});
  }
  void detach(ObjectId object = kObject) { ask(wire::NameObject::Verb::detach, object); }
  control::NamedObject reply_to(const control::NameObject& question, bool done,
                                ObjectId object = kObject, NodeId keeper = kHere) {
    control::NamedObject reply;
    reply.request = question.request;
    reply.done = done;
    reply.what.name = "weights";
    reply.what.object = object;
    reply.what.keeper = keeper;
    return reply;
  }

  NamedObjects named{*this};
  std::map<ObjectId, int> held;
  std::vector<control::NameObject> asked;
  std::vector<wire::NamedObject> answers;
  std::uint64_t request = 0;
};

TEST_F(NamedObjectsTest, AnObjectIsHeldFromTheQuestionOnUntilItsNameIsForgotten) {
  detach();
  EXPECT_EQ(held[kObject], 1) << "whoever asks may let go of it as soon as it is answered";
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].what.keeper, kHere);
  EXPECT_EQ(asked[0].what.bytes, 10u);
  EXPECT_TRUE(answers.empty());
  EXPECT_TRUE(named.replied(reply_to(asked[0], true)));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].found);
  EXPECT_EQ(held[kObject], 1);
  named.forgotten({{}, "weights", kOtherObject});
  named.forgotten({{}, "other", kObject});
  EXPECT_EQ(held[kObject], 1) << "not this one";
  named.forgotten({{}, "weights", kObject});
  EXPECT_EQ(held[kObject], 0);
  named.forgotten({{}, "weights", kObject});
  EXPECT_EQ(held[kObject], 0) << "once";
}

TEST_F(NamedObjectsTest, ATakenNameHoldsNothingAndANameGivenTwiceHoldsOnce) {
  detach();
  control::NamedObject taken = reply_to(asked[0], false, kOtherObject);
  taken.error = Error(Code::invalid_argument, "taken").shared_info();
  EXPECT_TRUE(named.replied(taken));
  EXPECT_EQ(held[kObject], 0);
  EXPECT_NE(answers.at(0).error, nullptr);
  detach();
  detach();
  EXPECT_TRUE(named.replied(reply_to(asked[1], true)));
  EXPECT_TRUE(named.replied(reply_to(asked[2], true)));
  EXPECT_EQ(held[kObject], 1);
}

TEST_F(NamedObjectsTest, WhatWasAskedIsAskedAgainOfANewControlInTheSameOrder) {
  detach();
  ask(wire::NameObject::Verb::forget);
  named.registered();
  ASSERT_EQ(asked.size(), 4u);
  EXPECT_EQ(asked[2].verb, Verb::detach);
  EXPECT_EQ(asked[2].request, asked[0].request);
  EXPECT_EQ(asked[3].verb, Verb::find);
  EXPECT_TRUE(named.replied(reply_to(asked[0], true)));
  EXPECT_TRUE(named.replied(reply_to(asked[1], true)));
  EXPECT_FALSE(named.replied(reply_to(asked[1], true))) << "answered once";
  ASSERT_EQ(asked.size(), 5u);
  EXPECT_TRUE(named.replied(reply_to(asked[4], true)));
  EXPECT_EQ(answers.size(), 2u);
}

TEST_F(NamedObjectsTest, AForgetThatIsSaidAgainIsOfTheSameObject) {
  for (const bool again : {false, true}) {
    asked.clear();
    answers.clear();
    ask(wire::NameObject::Verb::forget);
    named.registered();  // the question is repeated before any name is removed
    EXPECT_TRUE(named.replied(reply_to(asked.at(1), true, kOtherObject, kOther)));
    ASSERT_EQ(asked.size(), 3u);
    EXPECT_EQ(asked[2].verb, Verb::forget);
    EXPECT_EQ(asked[2].what.object, kOtherObject);
    EXPECT_TRUE(answers.empty());
    if (again) {
      named.registered();
      ASSERT_EQ(asked.size(), 4u);
      EXPECT_EQ(asked[3].what.object, kOtherObject);
    }
    EXPECT_TRUE(named.replied(reply_to(asked[2], false)));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].found, again) << "the control before has done it, maybe";
    EXPECT_FALSE(answers[0].object);
  }
  ask(wire::NameObject::Verb::forget);
  EXPECT_TRUE(named.replied(reply_to(asked.back(), false)));
  EXPECT_FALSE(answers.at(1).found) << "there was none";
}

TEST_F(NamedObjectsTest, ANameThatChangesHandsWhileNobodyHearsItHoldsTheNewObject) {
  detach();
  EXPECT_TRUE(named.replied(reply_to(asked[0], true)));
  detach(kOtherObject);  // another node has removed the first name, and this node was not told
  named.registered();
  ASSERT_EQ(asked.size(), 4u);
  EXPECT_TRUE(named.replied(reply_to(asked[1], true, kOtherObject)));
  EXPECT_TRUE(named.replied(reply_to(asked[3], true, kOtherObject)));
  EXPECT_EQ(held[kObject], 0);
  EXPECT_EQ(held[kOtherObject], 1);
  EXPECT_EQ(named.size(), 1u);
}

TEST_F(NamedObjectsTest, WhatControlForgotWhileNobodyHeardItIsLetGoOfWhenItIsHeardAgain) {
  for (const bool other : {false, true}) {
    asked.clear();
    detach();
    EXPECT_TRUE(named.replied(reply_to(asked.at(0), true)));
    named.registered();
    ASSERT_EQ(asked.size(), 2u);
    EXPECT_EQ(asked[1].verb, Verb::find);
    EXPECT_TRUE(named.replied(reply_to(asked[1], true)));
    EXPECT_EQ(held[kObject], 1) << "it is there";
    named.registered();
    EXPECT_TRUE(named.replied(reply_to(asked.at(2), other, kOtherObject, kOther)));
    EXPECT_EQ(held[kObject], 0) << "gone, or another's";
    EXPECT_EQ(named.size(), 0u);
  }
  EXPECT_EQ(answers.size(), 2u) << "no process had asked";
}

TEST_F(NamedObjectsTest, AControlThatCannotSayCostsNoObject) {
  detach();
  EXPECT_TRUE(named.replied(reply_to(asked[0], true)));
  named.registered();
  control::NamedObject error = reply_to(asked.at(1), false);
  error.error = Error(Code::unavailable, "no").shared_info();
  EXPECT_TRUE(named.replied(error));
  EXPECT_EQ(held[kObject], 1);
  named.registered();
  EXPECT_EQ(asked.size(), 3u) << "asked again";
}

TEST_F(NamedObjectsTest, WhoFindsANameIsToldWhatHasIt) {
  ask(wire::NameObject::Verb::find);
  control::NamedObject reply = reply_to(asked[0], true, kOtherObject, kOther);
  reply.what.fingerprint = 77;
  reply.what.type = "Weights";
  EXPECT_TRUE(named.replied(reply));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].request, 1u);
  EXPECT_EQ(answers[0].object, kOtherObject);
  EXPECT_EQ(answers[0].fingerprint, 77u);
  EXPECT_EQ(answers[0].type, "Weights");
  EXPECT_TRUE(held.empty()) << "whoever answers the process counts it";
  ask(wire::NameObject::Verb::find);
  EXPECT_TRUE(named.replied(reply_to(asked[1], false, {})));
  EXPECT_FALSE(answers.at(1).found);
  EXPECT_FALSE(answers.at(1).object);
}

}  // namespace
}  // namespace troupe::agent::named_objects_test
