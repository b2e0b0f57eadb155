// Tests that the answers of many sources together are the truth: filtered, sorted, cut, page by
// page, while rows come and go, and with sources that send nonsense.
#include "troupe/runtime/observe/answer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/observe/list_walk.hpp"

namespace troupe::observe {
namespace answer_test {
namespace {

struct Task {
  std::string id, state;
  double since = 0;
  Task* previous = nullptr;
  Task* next = nullptr;
};

Row row_of(const Task& task) {
  Row row = make_row(RowKind::tasks, task.id);
  row.cells[column_of(RowKind::tasks, "state")] = task.state;
  row.cells[column_of(RowKind::tasks, "since")] = static_cast<std::int64_t>(task.since);
  return row;
}
Query parsed(const Question& question) {
  auto query = Query::parse(question);
  EXPECT_TRUE(query.ok()) << (query ? "" : query.error().message());
  return query.value();
}
Answer source(const Query& query, const std::vector<Task>& tasks) {
  Selection selection(query);
  for (const Task& task : tasks) selection.offer(row_of(task));
  return selection.take();
}

/// Asks two nodes of two processes each, as agents and a verb do.
Answer ask(const Question& question, const std::vector<std::vector<Task>>& processes) {
  const Query query = parsed(question);
  Merge verb(query, Merge::Place::verb);
  for (std::size_t node = 0; node < processes.size(); node += 2) {
    Merge agent(query, Merge::Place::agent);
    for (std::size_t i = node; i < std::min(node + 2, processes.size()); ++i)
      agent.add(source(query, processes[i]));
    verb.add(agent.take(5));
  }
  return verb.take(5);
}
std::vector<std::string> ids_of(const Answer& answer) {
  std::vector<std::string> ids;
  for (const Row& row : answer.rows) ids.push_back(row.id);
  return ids;
}

std::vector<std::vector<Task>> random_tasks(Random& random, int each) {
  std::vector<std::vector<Task>> processes(4);
  int number = 0;
  for (auto& tasks : processes)
    for (int i = 0; i < each; ++i)
      tasks.push_back({"t" + std::to_string(++number), random.chance(0.4) ? "running" : "waiting",
                       static_cast<double>(random.below(8))});
  return processes;
}

TEST(Answer, MergedSourcesGiveTheRowsOfOneList) {
  Random random(1);
  for (int round = 0; round < 40; ++round) {
    const auto processes = random_tasks(random, 20);
    std::vector<Task> truth;
    for (const auto& tasks : processes)
      for (const Task& task : tasks)
        if (task.state == "running" && task.since >= 2) truth.push_back(task);
    std::sort(truth.begin(), truth.end(), [](const Task& a, const Task& b) {
      return a.since != b.since ? a.since > b.since : compare_naturally(a.id, b.id) < 0;
    });
    const Question question{
        .where = "state = running and since >= 2ns", .sort = "since", .limit = 9};
    const Answer answer = ask(question, processes);
    EXPECT_EQ(answer.total, 80u);
    EXPECT_EQ(answer.matched, truth.size());
    ASSERT_EQ(answer.rows.size(), std::min<std::size_t>(9, truth.size()));
    for (std::size_t i = 0; i < answer.rows.size(); ++i) EXPECT_EQ(answer.rows[i].id, truth[i].id);
    EXPECT_EQ(answer.next.empty(), truth.size() <= 9);
  }
}

TEST(Answer, TheFilterLooksBehindTheCut) {
  std::vector<std::vector<Task>> processes(1);
  for (int i = 0; i < 30000; ++i)
    processes[0].push_back({"t" + std::to_string(i), i >= 29960 ? "running" : "waiting"});
  const Answer answer = ask({.where = "state = running", .limit = 1000}, processes);
  EXPECT_EQ(answer.total, 30000u);
  EXPECT_EQ(answer.matched, 40u);
  EXPECT_EQ(answer.rows.size(), 40u);
}

TEST(Answer, PagesTogetherAreTheList) {
  Random random(2);
  for (const char* sort : {"", "since", "since:asc", "state", "state:desc", "name"}) {
    const auto processes = random_tasks(random, 15);
    const auto whole = ids_of(ask({.sort = sort, .limit = 1000}, processes));
    ASSERT_EQ(whole.size(), 60u);
    std::vector<std::string> paged;
    Question question{.sort = sort, .limit = 7};
    for (int pages = 0; pages < 20; ++pages) {
      const Answer answer = ask(question, processes);
      EXPECT_EQ(answer.matched, 60u) << "counts are those of all pages";
      for (const auto& id : ids_of(answer)) paged.push_back(id);
      question.after = answer.next;
      if (question.after.empty()) break;
    }
    EXPECT_EQ(paged, whole) << sort;
  }
}

TEST(Answer, PagesRepeatNoRowAndMissNoneThatLivedThroughout) {
  Random random(3);
  for (int round = 0; round < 30; ++round) {
    auto processes = random_tasks(random, 20);
    std::set<std::string> throughout, seen;
    for (const auto& tasks : processes)
      for (const Task& task : tasks) throughout.insert(task.id);
    Question question{.sort = round % 2 == 0 ? "since" : "", .limit = 7};
    int number = 1000;
    do {
      const Answer answer = ask(question, processes);
      for (const auto& id : ids_of(answer)) EXPECT_TRUE(seen.insert(id).second) << id << " twice";
      question.after = answer.next;
      for (auto& tasks : processes) {
        for (int i = 0; i < 2 && !tasks.empty(); ++i) {
          const auto at = tasks.begin() + static_cast<std::ptrdiff_t>(random.below(tasks.size()));
          throughout.erase(at->id);
          tasks.erase(at);
        }
        tasks.push_back({"t" + std::to_string(++number), "waiting", 3});
      }
    } while (!question.after.empty());
    for (const auto& id : throughout) EXPECT_TRUE(seen.count(id) != 0) << id;
  }
}

TEST(Answer, LaterPagesKeepTheTimeOfTheFirst) {
  const auto page = ask({.limit = 1}, {{{"a", "running"}, {"b", "running"}}});
  const Query query = parsed({.limit = 1, .after = page.next});
  EXPECT_EQ(query.as_of(99), 5);
  EXPECT_EQ(parsed({.limit = 1}).as_of(99), 99);
}

TEST(Answer, ARowThatTwoSourcesHaveCountsOnce) {
  const std::vector<Task> tasks{{"a", "running"}, {"b", "running"}};
  const Answer answer = ask({}, {tasks, tasks, {{"a", "waiting"}}});
  EXPECT_EQ(ids_of(answer), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(answer.matched, 2u);
}

Row function_row(const std::string& name, std::int64_t waiting, std::int64_t done) {
  Row row = make_row(RowKind::functions, name);
  row.cells[column_of(RowKind::functions, "waiting")] = waiting;
  row.cells[column_of(RowKind::functions, "done")] = done;
  return row;
}

TEST(Answer, FunctionsAreAddedUpBeforeTheFilterLooks) {
  const Query query = parsed({.kind = RowKind::functions, .where = "waiting >= 5", .sort = "done"});
  Merge verb(query, Merge::Place::verb);
  for (int node = 0; node < 2; ++node) {
    Merge agent(query, Merge::Place::agent);
    for (int process = 0; process < 2; ++process) {
      Selection selection(query);
      selection.offer(function_row("mix", 2, 10));
      selection.offer(function_row("load", 1, 99));
      if (node == 1) selection.offer(function_row("save", 5, 100));
      agent.add(selection.take());
    }
    verb.add(agent.take(0));
  }
  const Answer answer = verb.take(0);
  EXPECT_EQ(answer.total, 3u);
  ASSERT_EQ(ids_of(answer), (std::vector<std::string>{"save", "mix"}));
  EXPECT_EQ(std::get<std::int64_t>(answer.rows[1].cells[1]), 8);
}

TEST(Answer, ASourceThatSendsNonsenseIsNamed) {
  const Query query = parsed({.limit = 2});
  const auto problem_with = [&](Answer bad) {
    Merge merge(query, Merge::Place::verb);
    merge.add(std::move(bad), "node-1", 31);
    const Answer answer = merge.take(0);
    for (const Row& row : answer.rows) EXPECT_FALSE(problem_of(RowKind::tasks, row));
    return answer.unanswered.empty() ? "" : answer.unanswered[0].why;
  };
  const auto with = [](auto change) {
    Answer answer;
    answer.rows.push_back(make_row(RowKind::tasks, "a"));
    change(answer);
    return answer;
  };
  EXPECT_EQ(problem_with(with([](Answer&) {})), "");
  EXPECT_EQ(problem_with(with([](Answer& a) { a.rows[0].cells.pop_back(); })),
            "its answer has a row of 11 values instead of 12");
  EXPECT_EQ(problem_with(with([](Answer& a) { a.rows[0].id.clear(); })),
            "its answer has a row without a proper id");
  EXPECT_EQ(problem_with(with([](Answer& a) { a.rows[0].cells[4] = std::string("x"); })),
            "its answer has a value of the wrong type in since_ns");
  EXPECT_EQ(problem_with(with([](Answer& a) { a.rows[0].cells[3] = 1.5; })),
            "its answer has a value of the wrong type in state");
  EXPECT_EQ(problem_with(with([](Answer& a) { a.rows[0].cells[3] = std::string(1 << 20, 'x'); })),
            "its answer has a text that is too long in state");
  EXPECT_EQ(problem_with(with([](Answer& a) { a.rows.resize(50, a.rows[0]); })),
            "its answer has too many rows");
}

TEST(Answer, CountsOfHostileSourcesDoNotOverflow) {
  const Query query = parsed({.kind = RowKind::functions});
  Merge merge(query, Merge::Place::verb);
  for (int i = 0; i < 3; ++i) {
    Answer answer;
    answer.total = answer.matched = UINT64_MAX;
    answer.more_unanswered = UINT64_MAX;
    answer.unanswered.resize(300, {"node", 1, std::string(5000, 'x')});
    answer.rows.push_back(function_row("f", INT64_MAX, INT64_MIN));
    merge.add(std::move(answer));
  }
  const Answer answer = merge.take(0);
  EXPECT_EQ(answer.unanswered.size(), kMaxUnanswered);
  EXPECT_EQ(answer.more_unanswered, UINT64_MAX);
  EXPECT_EQ(answer.unanswered[0].why.size(), 300u);
  EXPECT_GT(std::get<double>(answer.rows.at(0).cells[1]), 2e19);
}

TEST(Question, WhatCannotBeAnsweredIsRefused) {
  const auto problem = [](const Question& question) {
    const auto query = Query::parse(question);
    return query ? std::string() : query.error().message();
  };
  EXPECT_EQ(problem({.limit = 1000}), "");
  EXPECT_NE(problem({.limit = 0}).find("the limit 0 is not between 1 and 1000"), std::string::npos);
  EXPECT_NE(problem({.limit = 1001}), "");
  EXPECT_NE(problem({.where = "colour = red"}).find("the fields are id, function"),
            std::string::npos);
  EXPECT_NE(problem({.sort = "colour"}).find("the fields are id, function"), std::string::npos);
  for (const char* after : {"x", "::", "5:0:", "5:0:6", "5:0:zz", "x:0:61", "5:q:61", "5:nx:61",
                            "5:t6:61", "5:0:0:61", "99999999999999999999:0:61"})
    EXPECT_NE(problem({.after = after}).find("'after' is no text of an earlier answer"),
              std::string::npos)
        << after;
  EXPECT_NE(problem({.after = "5:0:" + std::string(4000, '6')}), "");
  EXPECT_EQ(problem({.after = "5:n1e5:61"}), "");
  EXPECT_EQ(parse_row_kind("jobs").value(), RowKind::jobs);
  EXPECT_EQ(parse_row_kind("job").error().message(),
            "'job' is no kind of list; the kinds are tasks, functions, processes, nodes, actors, "
            "jobs, objects, events");
}

TEST(Rows, EachKindHasDistinctFields) {
  for (const RowKind kind : kRowKinds) {
    std::set<std::string_view> names, fields;
    for (const Column& column : columns_of(kind)) {
      EXPECT_TRUE(names.insert(column.name).second) << column.name;
      EXPECT_TRUE(fields.insert(column.field).second) << column.field;
    }
    EXPECT_EQ(fields_of(kind).size(), fields.size());
    EXPECT_FALSE(problem_of(kind, make_row(kind, "x")));
  }
}

/// An intrusive list as owners of tasks have it; new elements come in front or at the end.
struct List {
  Task* first = nullptr;
  Task* last = nullptr;
  void push_back(Task& task) {
    task.previous = last;
    (last != nullptr ? last->next : first) = &task;
    last = &task;
  }
  void push_front(Task& task) {
    task.next = first;
    (first != nullptr ? first->previous : last) = &task;
    first = &task;
  }
  void remove(Task& task) {
    (task.previous != nullptr ? task.previous->next : first) = task.next;
    (task.next != nullptr ? task.next->previous : last) = task.previous;
    task.next = task.previous = nullptr;
  }
};

TEST(ListWalk, RandomChangesBetweenStepsNeitherRepeatNorHideAnElement) {
  Random random(9);
  for (int round = 0; round < 300; ++round) {
    std::map<std::string, Task> tasks;
    List list;
    std::set<std::string> throughout, visited;
    int number = 0;
    const auto add = [&](bool front) {
      Task& task = tasks["t" + std::to_string(++number)];
      task.id = "t" + std::to_string(number);
      front ? list.push_front(task) : list.push_back(task);
      return task.id;
    };
    for (std::uint64_t n = random.below(20); n > 0; --n) throughout.insert(add(false));
    ListWalk<Task> walk;
    walk.begin(list.first, list.last);
    int steps = 0;
    while (!walk.done()) {
      ASSERT_LT(++steps, 100) << "a walk ends though elements come";
      walk.step(1 + random.below(4), [&](const Task& task) {
        EXPECT_TRUE(visited.insert(task.id).second) << task.id << " twice";
      });
      for (std::uint64_t n = random.below(4); n > 0 && !tasks.empty(); --n) {
        auto at = tasks.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random.below(tasks.size())));
        walk.leaves(at->second);
        list.remove(at->second);
        throughout.erase(at->first);
        tasks.erase(at);
      }
      for (int i = 0; i < 3; ++i) add(random.chance(0.5));
    }
    for (const auto& id : throughout) EXPECT_TRUE(visited.count(id) != 0) << id;
  }
}

TEST(Question, ATimeAloneIsTheFirstPageAsOfThatTime) {
  const Query first = parsed({.kind = RowKind::tasks, .after = "17"});
  EXPECT_EQ(first.as_of(99), 17);
  EXPECT_FALSE(first.was_shown({Cell(), "a"}));
  EXPECT_EQ(parsed({.kind = RowKind::tasks}).as_of(99), 99);
  EXPECT_FALSE(Query::parse({.kind = RowKind::tasks, .after = "17:"}).ok());
  EXPECT_TRUE(Query::parse({.after = std::string(kMaxAfterBytes - 2, '0') + "17"}).ok());
  EXPECT_FALSE(Query::parse({.after = std::string(kMaxAfterBytes - 1, '0') + "17"}).ok())
      << "a frame has a bound";
}

}  // namespace
}  // namespace answer_test
}  // namespace troupe::observe
