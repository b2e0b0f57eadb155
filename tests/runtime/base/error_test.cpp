// Tests errors, results, ids and seeded random numbers of runtime/base.
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/short_name.hpp"
#include "troupe/runtime/base/stack_reader.hpp"

#include <gtest/gtest.h>
#include <set>
#include <stdexcept>
#include <string>

namespace troupe {
namespace {

TEST(Error, RaiseThrowsTheClassOfItsCode) {
  const Error error(Code::object_lost, "gone", Outcome::executed);
  try {
    raise(error);
    FAIL() << "raise returned";
  } catch (const ObjectLost& e) {
    EXPECT_EQ(e.message(), "gone");
    EXPECT_EQ(e.outcome(), Outcome::executed);
    EXPECT_TRUE(e.maybe_executed());
  }
}

TEST(Error, WhatNamesThePlace) {
  ErrorInfo info;
  info.code = Code::task_failed;
  info.message = "boom";
  info.origin = {.node = "n1", .pid = 42, .function = "area(double)", .attempt = 2};
  EXPECT_STREQ(Error(info).what(), "boom [area(double), node n1, pid 42, attempt 2]");
}

TEST(Error, WhatNamesFunctionsAsPeopleWriteThem) {
  ErrorInfo info;
  info.message = "boom";
  info.origin.function = "lab::(anonymous namespace)::Run<lab::Config, 3>";
  EXPECT_STREQ(Error(info).what(), "boom [Run]");
  EXPECT_EQ(Error(info).where().function, info.origin.function);
}

TEST(ShortName, DropsNamespacesAndTemplateArguments) {
  EXPECT_EQ(short_name("twice(int)"), "twice(int)");
  EXPECT_EQ(short_name("troupe::tune::internal::TrialActor<lm::Config, std::vector<int>>"),
            "TrialActor");
  EXPECT_EQ(short_name("(anonymous namespace)::greet(std::string, const std::vector<a::B>&)"),
            "greet(string, const vector&)");
  EXPECT_EQ(short_name("outer::(anonymous namespace)::inner<&outer::f>(int)"), "inner(int)");
  EXPECT_EQ(short_name("lab::main(int, char**)::<lambda(std::pair<int, int>)->int>"), "lambda");
  EXPECT_EQ(short_name("lab::(lambda at lab.cpp:3:5)(int)"), "lambda(int)");
  EXPECT_EQ(short_name("f(int)::Local<(g::Kind)1>::run(int (*)(a::B))"), "run(int (*)(B))");
  EXPECT_EQ(short_name(""), "");
}

TEST(Error, ExplainWalksTheCauseChainAndAdvises) {
  ErrorInfo inner;
  inner.code = Code::worker_died;
  inner.message = "killed by signal 9";
  ErrorInfo outer;
  outer.code = Code::object_lost;
  outer.message = "no copy left";
  outer.cause = std::make_shared<const ErrorInfo>(inner);
  const std::string text = explain(Error(outer));
  EXPECT_NE(text.find("object_lost: no copy left"), std::string::npos) << text;
  EXPECT_NE(text.find("caused by worker_died: killed by signal 9"), std::string::npos) << text;
  EXPECT_NE(text.find("next: "), std::string::npos) << text;
}

TEST(Error, RemembersTheUsersExceptionType) {
  ErrorInfo info;
  info.code = Code::task_failed;
  info.type = typeid(std::out_of_range).name();
  const Error error(info);
  EXPECT_TRUE(error.is<std::out_of_range>());
  EXPECT_FALSE(error.is<std::runtime_error>());
}

TEST(Error, EveryCodeHasANameAndItsOwnAdvice) {
  std::set<std::string_view> names;
  std::set<std::string_view> advice;
  for (int c = 0; c <= 15; ++c) {
    names.insert(name_of(static_cast<Code>(c)));
    advice.insert(advice_for(static_cast<Code>(c)));
  }
  EXPECT_EQ(names.size(), 16u);
  EXPECT_EQ(advice.size(), 16u);
}

TEST(Error, HasTheStackAndTheLinesOfItsFirstCauseWithSome) {
  ErrorInfo inner, middle, outer;
  inner.remote_stack = "    #0 inner";
  middle.last_lines = "one\n\x1b[2Jtwo\n";
  middle.cause = std::make_shared<const ErrorInfo>(inner);
  outer.message = "short";
  outer.cause = std::make_shared<const ErrorInfo>(middle);
  const Error error(outer);
  EXPECT_STREQ(error.what(), "short");
  EXPECT_EQ(error.remote_stack(), "    #0 inner");
  EXPECT_EQ(error.last_lines(), "one\n\x1b[2Jtwo\n");
  const std::string text = explain(error);
  EXPECT_NE(text.find("\n  remote stack:\n    #0 inner\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  last lines of the process:\n    one\n    ?[2Jtwo\n"), std::string::npos)
      << text;
  const Error bare(Code::internal, "a bug");
  EXPECT_EQ(bare.remote_stack() + bare.last_lines(), "");
}

TEST(Error, FramesAreMadeReadableOnceAndWhenAskedFor) {
  static int calls = 0;
  set_stack_reader([](const std::string& frames) { return frames + std::to_string(++calls); });
  ErrorInfo info;
  info.remote_stack = "frames ";
  const Error error(info);
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): a copy shares what is read
  const Error copy = error;
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(copy.remote_stack(), "frames 1");
  EXPECT_EQ(error.remote_stack(), "frames 1");
  EXPECT_EQ(error.info().remote_stack, "frames ") << "what crosses processes";
  EXPECT_EQ(Error(Code::internal, "a bug").remote_stack(), "");
  set_stack_reader(nullptr);
  EXPECT_EQ(Error(info).remote_stack(), "frames ");
}

TEST(Result, ValueRaisesTheError) {
  const Result<int> good = 3;
  EXPECT_EQ(good.value(), 3);
  const Result<int> bad = Error(Code::timed_out, "too late");
  EXPECT_FALSE(bad);
  EXPECT_THROW((void)bad.value(), TimedOut);
}

TEST(Id, TextRoundTrips) {
  const NodeId id = NodeId::random();
  EXPECT_EQ(NodeId::parse(id.str()), id);
  EXPECT_EQ((NodeId{0x1234, 0xabcd}.str()), "0000000000001234000000000000abcd");
  EXPECT_FALSE(NodeId::parse("xyz"));
  EXPECT_FALSE(NodeId::parse(std::string(32, 'G')));
}

TEST(Random, SameSeedSameNumbers) {
  Random a(7), b(7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a(), b());
  for (int i = 0; i < 1000; ++i) EXPECT_LT(a.below(10), 10u);
}

}  // namespace
}  // namespace troupe
