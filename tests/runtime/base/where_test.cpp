// Tests the language of --where and --sort: what it finds, what it refuses and where, and that no
// text harms it.
#include "troupe/runtime/base/where.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "troupe/runtime/base/random.hpp"

namespace troupe {
namespace where_test {
namespace {

const std::vector<WhereField> kFields{{"state", FieldKind::text},    {"since", FieldKind::time},
                                      {"function", FieldKind::text}, {"bytes", FieldKind::bytes},
                                      {"pid", FieldKind::number},    {"lr", FieldKind::any}};

/// A row with values for some of the fields.
using Values = std::map<std::string, std::variant<double, std::string>>;
FieldValue value_of(const Values& row, std::size_t field) {
  const auto at = row.find(kFields[field].name);
  if (at == row.end()) return {};
  if (const auto* number = std::get_if<double>(&at->second)) return *number;
  return std::string_view(std::get<std::string>(at->second));
}

const Values kMix{{"state", "running"},
                  {"since", 12e9},
                  {"function", "mix(int)"},
                  {"bytes", 3145728.0},
                  {"pid", 8185.0}};

bool finds(const std::string& filter, const Values& row = kMix) {
  const auto where = Where::parse(filter, kFields);
  EXPECT_TRUE(where.ok()) << filter << ": " << (where ? "" : where.error().message());
  return where && where->matches([&](std::size_t field) { return value_of(row, field); });
}

std::string problem(std::string_view filter) {
  const auto where = Where::parse(filter, kFields);
  if (where) return "";
  EXPECT_EQ(where.error().code(), Code::invalid_argument);
  return where.error().message();
}

TEST(Where, ConditionsJoin) {
  EXPECT_TRUE(finds(""));
  EXPECT_TRUE(finds("state = running and since > 10s and function ~ mix"));
  EXPECT_FALSE(finds("state = running and since > 13s"));
  EXPECT_TRUE(finds("state = waiting or since > 10s"));
  EXPECT_TRUE(finds("not state = waiting and pid = 8185")) << "'not' binds closest";
  EXPECT_FALSE(finds("not state = waiting and pid = 1"));
  EXPECT_FALSE(finds("not (state = running and pid = 8185)"));
  EXPECT_TRUE(finds("state = running or state = waiting and pid = 1")) << "'and' before 'or'";
  EXPECT_FALSE(finds("(state = running or state = waiting) and pid = 1"));
  EXPECT_TRUE(finds("NOT pid=1 AND(pid>=8185)"));
}

TEST(Where, EachOperatorCompares) {
  for (const char* yes : {"pid = 8185", "pid == 8185", "pid != 1", "pid < 8186", "pid <= 8185",
                          "pid > 8184.5", "pid >= 8185", "state < s", "state >= running"})
    EXPECT_TRUE(finds(yes)) << yes;
  for (const char* no : {"pid = 8184", "pid != 8185", "pid < 8185", "pid <= 8184", "pid > 8185",
                         "pid >= 8186", "state > s", "state ~ RUN"})
    EXPECT_FALSE(finds(no)) << no;
}

TEST(Where, ValuesHaveUnits) {
  for (const char* yes :
       {"since > 11999ms", "since < 0.3m", "since < 1h", "since < 1d", "since > 0", "since = 12s",
        "bytes = 3MiB", "bytes = 3072KiB", "bytes > 0.002GiB", "bytes = 3145728", "bytes < 1TiB"})
    EXPECT_TRUE(finds(yes)) << yes;
  EXPECT_TRUE(finds("lr < 1e-3", {{"lr", 9e-4}}));
  EXPECT_FALSE(finds("lr < 1e-3", {{"lr", 1e-3}}));
}

TEST(Where, TextsMayBeQuoted) {
  EXPECT_TRUE(finds("function = 'mix(int)'"));
  EXPECT_TRUE(finds("'function' = \"mix(int)\""));
  EXPECT_TRUE(finds(R"(function = 'it\'s \\ "x"')", {{"function", R"(it's \ "x")"}}));
  EXPECT_TRUE(finds("state = 'and'", {{"state", "and"}}));
}

TEST(Where, AMissingValueEqualsNothing) {
  const Values empty;
  EXPECT_FALSE(finds("state = running", empty));
  EXPECT_TRUE(finds("state != running", empty));
  EXPECT_FALSE(finds("since < 1d", empty));
  EXPECT_FALSE(finds("state ~ ''", empty));
  EXPECT_TRUE(finds("state = none", empty));
  EXPECT_FALSE(finds("state != none", empty));
  EXPECT_FALSE(finds("pid = none"));
  EXPECT_TRUE(finds("pid != none"));
  EXPECT_FALSE(finds("state = 'none'", empty));
  EXPECT_TRUE(finds("lr = none", {{"lr", "none"}})) << "the text, too";
}

TEST(Where, AFieldOfAnyKindIsComparedAsTheRowHasIt) {
  EXPECT_TRUE(finds("lr = adam", {{"lr", "adam"}}));
  EXPECT_FALSE(finds("lr = adam", {{"lr", 1.0}}));
  EXPECT_FALSE(finds("lr < 5", {{"lr", "adam"}}));
  EXPECT_TRUE(finds("lr = 10s", {{"lr", "10s"}}));
  EXPECT_FALSE(finds("lr = '1'", {{"lr", 1.0}}));
  EXPECT_TRUE(finds("lr = nan", {{"lr", std::nan("")}}));
  EXPECT_FALSE(finds("lr < 1", {{"lr", std::nan("")}}));
  EXPECT_TRUE(finds("lr != 1", {{"lr", std::nan("")}}));
}

TEST(Where, AProblemNamesItsColumn) {
  const std::pair<const char*, const char*> kProblems[] = {
      {"stat = running",
       "column 1 of the filter: no field is called 'stat'; the fields are state, "
       "since, function, bytes, pid, lr"},
      {"state running", "column 7 of the filter: expected = != < <= > >= or ~ after 'state'"},
      {"state =", "column 8 of the filter: expected a value instead of the end"},
      {"state = running pid = 1", "column 17 of the filter: expected 'and', 'or' or the end"},
      {"(state = running", "column 1 of the filter: this '(' has no ')'"},
      {"state = running)", "column 16 of the filter: this ')' has no '('"},
      {"(state = running pid", "column 18 of the filter: expected 'and', 'or' or ')' instead"},
      {"state = 'run", "column 9 of the filter: the text that begins here has no closing '"},
      {"since > 10", "column 9 of the filter: 'since' is a time, and '10' is not"},
      {"since > 10MiB", "column 9 of the filter: 'since' is a time"},
      {"bytes > 10s", "column 9 of the filter: 'bytes' is a size"},
      {"pid > many", "column 7 of the filter: 'pid' is a number, and 'many' is not"},
      {"pid = '5'", "column 7 of the filter: 'pid' is a number"},
      {"pid > none", "column 7 of the filter: 'pid' is a number"},
      {"pid ~ 81", "column 5 of the filter: '~' searches in texts"},
      {"pid ! 81", "column 5 of the filter: expected = !="},
      {"and", "column 1 of the filter: no field is called 'and'"},
      {"pid = 1 and", "column 12 of the filter: expected a field instead of the end"},
      {"not", "column 4 of the filter: expected a field instead of the end"},
      {"()", "column 2 of the filter: expected a field instead of ')'"},
      {"state = 'größe' x", "column 17 of the filter"},
      {"pid = 1 \x1b", "column 9 of the filter: a control character stands here"},
  };
  for (const auto& [filter, expected] : kProblems)
    EXPECT_EQ(problem(filter).substr(0, std::string(expected).size()), expected) << filter;
}

TEST(Where, AFieldWithFewTextsTellsThem) {
  constexpr std::string_view kStates[] = {"alive", "dead"};
  const WhereField fields[] = {{"state", FieldKind::text, kStates}};
  const auto problem = [&](std::string_view filter) {
    const auto where = Where::parse(filter, fields);
    return where ? std::string() : where.error().message();
  };
  EXPECT_EQ(problem("state = alve"),
            "column 9 of the filter: 'state' is never 'alve'; it is one of alive, dead");
  EXPECT_NE(problem("not state != 'Dead'"), "");
  for (const char* good : {"state = alive", "state != 'dead'", "state ~ al", "state = none"})
    EXPECT_EQ(problem(good), "") << good;
}

TEST(Where, LongAndDeepFiltersAreRefused) {
  EXPECT_EQ(problem("state = " + std::string(1016, 'x')), "");
  EXPECT_NE(problem("state = " + std::string(1017, 'x')).find("1024 are the most"),
            std::string::npos);
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '(') + "pid = 1" + std::string(depth, ')');
  };
  EXPECT_EQ(problem(nested(Where::kMaxDepth)), "");
  EXPECT_NE(problem(nested(Where::kMaxDepth + 1)).find("nests deeper than 32"), std::string::npos);
  EXPECT_NE(problem(std::string(1000, '(')).find("nests deeper"), std::string::npos);
  std::string inverse;
  for (std::size_t i = 0; i <= Where::kMaxDepth; ++i) inverse += "not ";
  EXPECT_NE(problem(inverse + "pid = 1").find("nests deeper"), std::string::npos);
  std::string chain = "pid = 1";
  while (chain.size() + 10 <= Where::kMaxBytes) chain += " or pid=1";
  EXPECT_TRUE(finds(chain, {{"pid", 1.0}})) << "a long chain is not deep";
}

TEST(Where, AnErrorRepeatsNoControlCharacter) {
  EXPECT_EQ(problem("'\x1b[2J' = 1").find('\x1b'), std::string::npos);
  EXPECT_LT(problem("'" + std::string(900, 'x') + "' = 1").size(), 200u);
}

TEST(Where, RandomTextsAreReadOrRefused) {
  const char* const kPieces[] = {"state", "since", "lr",   "pid",  "=",    "!=",   "<",
                                 ">=",    "~",     "(",    ")",    "and",  "or",   "not",
                                 "'",     "\"",    "10s",  "5",    "1e-3", "2GiB", "x",
                                 "!",     "\\",    "\xff", "none", "nan",  "=="};
  Random random(37);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string filter;
    for (std::uint64_t n = random.below(14); n > 0; --n) {
      filter += kPieces[random.below(std::size(kPieces))];
      if (random.chance(0.8)) filter += ' ';
    }
    if (random.chance(0.1) && !filter.empty())
      filter[random.below(filter.size())] = static_cast<char>(random());
    const auto where = Where::parse(filter, kFields);
    if (where) {
      ++accepted;
      where->matches([&](std::size_t field) { return value_of(kMix, field); });
    } else {
      ASSERT_LT(where.error().message().size(), 400u) << filter;
    }
  }
  EXPECT_GT(accepted, 300);
}

/// A random filter with what it says about each row, computed without Where.
struct Planted {
  std::string text;
  std::vector<bool> holds;
};
Planted plant(Random& random, const std::vector<Values>& rows, int depth) {
  Planted planted;
  if (depth == 0 || random.chance(0.3)) {
    const double limit = static_cast<double>(random.below(6));
    const char* const op = random.chance(0.5) ? " < " : " != ";
    planted.text = "pid" + std::string(op) + std::to_string(static_cast<int>(limit));
    for (const Values& row : rows) {
      const auto at = row.find("pid");
      const bool there = at != row.end();
      const double pid = there ? std::get<double>(at->second) : 0;
      planted.holds.push_back(op[1] == '<' ? there && pid < limit : !there || pid != limit);
    }
    return planted;
  }
  const Planted a = plant(random, rows, depth - 1);
  if (random.chance(0.3)) {
    planted.text = "not (" + a.text + ")";
    for (const bool holds : a.holds) planted.holds.push_back(!holds);
    return planted;
  }
  const Planted b = plant(random, rows, depth - 1);
  const bool both = random.chance(0.5);
  planted.text = "(" + a.text + ")" + (both ? " and " : " or ") + "(" + b.text + ")";
  for (std::size_t i = 0; i < rows.size(); ++i)
    planted.holds.push_back(both ? a.holds[i] && b.holds[i] : a.holds[i] || b.holds[i]);
  return planted;
}

TEST(Where, RandomFiltersFindExactlyTheRowsThatTheyMean) {
  std::vector<Values> rows(1);
  for (int i = 0; i < 6; ++i) rows.push_back({{"pid", static_cast<double>(i)}});
  Random random(5);
  for (int i = 0; i < 2000; ++i) {
    const Planted planted = plant(random, rows, 4);
    if (planted.text.size() > Where::kMaxBytes) continue;
    for (std::size_t row = 0; row < rows.size(); ++row)
      ASSERT_EQ(finds(planted.text, rows[row]), planted.holds[row]) << planted.text;
  }
}

TEST(Where, TellsTheTextThatAllRowsHave) {
  const auto told = [](const char* filter) {
    const Where where = Where::parse(filter, kFields).value();
    return std::string(where.text_of_all(0).value_or("any"));
  };
  EXPECT_EQ(told(""), "any");
  EXPECT_EQ(told("state = running"), "running");
  EXPECT_EQ(told("since > 10s and (function ~ mix and state = running)"), "running");
  EXPECT_EQ(told("state = 'a b' and (pid = 1 or pid = 2)"), "a b");
  EXPECT_EQ(told("(not pid = 1) and state = running"), "running");
  for (const char* filter :
       {"state = running or pid = 1", "not state = running", "state != running", "state ~ run",
        "state > running", "state = none", "function = running", "pid = 3"})
    EXPECT_EQ(told(filter), "any") << filter;
}

TEST(SortBy, ReadsFieldAndDirection) {
  const auto descending = [](const char* text) {
    return SortBy::parse(text, kFields)->descending();
  };
  EXPECT_TRUE(descending("since"));
  EXPECT_TRUE(descending("bytes"));
  EXPECT_FALSE(descending("since:asc"));
  EXPECT_FALSE(descending("state"));
  EXPECT_TRUE(descending("state:desc"));
  for (const char* bad : {"", "sinc", "since:up", "sinc:asc", ":asc", "since:"}) {
    const auto sort = SortBy::parse(bad, kFields);
    ASSERT_FALSE(sort.ok()) << bad;
    EXPECT_EQ(sort.error().message().substr(0, 9), "the order") << bad;
  }
}

TEST(SortBy, IsATotalOrderWithMissingValuesLast) {
  for (const char* text : {"lr:asc", "lr:desc"}) {
    const SortBy sort = SortBy::parse(text, kFields).value();
    const std::vector<FieldValue> up{-1.0, 2.0, std::string_view("a"), std::string_view("b2"),
                                     std::string_view("b10")};
    std::vector<FieldValue> ordered = up;
    if (sort.descending()) ordered.assign(up.rbegin(), up.rend());
    ordered.emplace_back(std::nan(""));
    ordered.emplace_back();
    for (std::size_t i = 0; i < ordered.size(); ++i)
      for (std::size_t j = 0; j < ordered.size(); ++j) {
        const int order = sort.compare(ordered[i], ordered[j]);
        EXPECT_EQ(order < 0, i < j) << text << i << j;
        EXPECT_EQ(order == 0, i == j) << text << i << j;
      }
  }
}

TEST(SortBy, NumbersInTextsCount) {
  EXPECT_LT(compare_naturally("node-2", "node-10"), 0);
  EXPECT_GT(compare_naturally("node-10a", "node-10"), 0);
  EXPECT_NE(compare_naturally("a01", "a1"), 0);
  EXPECT_LT(compare_naturally("a01", "a2"), 0);
  EXPECT_EQ(compare_naturally("x9", "x9"), 0);
  EXPECT_LT(compare_naturally("99999999999999999999998", "99999999999999999999999"), 0);
  Random random(3);
  std::vector<std::string> texts;
  for (int i = 0; i < 60; ++i) {
    std::string& text = texts.emplace_back();
    for (std::uint64_t n = random.below(5); n > 0; --n) text += "01a9-"[random.below(5)];
  }
  for (const auto& a : texts)
    for (const auto& b : texts) {
      ASSERT_EQ(compare_naturally(a, b), -compare_naturally(b, a));
      for (const auto& c : texts) {
        const bool chain = compare_naturally(a, b) < 0 && compare_naturally(b, c) < 0;
        ASSERT_TRUE(!chain || compare_naturally(a, c) < 0) << a << " " << b << " " << c;
      }
    }
}

}  // namespace
}  // namespace where_test
}  // namespace troupe
