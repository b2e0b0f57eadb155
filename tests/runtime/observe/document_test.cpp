// Tests the document and the table of an answer, and that no name steers a terminal.
#include "troupe/runtime/observe/document.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "troupe/runtime/observe/missing.hpp"
#include "troupe/runtime/observe/table.hpp"

namespace troupe::observe {
namespace {

Answer two_tasks() {
  Answer answer;
  answer.total = 1000000;
  answer.matched = 40;
  for (const char* id : {"00000000000000000000000000000001", "00000000000000000000000000000002"}) {
    Row row = make_row(RowKind::tasks, id);
    row.cells[column_of(RowKind::tasks, "function")] = std::string("my::mix(my::Grid, int)");
    row.cells[column_of(RowKind::tasks, "state")] = std::string("running");
    row.cells[column_of(RowKind::tasks, "since")] = std::int64_t{90'000'000'000};
    answer.rows.push_back(row);
  }
  answer.unanswered.push_back({"node-1", 31, "no answer in 1 s"});
  return answer;
}

TEST(Document, HasTheFieldsThatPagesRead) {
  Json document = document_of(RowKind::tasks, two_tasks(), 1234);
  EXPECT_EQ(document.find("kind")->dump(), "\"tasks\"");
  EXPECT_EQ(document.find("at_unix_ns")->dump(), "1234");
  EXPECT_EQ(document.find("total")->dump(), "1000000");
  EXPECT_EQ(document.find("matched")->dump(), "40");
  EXPECT_EQ(document.find("shown")->dump(), "2");
  EXPECT_EQ(document.find("unanswered")->dump(),
            R"([{"node":"node-1","pid":31,"why":"no answer in 1 s"}])");
  const Json& row = document.find("rows")->as_array()->at(0);
  EXPECT_EQ(row.find("since_ns")->dump(), "90000000000");
  EXPECT_TRUE(row.find("why")->is_null());
  EXPECT_EQ(row.as_object()->size(), columns_of(RowKind::tasks).size());
  EXPECT_EQ(document.find("next"), nullptr);
}

TEST(Document, TheTableSaysWhatIsMissing) {
  Answer answer = two_tasks();
  answer.next = "5:0:61";
  EXPECT_EQ(text_of(RowKind::tasks, answer),
            "TASK      FUNCTION        STATE    SINCE\n"
            "00000001  mix(Grid, int)  running  1m 30s\n"
            "00000002  mix(Grid, int)  running  1m 30s\n"
            "2 of 40 that match; 1000000 tasks in all; --after 5:0:61 goes on\n");
  EXPECT_EQ(text_of(RowKind::jobs, {}), "JOB  NAME  STATE  USER  DRIVER ON  PID  SINCE  WHY\n");
}

TEST(Document, NoControlCharacterReachesATerminal) {
  const std::string bad = std::string("\x1b]0;x\x07\xe2\x80\xae", 9) + '\0' + "\n\x9b";
  Answer answer;
  for (const RowKind kind : kRowKinds) {
    answer.rows.clear();
    Row row = make_row(kind, bad);
    for (std::size_t i = 0; i < row.cells.size(); ++i)
      if (columns_of(kind)[i].kind == FieldKind::text)
        row.cells[i] = bad + std::string(1 << 17, 'x');
    answer.rows.push_back(row);
    answer.unanswered = {{bad, 1, bad}};
    std::string text = text_of(kind, answer);
    for (const std::string& line : Missing(answer).lines()) text += line + "\n";
    EXPECT_LT(text.size(), 10000u) << name_of(kind);
    for (const char c : text)
      EXPECT_TRUE(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
    EXPECT_EQ(text.find("\xe2\x80\xae"), std::string::npos);
    for (const char c : document_of(kind, answer, 0).dump()) EXPECT_GE(c & 0xff, 0x20);
  }
}

TEST(Document, NumbersOfOtherProcessesAreShownWhateverTheyAre) {
  for (const double odd : {-5.0, 1e300, -1e300, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    Answer answer;
    Row row = make_row(RowKind::processes, "p");
    for (std::size_t i = 0; i < row.cells.size(); ++i)
      if (columns_of(RowKind::processes)[i].kind != FieldKind::text) row.cells[i] = odd;
    answer.rows.push_back(row);
    EXPECT_FALSE(text_of(RowKind::processes, answer).empty());
  }
}

TEST(Table, CellsAlignByCharacters) {
  EXPECT_EQ(table_text({{"A", "B"}, {"Größe", "x"}, {"y", "z"}}),
            "A      B\n"
            "Größe  x\n"
            "y      z\n");
}

TEST(Table, AnIdIsMeantByItsBeginningOrEnd) {
  const std::vector<std::string> ids{"aa00000000000001", "aa00000000000002", "bb00000000000001"};
  EXPECT_EQ(id_meant("aa00000000000002", ids, "actors").value(), ids[1]);
  EXPECT_EQ(id_meant("bb", ids, "actors").value(), ids[2]);
  EXPECT_EQ(id_meant("0002", ids, "actors").value(), ids[1]);
  EXPECT_EQ(id_meant("aa", ids, "actors").error().message(),
            "'aa' fits 2 actors (aa00000000000001, aa00000000000002): write more digits");
  for (const char* none : {"", "cc", "0000000000000000aa"})
    EXPECT_NE(id_meant(none, ids, "jobs").error().message().find("'troupe list jobs' shows them"),
              std::string::npos);
  EXPECT_EQ(id_meant("\x1b", ids, "jobs").error().message().find('\x1b'), std::string::npos);
  EXPECT_EQ(id_meant("a", {"a", "ab"}, "jobs").value(), "a") << "a whole id before its longer ones";
  EXPECT_LT(id_meant("0", std::vector<std::string>(5000, "0" + std::string(500, 'x')), "jobs")
                .value()
                .size(),
            600u);
}

}  // namespace
}  // namespace troupe::observe
