// Tests which texts are JSON, what is read from them, and the bytes that a document is written as.
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/json_writer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace troupe {
namespace {

using Numbers = std::numeric_limits<double>;

std::string nested(int depth) {
  const auto n = static_cast<std::size_t>(depth);
  return std::string(n, '[') + std::string(n, ']');
}

/// Parses a text and writes the document.
std::string again(std::string_view text, Json::Order order = Json::Order::by_name) {
  return Json::parse(text).value().dump(-1, order);
}

TEST(Json, BuildsObjectsAndArraysInPlace) {
  const Json json{{"one", 1},
                  {"text", std::string("a\"b\n\\")},
                  {"yes", true},
                  {"none", Json()},
                  {"list", std::vector<std::string>{"x", "y"}},
                  {"deep", {{"points", std::vector<std::vector<double>>{{0.5}, {}}}}}};
  EXPECT_EQ(json.dump(), R"({"deep":{"points":[[0.5],[]]},"list":["x","y"],"none":null,"one":1,)"
                         R"("text":"a\"b\n\\","yes":true})");
}

TEST(Json, NullBecomesTheContainerThatIsWritten) {
  Json json;
  json["a"]["b"] = 1;
  json["a"]["b"] = 2u;
  json["c"].push_back("x");
  json["c"].push_back({{"d", "e"}});
  EXPECT_EQ(json.dump(), R"({"a":{"b":2},"c":["x",{"d":"e"}]})");
}

TEST(Json, FieldsAreSortedOrKeepTheirOrder) {
  const std::string text = R"({"b":1,"a":{"d":2,"c":3},"é":4,"B":5})";
  EXPECT_EQ(again(text), R"({"B":5,"a":{"c":3,"d":2},"b":1,"é":4})");
  EXPECT_EQ(again(text, Json::Order::as_added), text);
}

TEST(Json, IndentsByTheNumberOfSpaces) {
  const Json json{
      {"a", std::vector<int>{1, 2}}, {"b", Json::array()}, {"c", Json::object()}, {"d", "x"}};
  EXPECT_EQ(json.dump(2),
            "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": [],\n  \"c\": {},\n  \"d\": \"x\"\n}");
  EXPECT_EQ((Json{{"a", 1}}.dump(0)), "{\n\"a\": 1\n}");
  EXPECT_EQ(Json("x").dump(2), "\"x\"");
}

TEST(Json, ADocumentComesBackUnchanged) {
  for (const char* text : {"null", "true", "false", "0", "-1", "1.5", R"("")", "[]", "{}",
                           R"([1,[2,{"a":[]}],"\u0000\u001f\"\\/é😀"])", R"({"":{"a":null}})"}) {
    EXPECT_EQ(again(text), text);
    EXPECT_EQ(again(Json::parse(text).value().dump(3)), text);
  }
}

TEST(Json, NonsenseIsAnErrorWithItsPlace) {
  for (const char* text : {"",
                           " ",
                           "nul",
                           "[1,2",
                           "[1,]",
                           "{\"a\"}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "1 2",
                           "01",
                           "+1",
                           ".5",
                           "1.",
                           "NaN",
                           "Infinity",
                           "'a'",
                           "\"a",
                           "\"\n\"",
                           "\"\\x\"",
                           "\"\\ud800\"",
                           "]",
                           "[}",
                           "// no\n1",
                           "1e999",
                           "\"\xff\"",
                           "\"\xc0\x80\"",
                           "\"\xed\xa0\x80\""}) {
    const auto json = Json::parse(text);
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_EQ(json.error().code(), Code::invalid_argument);
  }
  EXPECT_EQ(Json::parse("[1,x]").error().message(), "it is not JSON at byte 4");
  EXPECT_EQ(again(std::string_view("1\0x", 3)), "1") << "a zero byte ends the text";
}

TEST(Json, TheLastOfTwoEqualNamesIsRead) {
  EXPECT_EQ(again(R"({"a":1,"b":2,"a":[3]})", Json::Order::as_added), R"({"a":[3],"b":2})");
}

TEST(Json, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(Json("a\xff").dump(), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ((Json{{"\xc3(", 1}}.dump()), "{\"\xEF\xBF\xBD(\":1}");
}

TEST(Json, NestingIsBounded) {
  EXPECT_EQ(again(nested(Json::kMaxDepth)), nested(Json::kMaxDepth));
  EXPECT_EQ(Json::parse(nested(Json::kMaxDepth + 1)).error().message(), "it nests deeper than 256");
  EXPECT_FALSE(Json::parse(nested(100'000)).ok());
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_FALSE(Json::parse(objects).ok());
}

TEST(Json, IntegersOf64BitsAreExact) {
  for (const char* text : {"18446744073709551615", "9223372036854775808", "9223372036854775807",
                           "-9223372036854775808", "-1", "0"})
    EXPECT_EQ(again(text), text);
  const Json most = Json::parse("18446744073709551615").value();
  EXPECT_EQ(most.as_whole<std::uint64_t>(), ~std::uint64_t{0});
  EXPECT_EQ(most.as_whole<std::int64_t>(), std::nullopt);
  const Json least = Json::parse("-9223372036854775808").value();
  EXPECT_EQ(least.as_whole<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(least.as_whole<std::uint64_t>(), std::nullopt);
  EXPECT_EQ(Json(std::numeric_limits<std::int64_t>::min()).dump(), "-9223372036854775808");
  EXPECT_EQ(Json(~std::uint64_t{0}).dump(), "18446744073709551615");
  EXPECT_EQ(Json(256).as_whole<std::uint8_t>(), std::nullopt);
  EXPECT_EQ(Json(1.0).as_whole<int>(), std::nullopt) << "a double is no integer";
  EXPECT_EQ(Json(true).as_whole<int>(), std::nullopt);
}

TEST(Json, LargerIntegersBecomeDoubles) {
  const Json json = Json::parse("18446744073709551616").value();
  EXPECT_EQ(json.as_whole<std::uint64_t>(), std::nullopt);
  EXPECT_EQ(json.as_number(), 0x1p64);
  EXPECT_EQ(Json::parse("-9223372036854775809").value().as_number(), -0x1p63);
}

TEST(Json, DoublesAreWrittenShortAndComeBack) {
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(-0.0).dump(), "-0.0");
  EXPECT_EQ(Json(1e300).dump(), "1e+300");
  EXPECT_EQ(Json(1.5f).dump(), "1.5");
  for (const double value : {0.1, 1.0 / 3, 0x1p53 + 2, Numbers::max(), Numbers::min(),
                             Numbers::denorm_min(), -12345.678})
    EXPECT_EQ(Json::parse(Json(value).dump()).value().as_number(), value);
}

TEST(Json, NumbersThatAreNotFiniteBecomeNull) {
  for (const double value : {std::nan(""), Numbers::infinity(), -Numbers::infinity()})
    EXPECT_EQ(Json(value).dump(), "null");
}

TEST(Json, ReadingAnotherKindReturnsNothing) {
  const Json json = Json::parse(R"({"text":"x","list":[1],"yes":true,"n":7})").value();
  EXPECT_EQ(*json.find("text")->as_text(), "x");
  EXPECT_EQ(json.find("list")->as_array()->front().as_whole<int>(), 1);
  EXPECT_TRUE(*json.find("yes")->as_bool());
  EXPECT_EQ(json.find("n")->as_number(), 7.0);
  EXPECT_EQ(json.find("missing"), nullptr);
  EXPECT_EQ(json.find("text")->find("x"), nullptr);
  EXPECT_EQ(json.as_array(), nullptr);
  EXPECT_EQ(json.as_text(), nullptr);
  EXPECT_EQ(json.as_bool(), nullptr);
  EXPECT_EQ(json.as_number(), std::nullopt);
  EXPECT_EQ(json.find("list")->as_object(), nullptr);
  EXPECT_FALSE(json.is_null());
  EXPECT_TRUE(Json().is_null());
}

TEST(JsonWriter, AppendsTheTextOfTheDocument) {
  std::string text = "[";  // of the caller: a first value has no comma before it
  JsonWriter json(text);
  json.open('{');
  json.name("empty");
  json.open('[');
  json.close(']');
  json.name("a \"b\"");
  json.open('[');
  json.whole(-7);
  json.whole(~std::uint64_t{0});
  json.number(0.5);
  json.number(2);
  json.number(Numbers::quiet_NaN());
  json.text("a{b[c:,");
  json.text("\xff\n");
  json.flag(true);
  json.null();
  json.open('{');
  json.close('}');
  json.close(']');
  json.close('}');
  EXPECT_EQ(text,
            "[{\"empty\":[],\"a \\\"b\\\"\":[-7,18446744073709551615,0.5,2.0,null,\"a{b[c:,\","
            "\"\uFFFD\\n\",true,null,{}]}");
  EXPECT_EQ(again(text + "]", Json::Order::as_added), text + "]");
}

}  // namespace
}  // namespace troupe
