// Tests `troupe get` against an agent that the test plays: rows beyond the first page.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"
#include "tests/runtime/cli/played_agent.hpp"
#include "troupe/runtime/observe/answer_bytes.hpp"

namespace troupe::cli {
namespace {

constexpr int kProcesses = 2500;  // three pages

observe::Row process_row(const std::string& node, std::int64_t pid) {
  constexpr auto kKind = observe::RowKind::processes;
  observe::Row row = observe::make_row(kKind, node + "/" + std::to_string(pid));
  row.cells[observe::column_of(kKind, "kind")] = std::string("worker");
  row.cells[observe::column_of(kKind, "pid")] = pid;
  row.cells[observe::column_of(kKind, "node")] = node;
  return row;
}

Blob page_of(const std::vector<observe::Row>& rows, const wire::ListQuestion& asked) {
  const auto query = observe::Query::parse({.kind = observe::RowKind::processes,
                                            .where = asked.where,
                                            .sort = asked.sort,
                                            .limit = asked.limit,
                                            .after = asked.after});
  EXPECT_TRUE(query);
  if (!query) return {};
  observe::Selection selection(*query);
  for (const observe::Row& row : rows) selection.offer(row);
  return observe::encode(selection.take());
}

class Get : public testing::Test {
 protected:
  Get() {
    for (int i = 0; i < kProcesses; ++i) rows.push_back(process_row("worker-7", 10'000 + i));
    rows.push_back(process_row("worker-8", 10'001));
    agent.emplace(
        [this](const wire::Inquire& asked, BlobView) { return page_of(rows, asked.rows); });
  }
  Outcome get(const std::string& id) const {
    return troupe_command({"get", "process", id, "--address", agent->file(), "--json"});
  }
  std::vector<observe::Row> rows;
  std::optional<PlayedAgent> agent;
};

TEST_F(Get, FindsAProcessOfTheLastPageByItsPidAlone) {
  for (const char* id : {"12499", "worker-7/12499", "2499"}) {
    const Outcome got = get(id);
    ASSERT_EQ(got.code, 0) << id << ": " << got.err;
    json found = json::parse(got.out, nullptr, false);
    ASSERT_EQ(found["rows"].size(), 1u) << got.out;
    EXPECT_EQ(found["rows"][0]["pid"], 12'499);
    EXPECT_EQ(found["unanswered"], json::array());
  }
}

TEST_F(Get, NamesAllProcessesThatFit) {
  const Outcome two = get("10001");
  EXPECT_EQ(two.code, 2) << two.err;
  EXPECT_TRUE(says(two.err, "fits 2 processes (worker-7/10001, worker-8/10001)")) << two.err;
  const Outcome none = get("99");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(says(none.err, "'99' fits 25 processes")) << none.err;
  const Outcome gone = get("77777");
  EXPECT_EQ(gone.code, 2);
  EXPECT_TRUE(says(gone.err, "no id of the processes begins or ends with '77777'")) << gone.err;
}

}  // namespace
}  // namespace troupe::cli
