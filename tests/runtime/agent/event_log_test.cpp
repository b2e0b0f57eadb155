// Tests what an agent keeps of what has happened, and what becomes an event at all.
#include "troupe/runtime/agent/event_log.hpp"

#include "tests/runtime/agent/faulty_files.hpp"
#include "troupe/runtime/agent/cluster_news.hpp"
#include "troupe/runtime/agent/node_events.hpp"
#include "troupe/runtime/base/json.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;

const std::string kHostile = std::string("\x1b]0;x\x07\xe2\x80\xae", 9) + '\0' + "\n\x9b rest";

std::size_t count_of(const EventLog& log, EventKind kind) {
  std::size_t count = 0;
  log.each([&](const Event& event) { count += event.kind == kind ? 1U : 0U; });
  return count;
}

TEST(EventLog, AFloodOfOneKindKeepsTheOthers) {
  EventLog log({.events = 100, .bytes = 1 << 20});
  log.add({EventKind::node_dead, Severity::error, "node-1 is dead"}, 1);
  for (int i = 0; i < 10'000; ++i) log.add({EventKind::worker_died, Severity::error, "x"}, 2 + i);
  EXPECT_EQ(log.size(), 100U);
  EXPECT_EQ(count_of(log, EventKind::node_dead), 1U);
  std::uint64_t last = 0;
  log.each([&](const Event& event) {
    if (event.kind != EventKind::worker_died) return;
    EXPECT_TRUE(last == 0 || event.number == last + 1);
    last = event.number;
  });
  EXPECT_EQ(last, 10'001U) << "the newest stay";
}

TEST(EventLog, LongAndHostileTextsAreBounded) {
  EventLog log({.events = 4096, .bytes = 64 << 10});
  for (int i = 0; i < 100; ++i) {
    Event event{EventKind::worker_died, Severity::error, kHostile + std::string(1 << 20, 'a')};
    event.stack.assign(1 << 20, 's');
    event.last_lines = std::string(1 << 20, 'l') + "the end";
    const Event& kept = log.add(std::move(event), 1);
    EXPECT_LE(kept.text.size(), EventLog::kMaxText);
    for (const char bad : {'\x1b', '\x07', '\0', '\n'})
      EXPECT_EQ(kept.text.find(bad), std::string::npos);
    EXPECT_EQ(kept.text.find("\xe2\x80\xae"), std::string::npos);
    EXPECT_TRUE(kept.last_lines.ends_with("the end"));
    EXPECT_LE(log.bytes(), 64U << 10);
  }
  EXPECT_GE(log.size(), 2U);
}

TEST(EventLog, AnEventAboveAllLimitsStaysAlone) {
  EventLog log({.events = 1, .bytes = 1});
  for (int i = 0; i < 3; ++i) log.add({EventKind::spilling, Severity::warning, "x"}, i);
  EXPECT_EQ(log.size(), 1U);
  log.each([](const Event& event) { EXPECT_EQ(event.number, 3U); });
}

TEST(EventLog, ALineOfTheFileIsOneLineOfJson) {
  EventLog log({});
  Event event{EventKind::worker_died, Severity::error, "it died"};
  event.pid = 12;
  event.last_lines = kHostile + "\nmore";
  const std::string line = line_of(log.add(std::move(event), 77), "node-0");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = Json::parse(line);
  ASSERT_TRUE(json) << line;
  EXPECT_EQ(json->find("time_unix_ns")->dump(), "77");
  EXPECT_EQ(json->find("kind")->dump(), "\"worker_died\"");
  EXPECT_EQ(json->find("severity")->dump(), "\"error\"");
  EXPECT_EQ(json->find("pid")->dump(), "12");
  EXPECT_EQ(json->find("job"), nullptr);
}

TEST(EventLog, EachKindHasAName) {
  std::set<std::string_view> names;
  for (std::size_t kind = 0; kind < kEventKinds; ++kind)
    EXPECT_TRUE(names.insert(name_of(static_cast<EventKind>(kind))).second);
  EXPECT_EQ(names.count("?"), 0U);
}

// --- ClusterNews

control::ClusterRow news_row(std::uint64_t n, bool suspect = false, bool draining = false) {
  control::ClusterRow row;
  row.description.id = NodeId{1, n};
  row.description.name = "node-" + std::to_string(n);
  row.description.address = "tcp://127.0.0.1:7";
  row.suspect = suspect;
  row.draining = draining;
  row.epoch = n + 1;
  return row;
}

std::vector<EventKind> kinds_of(const std::vector<Event>& events) {
  std::vector<EventKind> kinds;
  for (const Event& event : events) kinds.push_back(event.kind);
  return kinds;
}
using Kinds = std::vector<EventKind>;

TEST(ClusterNews, TellsEachChangeOfANodeOnce) {
  ClusterNews news({1, 0});
  const Time now = Time{} + 100s;
  EXPECT_FALSE(news.registered(7, now - 20s)) << "the first control is no news";
  EXPECT_EQ(kinds_of(news.nodes({news_row(0), news_row(1)}, now)),
            (Kinds{EventKind::node_joined, EventKind::node_joined}));
  EXPECT_TRUE(news.nodes({news_row(0), news_row(1)}, now).empty());
  EXPECT_EQ(kinds_of(news.nodes({news_row(0), news_row(1, true, true)}, now)),
            (Kinds{EventKind::node_draining, EventKind::node_silent}));
  EXPECT_TRUE(news.nodes({news_row(0), news_row(1, true, true)}, now).empty());
  EXPECT_EQ(kinds_of(news.nodes({news_row(0), news_row(1, false, true)}, now)),
            (Kinds{EventKind::node_heard}));
  const Event dead = news.node_dead({1, 1}, "its process is gone").value();
  EXPECT_EQ(dead.kind, EventKind::node_dead);
  EXPECT_EQ(dead.severity, Severity::error);
  EXPECT_EQ(dead.text, "node-1 is dead: its process is gone");
  (void)news.nodes({news_row(2)}, now);
  const Event left = news.node_dead({1, 2}, control::kHasLeft).value();
  EXPECT_EQ(left.kind, EventKind::node_left);
  EXPECT_EQ(left.severity, Severity::info);
  EXPECT_EQ(news.node_dead({0xabcdef12'00000000, 5}, "x").value().text, "node abcdef12 is dead: x");
}

TEST(ClusterNews, ANewControlIsNewsAndItsUnregisteredNodesAreNot) {
  ClusterNews news({1, 0});
  Time now = Time{} + 100s;
  EXPECT_FALSE(news.registered(7, now));
  now += 10s;
  (void)news.nodes({news_row(0), news_row(1)}, now);
  const auto started = news.registered(8, now);
  ASSERT_TRUE(started);
  EXPECT_EQ(started->kind, EventKind::control_started);
  EXPECT_FALSE(news.registered(8, now)) << "this node has registered again";
  EXPECT_TRUE(news.nodes({news_row(1, true)}, now + 1s).empty()) << "not registered yet";
  EXPECT_TRUE(news.nodes({news_row(1)}, now + 2s).empty());
  EXPECT_EQ(kinds_of(news.nodes({news_row(1, true)}, now + 6s)), Kinds{EventKind::node_silent});
}

TEST(ClusterNews, OneAgentTellsAndTheNextOneWhenItIsDead) {
  ClusterNews first({1, 0}), next({1, 4}), far({1, 5});
  const Time now = Time{} + 100s;
  std::vector<control::ClusterRow> rows{news_row(0), news_row(4), news_row(5)};
  EXPECT_EQ(first.nodes(rows, now).size(), 3U);
  EXPECT_TRUE(next.nodes(rows, now).empty());
  EXPECT_TRUE(far.nodes(rows, now).empty());
  const control::JobEnded ended{JobId{2, 1}, control::JobState::finished, ""};
  EXPECT_TRUE(first.job_ended(ended));
  EXPECT_FALSE(next.job_ended(ended));
  EXPECT_TRUE(next.node_dead({1, 0}, "gone")) << "the death of the one that told";
  EXPECT_FALSE(far.node_dead({1, 0}, "gone"));
  EXPECT_FALSE(next.job_ended(ended)) << "it was told";
  EXPECT_EQ(kinds_of(next.nodes({rows[1], rows[2], news_row(7)}, now)),
            Kinds{EventKind::node_joined});
}

TEST(ClusterNews, TheEndOfAJobIsToldOnce) {
  ClusterNews news({1, 0});
  (void)news.nodes({news_row(0)}, Time{});
  const auto end = [&](std::uint64_t n, control::JobState state) {
    return news.job_ended({JobId{2, n}, state, "it crashed"});
  };
  const auto failed = end(1, control::JobState::failed);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->severity, Severity::error);
  EXPECT_EQ(failed->job, (JobId{2, 1}));
  EXPECT_NE(failed->text.find("it crashed"), std::string::npos);
  EXPECT_FALSE(end(1, control::JobState::failed));
  EXPECT_EQ(end(2, control::JobState::finished)->severity, Severity::info);
  for (std::uint64_t n = 3; n < 2 * ClusterNews::kMostEnded; ++n)
    EXPECT_TRUE(end(n, control::JobState::finished));
  EXPECT_TRUE(end(1, control::JobState::failed)) << "what is remembered is bounded";
}

TEST(SpillNews, TellsTheBeginningAndEachDoubling) {
  SpillNews news;
  EXPECT_TRUE(news.look({}).empty());
  EXPECT_EQ(news.look({3, 3 << 20, 0}).size(), 1U);
  EXPECT_TRUE(news.look({5, 5 << 20, 0}).empty());
  EXPECT_EQ(news.look({6, 6 << 20, 0}).size(), 1U);
  EXPECT_TRUE(news.look({}).empty());
  EXPECT_EQ(kinds_of(news.look({1, 1 << 20, 2})),
            (Kinds{EventKind::spilling, EventKind::disk_failed}));
  EXPECT_TRUE(news.look({1, 1 << 20, 2}).empty());
  EXPECT_EQ(kinds_of(news.look({1, 1 << 20, 2, 1})), Kinds{EventKind::disk_failed});
  EXPECT_TRUE(news.look({1, 1 << 20, 2, 9}).empty());
}

// --- NodeEvents

observe::Answer events_of(const NodeEvents& events, const std::string& where,
                          std::uint32_t limit = 100) {
  const auto query = observe::Query::parse({.kind = observe::RowKind::events,
                                            .where = where,
                                            .sort = "time:desc",
                                            .limit = limit,
                                            .after = {}});
  observe::Selection selection(query.value());
  events.offer(*query, selection);
  return selection.take();
}

TEST(NodeEvents, ADeathThatNobodyWantedIsAFailure) {
  NodeEvents events("node-0", NodeId{0x1234567890abcdef, 1});
  WorkerEnd end;
  end.reason = "killed by signal 11 (Segmentation fault), process 12 of node-0";
  end.function = "mix(int)";
  end.pid = 12;
  end.job = JobId{3, 3};
  end.stack = "    #0 mix";
  end.expected = true;
  events.worker_gone(end);
  EXPECT_EQ(events.log().size(), 0U);
  end.expected = false;
  events.worker_gone(end);
  const auto found = events_of(events, "severity = error and since < 10m and kind = worker_died");
  ASSERT_EQ(found.matched, 1U);
  const observe::Row& row = found.rows.at(0);
  EXPECT_EQ(row.id, "12345678-1");
  EXPECT_FALSE(observe::problem_of(observe::RowKind::events, row));
  const auto text =
      std::get<std::string>(row.cells[observe::column_of(observe::RowKind::events, "text")]);
  EXPECT_EQ(text,
            "a worker died, it ran mix(int): killed by signal 11 (Segmentation fault), "
            "process 12 of node-0");
  EXPECT_EQ(events_of(events, "pid = 12 and stack ~ mix and node = node-0").matched, 1U);
}

TEST(NodeEvents, NodesJobsAndNoticesAreRows) {
  NodeEvents far("node-1", NodeId{1, 2}), beside("node-0", NodeId{1, 1});
  for (NodeEvents* one : {&far, &beside}) {
    one->nodes({news_row(1), news_row(2), news_row(5)});
    one->node_dead({1, 5}, "gone");
    one->job_ended({JobId{2, 1}, control::JobState::finished, ""});
    one->heard({control::Notice::Kind::slow_node, "node node-5 is slow"});
  }
  EXPECT_EQ(events_of(far, "").total, 1U);
  EXPECT_EQ(events_of(beside, "").total, 6U);
  EXPECT_EQ(events_of(beside, "kind = node_slow").matched, 1U);
  EXPECT_EQ(events_of(beside, "", 2).rows.size(), 2U);
}

TEST(NodeEvents, ADiskThatHangsHoldsNothingUp) {
  auto faults = std::make_shared<Faults>();
  {
    NodeEvents events("node-0", NodeId{1, 1});
    events.keep_in(std::make_unique<FaultyFiles>(faults));
    faults->set(false, true);
    for (int i = 0; i < 5'000; ++i) {
      Event event{EventKind::worker_died, Severity::error, "event " + std::to_string(i)};
      event.last_lines.assign(4'000, 'x');
      events.note(std::move(event));  // more than the writer has room for
    }
    EXPECT_GT(events.log().size(), 1'000U);
    faults->set(false, false);
  }
  const std::string text = faults->text_of("events");
  EXPECT_FALSE(text.empty()) << "what waited is written when the disk goes on";
  EXPECT_LE(text.size(), 4U << 20) << "the file is bounded";
}

}  // namespace
}  // namespace troupe::agent
