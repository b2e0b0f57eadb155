// Tests TaskReport: it tells of each task that lives throughout a walk once, in small pieces of work,
// while tasks come and go.
#include "troupe/runtime/client/task_report.hpp"

#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/observe/wait_graph.hpp"

#include <gtest/gtest.h>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace troupe::client::task_report_test {
namespace {

using namespace std::chrono_literals;
using observe::Answer;
using observe::RowKind;

struct Agent final : TaskManager::Out, ActorCalls::Out, TaskReport::Out {
  bool send(ProcessIndex, Task& task) override { return task.sequence = ++sequence, true; }
  void request_lease(LeaseKey, std::uint32_t) override {}
  void return_lease(LeaseId) override {}
  void recall(ProcessIndex) override {}
  void fail(Task&, const Error&) override {}
  bool send(ProcessIndex, ActorCall&) override { return false; }
  void watch(ActorId) override {}
  void fail(ActorCall&, const Error&) override {}

  void give(const wire::GiveRows& message, BlobView piece) override {
    if (!message.why.empty()) refused = message.why;
    EXPECT_EQ(message.offset, bytes.size());
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    whole = message.bytes;
    has_given = true;
  }
  bool has_room() override { return !full; }
  Begun has_begun(ProcessIndex, const Task&) override { return Begun::unknown; }
  void each_awaited(const std::function<bool(const detail::ObjectHandle&)>& look_at) override {
    for (const detail::ObjectHandle& object : awaited) {
      ++looked_at;
      if (!look_at(object)) return;
    }
  }
  std::vector<detail::ObjectHandle> awaited;
  std::size_t looked_at = 0;
  void each_own(
      const std::function<void(const Entry&, const std::string& site)>& look_at) override {
    if (objects != nullptr)
      objects->each_own(2, [&](const Entry& entry) { look_at(entry, "train.cpp:12"); });
  }
  ObjectTable* objects = nullptr;
  std::uint64_t sequence = 0, whole = 0;
  Blob bytes;
  std::string refused;
  bool full = false, has_given = false;
};

struct Report : testing::Test {
  Agent agent;
  ObjectTable objects{77};
  TaskManager tasks{agent};
  ActorCalls calls{agent};
  WaitingThreads threads;
  TaskReport report{agent, JobId{1, 2}, tasks, calls, threads, 0};
  detail::Callable function{.name = "mix(int)"};
  std::vector<Task*> live;
  Time now = Time{} + 100s;

  Task* submit(std::uint16_t waiting = 0) {
    std::unique_ptr<Task> task(new Task);
    task->call.callable = &function;
    task->waiting = waiting;
    task->results.push_back(objects.create());
    Task* at = task.get();
    tasks.submit(std::move(task), now);
    live.push_back(at);
    return at;
  }
  std::string id(const Task& task) const { return entry_of(task.results.front()).id.str(); }
  void ask(RowKind kind, const std::string& where = {}, std::uint32_t limit = 1000) {
    wire::AskRows question;
    question.request = 3;
    question.rows.kind = static_cast<std::uint8_t>(kind);
    question.rows.where = where;
    question.rows.limit = limit;
    observe::Surroundings around;
    around.self = "node-0/17";
    around.workers[ProcessIndex::of(9)] = {"node-0/18", false, true};
    around.whys[LeaseKey{}] = "all CPUs are in use";
    report.ask(question, observe::encode(around));
  }
  Answer answer() {
    while (report.step(now) != Time::max()) {
    }
    EXPECT_EQ(agent.bytes.size(), agent.whole);
    auto read = observe::decode_answer(std::exchange(agent.bytes, {}));
    EXPECT_TRUE(read);
    return read ? *read : Answer();
  }
  static std::string text(const observe::Row& row, const char* field) {
    const auto* words =
        std::get_if<std::string>(&row.cells[observe::column_of(RowKind::tasks, field)]);
    return words == nullptr ? "" : *words;
  }
};

TEST_F(Report, TellsOfEachTaskWhereItIs) {
  tasks.granted({}, LeaseId::of(1), ProcessIndex::of(9), now);
  Task* running = submit();
  Task* ready = submit();
  Task* waits = submit(1);
  now += 2s;
  ask(RowKind::tasks);
  const Answer told = answer();
  ASSERT_EQ(told.rows.size(), 3U);
  std::map<std::string, observe::Row> rows;
  for (const auto& row : told.rows) rows[row.id] = row;
  EXPECT_EQ(text(rows.at(id(*running)), "state"), "running");
  EXPECT_EQ(text(rows.at(id(*running)), "worker"), "node-0/18");
  EXPECT_EQ(text(rows.at(id(*ready)), "state"), "waits_for_resources");
  EXPECT_EQ(text(rows.at(id(*ready)), "why"), "all CPUs are in use");
  EXPECT_EQ(text(rows.at(id(*waits)), "state"), "waits_for_arguments");
  for (const auto& [id, row] : rows) {
    EXPECT_EQ(text(row, "function"), "mix(int)");
    EXPECT_EQ(text(row, "caller"), "node-0/17");
    EXPECT_EQ(text(row, "job"), (JobId{1, 2}.str()));
    EXPECT_EQ(row.cells[observe::column_of(RowKind::tasks, "since")],
              observe::Cell(std::int64_t{2'000'000'000}));
  }
  ask(RowKind::tasks, "state = running");
  const Answer few = answer();
  EXPECT_EQ(few.total, 3U);
  EXPECT_EQ(few.matched, 1U);
}

TEST_F(Report, FiltersByStateCountTheOthersToo) {
  tasks.granted({}, LeaseId::of(1), ProcessIndex::of(9), now);
  submit();
  for (int i = 0; i < 3; ++i) submit();
  for (int i = 0; i < 2; ++i) submit(1);
  const auto matched = [&](const std::string& where) {
    ask(RowKind::tasks, where);
    const Answer told = answer();
    EXPECT_EQ(told.total, 6U) << where;
    EXPECT_EQ(told.rows.size(), told.matched) << where;
    return told.matched;
  };
  EXPECT_EQ(matched("state = running"), 1U);
  EXPECT_EQ(matched("state = waits_for_resources and function ~ mix"), 3U);
  EXPECT_EQ(matched("state = waits_for_resources and function ~ other"), 0U);
  EXPECT_EQ(matched("state = running or state = waits_for_arguments"), 3U);
  EXPECT_EQ(matched("not state = running"), 5U);
  EXPECT_EQ(matched("state = at_worker"), 0U);
}

TEST_F(Report, CountsFunctionsAndReasons) {
  tasks.granted({}, LeaseId::of(1), ProcessIndex::of(9), now);
  for (int i = 0; i < 5; ++i) submit();
  for (int i = 0; i < 3; ++i) submit(1);
  ask(RowKind::functions);
  Answer told = answer();
  ASSERT_EQ(told.rows.size(), 1U);
  EXPECT_EQ(told.rows[0].cells[observe::column_of(RowKind::functions, "waiting")],
            observe::Cell(std::int64_t{7}));
  EXPECT_EQ(told.rows[0].cells[observe::column_of(RowKind::functions, "running")],
            observe::Cell(std::int64_t{1}));
  ask(RowKind::reasons);
  told = answer();
  ASSERT_EQ(told.rows.size(), 2U);
  std::map<std::string, observe::Cell> tasks_of;
  for (const auto& row : told.rows)
    tasks_of[row.id] = row.cells[observe::column_of(RowKind::reasons, "tasks")];
  EXPECT_EQ(tasks_of.at("all CPUs are in use"), observe::Cell(std::int64_t{4}));
  EXPECT_EQ(tasks_of.at("waits for an argument"), observe::Cell(std::int64_t{3}));
}

TEST_F(Report, TasksThatEndDuringAWalkAreNoHarmAndTheOthersAreAllThere) {
  constexpr std::size_t kTasks = 5000;
  for (std::size_t i = 0; i < kTasks; ++i) submit(1);
  std::set<std::string> stays;
  for (std::size_t i = 0; i < kTasks; ++i)
    if (i % 3 != 0) stays.insert(id(*live[i]));
  ask(RowKind::tasks, {}, 1000);
  std::size_t gone = 0, steps = 0;
  const Error error(Code::object_lost, "lost");
  while (report.step(now) == now) {  // a third of them fail, between the steps
    ++steps;
    for (std::size_t i = 0; i < kTasks / 8 && gone < kTasks; ++i, ++gone)
      if (gone % 3 == 0) tasks.argument_failed(*live[gone], error);
    submit(1);
  }
  EXPECT_GE(steps, kTasks / TaskReport::kTasksOfStep);
  const auto told = observe::decode_answer(std::exchange(agent.bytes, {}));
  ASSERT_TRUE(told);
  EXPECT_GE(told->total, stays.size());
  EXPECT_LE(told->total, kTasks);
  EXPECT_EQ(told->rows.size(), 1000U);
  std::set<std::string> ids;
  for (const auto& row : told->rows) EXPECT_TRUE(ids.insert(row.id).second) << row.id;
}

TEST_F(Report, WaitsUntilTheAgentHasRoomAndRefusesTooManyQuestions) {
  submit(1);
  agent.full = true;
  ask(RowKind::tasks);
  EXPECT_EQ(report.step(now), now + 1ms);
  EXPECT_FALSE(agent.has_given);
  agent.full = false;
  EXPECT_EQ(report.step(now), Time::max());
  EXPECT_TRUE(agent.has_given);
  agent.bytes.clear();
  for (std::size_t i = 0; i <= TaskReport::kMostQuestions; ++i) ask(RowKind::tasks);
  EXPECT_NE(agent.refused.find("too many"), std::string::npos);
}

TEST_F(Report, RefusesQuestionsThatDoNotParse) {
  ask(RowKind::tasks, "state =");
  EXPECT_FALSE(agent.refused.empty());
  agent.refused.clear();
  wire::AskRows question;
  question.rows.kind = 200;
  question.rows.limit = 1;
  report.ask(question, {});
  EXPECT_FALSE(agent.refused.empty());
}

TEST_F(Report, CallsThatHaveNotEndedAreCountedByActor) {
  const ActorId busy{3, 1}, idle{3, 2};
  for (const ActorId actor : {busy, busy, idle, busy}) {
    auto call = std::make_unique<ActorCall>();
    call->actor = actor;
    call->call.callable = &function;
    calls.submit(std::move(call));
  }
  submit();
  ask(RowKind::queues);
  const Answer told = answer();
  ASSERT_EQ(told.rows.size(), 2U) << "a task is no call";
  for (const auto& row : told.rows)
    EXPECT_EQ(row.cells[observe::column_of(RowKind::queues, "calls")],
              observe::Cell(std::int64_t{row.id == busy.str() ? 3 : 1}));
}

TEST_F(Report, ObjectsThatThisProcessAloneKnowsHaveTheLineThatMadeThem) {
  std::vector<detail::ObjectHandle> own;
  for (std::uint64_t bytes = 1; bytes <= 3; ++bytes) {
    own.push_back(objects.create());
    entry_of(own.back()).location.edit().length = bytes << 20;
    objects.add_own(entry_of(own.back()));
  }
  agent.objects = &objects;
  ask(RowKind::objects, "site ~ train.cpp and bytes > 1500000");
  const Answer told = answer();
  EXPECT_EQ(told.total, 2U) << "the bound of a walk";
  ASSERT_EQ(told.rows.size(), 1U);
  EXPECT_EQ(told.rows[0].id, entry_of(own[1]).id.str());
  EXPECT_EQ(told.rows[0].cells[observe::column_of(RowKind::objects, "maker")],
            observe::Cell(std::string("node-0/17")));
  for (const auto& object : own) objects.remove_own(entry_of(object));
}

TEST_F(Report, AStepLooksAtABoundedNumberOfThreadsAndOfWhatTheyAwait) {
  Task* task = submit(1);
  const auto threads_told = [&](std::span<const detail::ObjectHandle> awaited) {
    std::deque<WaitingThreads::Here> many;
    for (std::size_t i = 0; i < 2 * TaskReport::kThreadsOfStep; ++i)
      many.emplace_back(threads, awaited, 1);
    ask(RowKind::waits, "thing = thread");
    const std::size_t told = answer().matched;
    while (!many.empty()) many.pop_back();
    return told;
  };
  EXPECT_EQ(threads_told(task->results), TaskReport::kThreadsOfStep);
  std::vector<detail::ObjectHandle> ready;
  for (std::size_t i = 0; i < 2 * TaskReport::kObjectsOfThread; ++i) {
    ready.push_back(objects.create());
    entry_of(ready.back()).ready = true;
  }
  EXPECT_EQ(threads_told(ready), TaskReport::kObjectsOfStep / TaskReport::kObjectsOfThread);
  agent.awaited.assign(1000, task->results.front());
  ask(RowKind::waits, "thing = thread");
  EXPECT_EQ(answer().matched, 1U) << "the coroutines together";
  EXPECT_LE(agent.looked_at, observe::WaitGraph::kMaxFollowed);
}

TEST_F(Report, AThreadThatWaitsIsAFact) {
  Task* task = submit(1);
  const WaitingThreads::Here here(threads, {&task->results.front(), 1}, 1);
  ask(RowKind::waits, "thing = thread");
  const Answer told = answer();
  ASSERT_EQ(told.rows.size(), 1U);
  EXPECT_EQ(told.rows[0].cells[observe::column_of(RowKind::waits, "waits_for")],
            observe::Cell("object\t" + id(*task) + "\tnode-0/17"));
}

}  // namespace
}  // namespace troupe::client::task_report_test
