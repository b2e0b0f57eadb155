// Tests the lines between a study's owner and the verbs: what is read, what is refused, and that no
// bytes harm the reader.
#include "troupe/tune/study/study_protocol.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>

namespace troupe::tune {
namespace study_protocol_test {
namespace {

using About = StudyQuestion::About;
using What = StudyCommand::What;

std::string why_not(std::string_view line) {
  const auto call = read_call(line);
  return call ? "" : call.error().message();
}

const std::vector<StudyCall>& calls() {
  static const std::vector<StudyCall> all = {
      StudyQuestion{.about = About::state},
      StudyQuestion{.about = About::trials, .from = 12, .most = 5},
      StudyQuestion{.about = About::trial, .from = 3},
      StudyQuestion{.about = About::events, .from = 1ull << 60},
      StudyCommand{.what = What::add, .values = {{"lr", "1e-3"}, {"text", "a \"b\"\n"}}},
      StudyCommand{.what = What::stop, .trial = 17},
      StudyCommand{.what = What::pause},
      StudyCommand{.what = What::resume, .trial = 0},
      StudyCommand{.what = What::set, .values = {{"trials", "500"}}}};
  return all;
}

TEST(StudyProtocol, EachCallIsReadAsItWasWritten) {
  for (const StudyCall& call : calls()) {
    const std::string line = line_of(call);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto read = read_call(line);
    ASSERT_TRUE(read.ok()) << line << ": " << read.error().message();
    EXPECT_TRUE(*read == call) << line;
  }
}

TEST(StudyProtocol, AnswersAndErrorsAreReadAsTheyWereWritten) {
  const auto answer = read_answer(answer_line(Json{{"trial", 7}, {"state", "leaving"}}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->find("trial")->as_whole<int>(), 7);
  const auto error = read_answer(error_line(Error(Code::out_of_disk, "tune: it is\nfull")));
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().code(), Code::out_of_disk);
  EXPECT_EQ(error.error().message(), "tune: it is\nfull");
  for (const char* line :
       {"", "7", "{}", "{\"error\":7}", "{\"error\":{\"code\":1,\"message\":2}}"})
    EXPECT_EQ(read_answer(line).error().code(), Code::invalid_argument) << line;
}

TEST(StudyProtocol, CallsThatMakeNoSenseAreRefusedWithASentence) {
  EXPECT_EQ(why_not("hello"), "tune: the request is no JSON object");
  EXPECT_EQ(why_not("[1]"), "tune: the request is no JSON object");
  EXPECT_EQ(why_not("{}"), R"(tune: the request needs either "ask" or "do")");
  EXPECT_EQ(why_not(R"({"ask":"state","do":"stop"})"),
            R"(tune: the request needs either "ask" or "do")");
  EXPECT_EQ(
      why_not(R"({"ask":"weather"})"),
      R"(tune: the request has "ask": "weather", which is none of state, trial, trials, events)");
  EXPECT_EQ(
      why_not(R"({"do":"sleep"})"),
      R"(tune: the request has "do": "sleep", which is none of add, stop, set, pause, resume)");
  for (const char* line :
       {R"({"ask":7})", R"({"ask":"trials","from":-1})", R"({"ask":"trials","from":"0"})",
        R"({"ask":"trials","most":0})", R"({"ask":"trials","most":1e3})", R"({"do":null})",
        R"({"do":"stop"})", R"({"do":"stop","trial":-1})", R"({"do":"stop","trial":4294967296})",
        R"({"do":"stop","trial":1.5})", R"({"do":"pause","trial":-1})",
        R"({"do":"resume","trial":"1"})", R"({"do":"add"})", R"({"do":"add","values":[1]})",
        R"({"do":"set","values":{"trials":null}})", R"({"do":"set","values":{"trials":[5]}})"})
    EXPECT_NE(why_not(line), "") << line;
  std::string many = R"({"do":"add","values":{"a":1)";
  for (int i = 0; i < 1000; ++i) many += ",\"p" + std::to_string(i) + "\":1";
  EXPECT_NE(why_not(many + "}}"), "");
  EXPECT_NE(why_not(std::string(5000, '[')), "");
}

TEST(StudyProtocol, NumbersAndTruthValuesCountAsTexts) {
  const auto call = read_call(R"({"do":"set","values":{"trials":500,"fail_fast":true}})");
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(std::get<StudyCommand>(*call).values,
            (TypedValues{{"trials", "500"}, {"fail_fast", "true"}}));
}

TEST(StudyProtocol, APageHasABound) {
  const auto call = read_call(R"({"ask":"events","most":4000000000})");
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(std::get<StudyQuestion>(*call).most, StudyQuestion::kMost);
}

/// Lines with bytes changed, cut and doubled: each is read or refused.
TEST(StudyProtocol, NoBytesHarmTheReader) {
  Random random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string line = line_of(calls()[random.below(calls().size())]);
    for (std::uint64_t change = 1 + random.below(4); change > 0; --change) {
      const std::size_t at = random.below(line.size() + 1);
      switch (random.below(3)) {
        case 0: line.insert(at, 1, static_cast<char>(random.below(256))); break;
        case 1: line.resize(at); break;
        default: line.insert(at, line.substr(0, random.below(line.size() + 1)));
      }
    }
    const auto call = read_call(line);
    if (call) {
      EXPECT_TRUE(read_call(line_of(*call)).ok()) << line;
    } else {
      EXPECT_FALSE(call.error().message().empty());
    }
    (void)read_answer(line);
  }
}

TEST(LineCutter, LinesDoNotDependOnHowTheirBytesArrive) {
  const std::string bytes = "one\n\nthree\nfour and more\n";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    LineCutter cutter(20);
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      ASSERT_TRUE(cutter.add(std::string_view(bytes).substr(at, piece)));
      while (const auto line = cutter.next()) lines.push_back(*line);
    }
    EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "three", "four and more"})) << piece;
  }
}

TEST(LineCutter, ALineOverTheBoundEndsTheReading) {
  LineCutter cutter(4);
  EXPECT_TRUE(cutter.add("1234"));
  EXPECT_FALSE(cutter.next());
  EXPECT_FALSE(cutter.add("5"));
  EXPECT_FALSE(cutter.add("\n"));
  EXPECT_FALSE(cutter.next());
  LineCutter whole(4);
  EXPECT_TRUE(whole.add("1234\n12345\n"));
  EXPECT_EQ(whole.next(), "1234");
  EXPECT_FALSE(whole.next());
  EXPECT_FALSE(whole.add("x"));
}

}  // namespace
}  // namespace study_protocol_test
}  // namespace troupe::tune
