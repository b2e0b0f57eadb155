// Tests how `status` and `top` sum up what went wrong.
#include "troupe/runtime/cli/failures.hpp"

#include <gtest/gtest.h>

#include <string>

namespace troupe::cli {
namespace {

constexpr auto kEvents = observe::RowKind::events;

void add_event(observe::Answer& events, const std::string& kind, const std::string& text) {
  observe::Row row = observe::make_row(kEvents, std::to_string(events.rows.size()));
  row.cells[observe::column_of(kEvents, "kind")] = kind;
  row.cells[observe::column_of(kEvents, "text")] = text;
  events.rows.push_back(row);
}

TEST(Failures, AreCountedByFunctionTheMostFrequentFirst) {
  observe::Answer events;  // the newest first
  add_event(events, "worker_died",
            "a worker died, it ran my::mix(my::Grid, int): killed by signal 9");
  add_event(events, "disk_failed", "a folder is full: no space");
  add_event(events, "worker_died", "a worker died, it ran my::mix(my::Grid, int): older news");
  add_event(events, "job_ended", "job 1: its driver died");
  add_event(events, "worker_died", "a worker died: it had not begun");
  EXPECT_EQ(failure_lines(events, 5),
            (std::vector<std::string>{"2 of mix(Grid, int), the last one: killed by signal 9",
                                      "1 of disk_failed: a folder is full: no space",
                                      "1 of worker_died: a worker died: it had not begun"}));
  EXPECT_EQ(failure_lines(events, 1).back(), "and 2 more: troupe events --since 10m");
  add_event(events, "worker_died", "a worker died, it ran \x1b]0;x: \x1b[2J");
  for (const std::string& line : failure_lines(events, 5))
    for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << line;
  add_event(events, "worker_died", "a worker died, it ran ");
  EXPECT_EQ(failure_lines(events, 9).size(), 4U) << "an empty name is as none";
}

TEST(Failures, OfJobsTheNewestComeFirst) {
  std::vector<control::JobRecord> jobs;
  for (int i = 0; i < 4; ++i) {
    control::JobRecord& job = jobs.emplace_back();
    job.id = JobId{std::uint64_t(i + 1) << 32, 1};
    job.name = "job" + std::to_string(i);
    job.why = "why";
    job.state = i == 3 ? control::JobState::finished : control::JobState::failed;
    job.ended_ns = 100 + i;
  }
  const auto all = failed_job_lines(jobs, 101, 5);
  ASSERT_EQ(all.size(), 2U) << "one ended before, and one ended well";
  EXPECT_NE(all[0].find("(job2): why"), std::string::npos) << all[0];
  EXPECT_NE(all[1].find("(job1): why"), std::string::npos) << all[1];
  EXPECT_EQ(failed_job_lines(jobs, 0, 1).back(), "and 2 more: troupe list jobs");
}

TEST(Failures, AtMostTenDeadNodesAreNamedTheNewestFirst) {
  std::vector<control::DeadNode> nodes(34);
  constexpr std::int64_t kSecond = 1'000'000'000;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].description.name = "node-" + std::to_string(i);
    nodes[i].died_unix_ns = static_cast<std::int64_t>(i) * kSecond;
    nodes[i].why = "killed";
  }
  nodes[33].left = true;
  const auto lines = dead_lines(nodes, 40 * kSecond);
  ASSERT_EQ(lines.size(), 11U);
  EXPECT_EQ(lines.front(), "node-32 died 8s ago: killed");
  EXPECT_EQ(lines.back(), "and 23 more: troupe list nodes");
}

}  // namespace
}  // namespace troupe::cli
