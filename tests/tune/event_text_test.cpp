// Tests that the texts of events are those of the JSON library, and that the quick reader reads a
// text as the general one does or leaves it to that.
#include "troupe/tune/internal/event_text.hpp"

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <array>
#include <cmath>
#include <limits>

namespace troupe::tune::event_text_test {
namespace {

constexpr int kKinds = static_cast<int>(event_text::kKindNames.size());

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)}, {"mode", choices({"a", "b c"})}, {"w", integers(1, 4)}}};
}

double any_number(Random& random) {
  constexpr std::array<double, 12> kOdd = {
      0,        -0.0,      1,
      -1,       1e-5,      1e21,
      1.0 / 3,  5e-324,    1.7976931348623157e308,
      HUGE_VAL, -HUGE_VAL, std::numeric_limits<double>::quiet_NaN()};
  const std::uint64_t which = random.below(20);
  if (which < kOdd.size()) return kOdd[which];
  return std::ldexp(random.uniform() - 0.5, static_cast<int>(random.below(200)) - 100);
}

std::string any_text(Random& random) {
  static const std::array<std::string, 6> kTexts = {
      "", "plain text, {braces} [too]", "a \"quote\"", "line\nend\\", "\xe2\x82\xac", "\xff"};
  return kTexts[random.below(kTexts.size())];
}

Point any_point(Random& random) {
  return {any_number(random), static_cast<double>(random.below(4)) - 1, any_number(random)};
}

Decision any_decision(Random& random) {
  Decision d{.trial = static_cast<int>(random.below(2000))};
  d.action = static_cast<Decision::Action>(random.below(event_text::kActionNames.size()));
  d.save = random.chance(0.3);
  d.why = any_text(random);
  if (random.chance(0.5)) return d;
  d.donor = static_cast<int>(random.below(9));
  d.donor_params = any_point(random);
  d.params = any_point(random);
  return d;
}

Answer any_answer(Random& random) {
  Answer answer{.kind = static_cast<Answer::Kind>(random.below(3))};
  if (answer.kind == Answer::Kind::point && random.chance(0.8)) answer.point = any_point(random);
  if (random.chance(0.3)) answer.by = Chosen::by_user;
  for (std::uint64_t i = random.below(3); i > 0; --i)
    answer.decisions.push_back(any_decision(random));
  answer.next = static_cast<int>(random.below(100)) - 1;
  return answer;
}

Event any_event(Random& random, int kind) {
  Event e;
  e.kind = static_cast<Event::Kind>(kind);
  e.micros = static_cast<std::int64_t>(random.below(std::uint64_t{1} << random.below(50)));
  if (random.chance(0.7)) e.wall = 1'700'000'000'000'000 + e.micros;
  e.trial = static_cast<int>(random.below(100'000)) - 1;
  e.attempt = static_cast<int>(random.below(10));
  e.step = static_cast<long>(random.below(std::uint64_t{1} << random.below(62)));
  e.score = any_number(random);
  e.donor = static_cast<int>(random.below(5)) - 1;
  e.room = static_cast<int>(random.below(99));
  e.can_save = random.chance(0.5);
  e.ok = random.chance(0.5);
  e.checkpoint = {"trial-3-1-7", any_text(random),
                  random.chance(0.1) ? std::numeric_limits<std::uint64_t>::max() : 64, e.step};
  e.params = any_point(random);
  e.donor_params = any_point(random);
  if (random.chance(0.5)) e.metrics = {{"accuracy", any_number(random)}, {"x y", 2}};
  if (random.chance(0.1)) e.metrics["\xe2\x82\xac"] = any_number(random);
  e.text = any_text(random);
  for (std::uint64_t i = random.below(4); i > 0; --i) e.answers.push_back(any_answer(random));
  return e;
}

/// Reads a line with the general reader: the quick one takes no spaces.
Result<Event> read_generally(const std::string& line) {
  return event_from_json(" " + line, space());
}

TEST(EventText, EveryKindHasTheTextOfTheJsonLibrary) {
  Random random(1);
  for (int i = 0; i < 200 * kKinds; ++i) {
    const std::string line = to_json(any_event(random, i % kKinds), space());
    const auto json = Json::parse(line);
    ASSERT_TRUE(json.ok()) << line;
    EXPECT_EQ(json->dump(-1, Json::Order::as_added), line);
  }
}

TEST(EventText, TheQuickReaderReadsAsTheGeneralOneOrNothing) {
  Random random(2);
  int quick = 0;
  for (int i = 0; i < 200 * kKinds; ++i) {
    const std::string line = to_json(any_event(random, i % kKinds), space());
    const auto general = read_generally(line);
    ASSERT_TRUE(general.ok()) << line << general.error().message();
    const std::string again = to_json(*general, space());
    EXPECT_EQ(to_json(event_from_json(line, space()).value(), space()), again);
    const auto read = event_text::read(line, space());
    if (!read) continue;
    ++quick;
    EXPECT_EQ(to_json(*read, space()), again);
  }
  EXPECT_GT(quick, 50 * kKinds);
}

TEST(EventText, TheQuickReaderTakesNoTextThatTheGeneralOneRefuses) {
  Random random(3);
  int taken = 0;
  for (int i = 0; i < 400 * kKinds; ++i) {
    std::string line = to_json(any_event(random, i % kKinds), space());
    const std::size_t at = random.below(line.size());
    if (random.chance(0.2))
      line.resize(at);
    else if (random.chance(0.3))
      line.insert(at, 1, "0-.e\"{,]"[random.below(8)]);
    else
      line[at] = static_cast<char>(line[at] ^ (1 << random.below(7)));
    const auto read = event_text::read(line, space());
    if (!read) continue;
    ++taken;
    const auto general = read_generally(line);
    ASSERT_TRUE(general.ok()) << line << general.error().message();
    EXPECT_EQ(to_json(*read, space()), to_json(*general, space())) << line;
  }
  EXPECT_GT(taken, 0) << "a changed digit is another number";
}

TEST(EventText, NumbersThatJsonDoesNotKnowAreLeftToTheGeneralReader) {
  for (const char* t : {"01.5", ".5", "1.", "1.e5", "1e", "+1.0", "0x10", "nan", "inf", "1e999",
                        "-0", "-", "", "1.5 ", "-1.0"})
    EXPECT_FALSE(event_text::read(R"({"t":)" + std::string(t) + R"(,"event":"tick"})", {})) << t;
  for (const char* t : {"0", "0.0", "1e3", "1.5E+2", "3"})
    EXPECT_TRUE(event_text::read(R"({"t":)" + std::string(t) + R"(,"event":"tick"})", {})) << t;
}

TEST(EventText, AnOptionThatTheSpaceLacksIsLeftToTheGeneralReader) {
  const std::string line = R"({"t":0.0,"event":"add","params":{"lr":0.5,"mode":"gone","w":1.0}})";
  EXPECT_FALSE(event_text::read(line, space()));
  EXPECT_EQ(event_from_json(line, space()).value().params, (Point{0.5, -1, 1}));
}

/// A log of any earlier build of version 3 has these texts.
TEST(EventText, LinesStayAsTheyAre) {
  const std::array<std::string, 6> lines = {
      R"({"t":0.0,"time":1700000002.0,"event":"begin","answers":[{"point":{"lr":0.25,"mode":)"
      R"("b c","w":3.0},"by":"user"},{"point":null}]})",
      R"({"t":1.5,"event":"report","trial":7,"attempt":1,"step":3,"score":null,"can_save":true,)"
      R"("metrics":{"a":"inf"},"answers":[{"decisions":[{"trial":7,"do":"go_on","save":true}]}]})",
      R"({"t":1e-06,"event":"end","trial":0,"attempt":1,"ok":false,"text":"boom",)"
      R"("answers":[{"decisions":[]},{"next":4}]})",
      R"({"t":2.0,"event":"stored","checkpoint":{"key":"k","hash":"9f","bytes":8,"step":1}})",
      R"({"t":2.25,"event":"exploit","trial":1,"step":5,"donor":0,"checkpoint":{"key":"",)"
      R"("hash":"","bytes":0,"step":0},"params":{"lr":0.1,"mode":"a","w":1.0},)"
      R"("donor_params":{"lr":0.2,"mode":-1.0,"w":2.0},"text":"why"})",
      R"({"t":3.0,"event":"set","options":{"target":null,"trials":20.0},"text":"user"})"};
  for (const std::string& line : lines) {
    const auto read = event_text::read(line, space());
    ASSERT_TRUE(read) << line;
    EXPECT_EQ(to_json(*read, space()), line);
  }
}

}  // namespace
}  // namespace troupe::tune::event_text_test
