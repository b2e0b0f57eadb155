// Tests jobs, key-values, names of objects and the commit queue. Nothing is announced before it
// is durable, and everything announced is there after a restart.
#include "troupe/runtime/control/jobs.hpp"
#include "troupe/runtime/control/key_values.hpp"
#include "troupe/runtime/control/memory_store.hpp"
#include "troupe/runtime/control/object_names.hpp"

#include <gtest/gtest.h>
#include <optional>

namespace troupe::control {
namespace {

const NodeId kNode{0, 1};

TEST(CommitQueue, EventsLeaveAfterTheirCommitAndInOrder) {
  CommitQueue<int> queue;
  const auto step = [](int event, bool writes) {
    Output<int> out;
    out.after_sync.push_back(event);
    if (writes) out.writes.put("k", std::to_string(event));
    return out;
  };
  using Ints = std::vector<int>;
  const auto released = [&queue] {
    Ints events;
    while (const auto event = queue.pop()) events.push_back(*event);
    return events;
  };
  queue.add(step(1, false));
  EXPECT_EQ(released(), (Ints{1}));  // nothing is to be written
  queue.add(step(2, true));
  queue.add(step(3, false));  // may depend on the write of step 2
  EXPECT_EQ(released(), (Ints{}));
  EXPECT_EQ(queue.begin().size(), 1u);
  queue.add(step(4, true));
  queue.add(step(5, true));
  EXPECT_FALSE(queue.has_work());  // one commit at a time
  EXPECT_EQ(released(), (Ints{}));
  queue.finish();
  EXPECT_EQ(released(), (Ints{2, 3}));
  EXPECT_EQ(queue.begin().size(), 2u);  // both steps, as one group
  queue.add(step(6, false));
  queue.finish();
  EXPECT_EQ(released(), (Ints{4, 5, 6}));
  queue.add(step(7, true));  // must not be released with the commit before it
  EXPECT_EQ(released(), (Ints{}));
}

struct Records : testing::Test {
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>(1);
  std::unique_ptr<Store> store = open_memory_store(disk, {}).value();
  template <class Out>
  auto run(Out out) {
    EXPECT_TRUE(out.at_once.empty());
    EXPECT_TRUE(store->commit({&out.writes, 1}).ok());
    return out.after_sync;
  }
  void reopen() {
    store.reset();
    store = open_memory_store(disk, {}).value();
  }
};

TEST_F(Records, JobsStartEndAndStayKnown) {
  Jobs jobs({});
  const auto start = [&](std::uint64_t n) {
    StartJob message;
    message.from = kNode;
    message.job.id = JobId{0, n};
    message.job.name = "train";
    message.job.node = kNode;
    message.job.epoch = 3;
    message.job.program = "/bin/train";
    message.job.arguments = {"train", "--steps=5"};
    message.job.files = {{"/bin/train", std::string(64, 'a')}};
    message.job.user = "alice";
    message.job.pid = 4711;
    return std::get<JobReply>(run(jobs.on_start(message)).at(0));
  };
  for (std::uint64_t n = 1; n <= 4; ++n) EXPECT_EQ(start(n).error, nullptr);
  EXPECT_EQ(start(1).error, nullptr);  // repeated
  EXPECT_EQ(std::get<JobEnded>(run(jobs.on_finish(JobId{0, 1}, 5)).at(0)).state,
            JobState::finished);
  EXPECT_TRUE(run(jobs.on_driver_died(JobId{0, 1}, "late", 6)).empty());
  EXPECT_EQ(std::get<JobEnded>(run(jobs.on_driver_died(JobId{0, 2}, "signal 9", 7)).at(0)).why,
            "its driver died: signal 9");
  EXPECT_NE(start(2).error, nullptr);
  start(5);
  EXPECT_EQ(std::get<JobEnded>(run(jobs.on_stopped(JobId{0, 5}, "by alice", 8)).at(0)).state,
            JobState::stopped);
  reopen();
  Jobs again = Jobs::recover(*store, {}).value();
  EXPECT_EQ(again.list().size(), 5u);
  EXPECT_EQ(again.find(JobId{0, 5})->state, JobState::stopped);
  EXPECT_EQ(again.find(JobId{0, 5})->why, "by alice");
  EXPECT_EQ(again.find(JobId{0, 3})->user, "alice");
  EXPECT_EQ(again.find(JobId{0, 3})->pid, 4711u);
  EXPECT_TRUE(again.is_running(JobId{0, 3}));
  EXPECT_FALSE(again.is_running(JobId{0, 2}));
  EXPECT_EQ(again.find(JobId{0, 3})->program, "/bin/train");
  EXPECT_EQ(again.find(JobId{0, 3})->arguments.at(1), "--steps=5");
  EXPECT_EQ(again.find(JobId{0, 3})->files.at(0).second, std::string(64, 'a'));
  EXPECT_EQ(again.find(JobId{0, 9}), nullptr);
  EXPECT_TRUE(run(again.on_node_dead(kNode, 2, "silent", 8)).empty());  // another life of kNode
  EXPECT_EQ(run(again.on_node_dead(kNode, 3, "silent", 8)).size(), 2u);
}

TEST_F(Records, OnlyTheLatestEndedJobsAreKept) {
  Jobs jobs({2});
  for (std::uint64_t n = 1; n <= 5; ++n) {
    StartJob message;
    message.job.id = JobId{0, n};
    run(jobs.on_start(message));
    run(jobs.on_finish(message.job.id, static_cast<std::int64_t>(n)));
  }
  EXPECT_EQ(jobs.list().size(), 2u);
  reopen();
  EXPECT_EQ(Jobs::recover(*store, {2}).value().list().size(), 2u);
}

TEST_F(Records, AfterARestartEndedJobsMakeRoomAndRunningOnesDoNot) {
  std::uint64_t started = 0;
  std::int64_t wall = 0;
  const auto start = [&](Jobs& jobs) {
    StartJob message;
    message.job.id = JobId{0, ++started};
    run(jobs.on_start(message));
  };
  const auto finish = [&](Jobs& jobs, std::uint64_t n) {
    run(jobs.on_finish(JobId{0, n}, ++wall));
  };
  Jobs before({2});
  for (int n = 0; n < 3; ++n) start(before);
  finish(before, 3);
  finish(before, 1);
  reopen();
  Jobs jobs = Jobs::recover(*store, {2}).value();
  start(jobs);
  finish(jobs, 4);
  EXPECT_EQ(jobs.find(JobId{0, 3}), nullptr) << "the one that ended first";
  EXPECT_NE(jobs.find(JobId{0, 1}), nullptr);
  EXPECT_TRUE(jobs.is_running(JobId{0, 2}));
  finish(jobs, 2);
  EXPECT_EQ(jobs.find(JobId{0, 1}), nullptr);
  EXPECT_EQ(jobs.list().size(), 2u);
  reopen();
  EXPECT_EQ(Jobs::recover(*store, {2}).value().list().size(), 2u);
}

TEST_F(Records, KeyValuesPutGetListAndSwap) {
  KeyValues values({});
  const auto put = [&](std::string key, std::string value, PutMode mode = PutMode::always,
                       std::string expected = "") {
    return run(values.on_put(
                   {kNode, 1, "ns", std::move(key), std::move(value), mode, std::move(expected)}))
        .at(0);
  };
  EXPECT_TRUE(put("a/1", "x").done);
  EXPECT_TRUE(put("a/2", "y").done);
  EXPECT_TRUE(put("b", "z").done);
  const KvReply taken = put("b", "q", PutMode::if_absent);
  EXPECT_FALSE(taken.done);
  EXPECT_EQ(taken.value, "z");
  EXPECT_FALSE(put("b", "q", PutMode::if_equal, "w").done);
  EXPECT_TRUE(put("b", "q", PutMode::if_equal, "z").done);
  EXPECT_FALSE(put("c", "q", PutMode::if_equal, "").done);
  EXPECT_NE(put("", "q").error, nullptr);
  EXPECT_NE(put("big", std::string(512 * 1024 + 1, 'x')).error, nullptr);
  EXPECT_TRUE(run(values.on_delete(kNode, 2, "ns", "a/1")).at(0).done);
  EXPECT_FALSE(run(values.on_delete(kNode, 2, "ns", "a/1")).at(0).done);
  reopen();
  KeyValues again = KeyValues::recover(*store, {}).value();
  EXPECT_EQ(again.total_bytes(), values.total_bytes());
  EXPECT_EQ(run(again.on_get(kNode, 3, "ns", "b")).at(0).value, "q");
  EXPECT_FALSE(run(again.on_get(kNode, 3, "other", "b")).at(0).done);
  EXPECT_EQ(run(again.on_list(kNode, 4, "ns", "a/")).at(0).keys, (std::vector<std::string>{"a/2"}));
}

TEST_F(Records, KeyValuesAreBounded) {
  KeyValueOptions options;
  options.max_total = 100;
  options.max_listed = 2;
  KeyValues values(options);
  EXPECT_TRUE(run(values.on_put({kNode, 1, "", "k", std::string(90, 'x')})).at(0).done);
  EXPECT_EQ(run(values.on_put({kNode, 1, "", "l", std::string(20, 'x')})).at(0).error->code,
            Code::overloaded);
  EXPECT_TRUE(run(values.on_put({kNode, 1, "", "k", ""})).at(0).done);  // there is room again
  for (const char* key : {"l", "m"}) run(values.on_put({kNode, 1, "", key, ""}));
  EXPECT_EQ(run(values.on_list(kNode, 1, "", "")).at(0).error->code, Code::overloaded);
}

using Verb = NameObject::Verb;

ObjectName weights(std::uint64_t object = 1) {
  return {"weights", {5, object}, {0, 2}, kNode, 77, "std::vector<double>", {0, 9}, 800};
}

TEST_F(Records, ANameOfAnObjectIsThereAfterARestartUntilItIsForgotten) {
  ObjectNames names;
  const auto ask = [&](ObjectNames& of, Verb verb, const ObjectName& what) {
    return run(of.on_message({3, verb, what}, kNode));
  };
  const auto answer = [&](ObjectNames& of, Verb verb, const ObjectName& what) {
    return std::get<NamedObject>(ask(of, verb, what).at(0));
  };
  EXPECT_FALSE(answer(names, Verb::find, {"weights"}).done);
  EXPECT_TRUE(answer(names, Verb::detach, weights()).done);
  EXPECT_TRUE(answer(names, Verb::detach, weights()).done) << "said twice";
  const NamedObject taken = answer(names, Verb::detach, weights(2));
  EXPECT_FALSE(taken.done);
  ASSERT_NE(taken.error, nullptr);
  EXPECT_EQ(taken.error->code, Code::invalid_argument);
  EXPECT_EQ(taken.what.object, (ObjectId{5, 1}));
  reopen();
  ObjectNames again = ObjectNames::recover(*store).value();
  const NamedObject found = answer(again, Verb::find, {"weights"});
  ASSERT_TRUE(found.done);
  EXPECT_EQ(found.what.object, (ObjectId{5, 1}));
  EXPECT_EQ(found.what.owner, (NodeId{0, 2}));
  EXPECT_EQ(found.what.keeper, kNode);
  EXPECT_EQ(found.what.fingerprint, 77u);
  EXPECT_EQ(found.what.type, "std::vector<double>");
  EXPECT_EQ(found.what.job, (JobId{0, 9}));
  EXPECT_EQ(found.what.bytes, 800u);
  EXPECT_TRUE(answer(again, Verb::whose, {"", {5, 1}}).done);
  EXPECT_FALSE(answer(again, Verb::whose, {"", {5, 2}}).done);

  const auto gone = ask(again, Verb::forget, {"weights"});
  ASSERT_EQ(gone.size(), 2u);
  EXPECT_TRUE(std::get<NamedObject>(gone[0]).done);
  EXPECT_EQ(std::get<ObjectForgotten>(gone[1]).to, kNode);
  EXPECT_EQ(std::get<ObjectForgotten>(gone[1]).object, (ObjectId{5, 1}));
  EXPECT_FALSE(answer(again, Verb::whose, {"", {5, 1}}).done);
  EXPECT_FALSE(answer(again, Verb::forget, {"weights"}).done) << "it is gone";
  EXPECT_TRUE(answer(again, Verb::detach, weights(2)).done) << "and can be given anew";
  reopen();
  EXPECT_EQ(ObjectNames::recover(*store).value().all().at("weights").object, (ObjectId{5, 2}));
}

TEST_F(Records, WhatIsAskedOfNamesAgainWritesNothingAndEndsNothingElse) {
  ObjectNames names;
  const auto ask = [&](Verb verb, const ObjectName& what) {
    const NameObject message{3, verb, what};
    const bool writes = names.writes(message);
    auto out = names.on_message(message, kNode);
    EXPECT_EQ(writes, !out.writes.writes().empty());
    EXPECT_EQ(std::get<NamedObject>(out.after_sync.at(0)).done, writes || verb == Verb::detach);
    run(std::move(out));
    return writes;
  };
  EXPECT_TRUE(ask(Verb::detach, weights()));
  EXPECT_FALSE(ask(Verb::detach, weights())) << "it is answered also when nothing can be written";
  ObjectName other{"weights"};
  other.object = ObjectId{5, 2};
  EXPECT_TRUE(names.on_message({3, Verb::forget, other}, kNode).writes.writes().empty());
  EXPECT_EQ(names.all().size(), 1u) << "the name is another's now";
  EXPECT_TRUE(ask(Verb::forget, weights()));
  EXPECT_FALSE(ask(Verb::forget, weights()));
  EXPECT_TRUE(names.all().empty());
}

TEST_F(Records, NamesOfObjectsAreBoundedAndAnObjectMayHaveTwo) {
  ObjectNames names({.max_name = 8, .max_names = 2});
  const auto detach = [&](std::string name) {
    ObjectName what = weights();
    what.name = std::move(name);
    const auto answer = std::get<NamedObject>(
        run(names.on_message({1, Verb::detach, std::move(what)}, kNode)).at(0));
    return answer.error ? std::optional(answer.error->code) : std::nullopt;
  };
  EXPECT_EQ(detach(""), Code::invalid_argument);
  EXPECT_EQ(detach("123456789"), Code::invalid_argument);
  EXPECT_EQ(detach("a"), std::nullopt);
  EXPECT_EQ(detach("b"), std::nullopt);
  EXPECT_EQ(detach("c"), Code::overloaded);
  run(names.on_message({1, Verb::forget, {"a"}}, kNode));
  EXPECT_TRUE(
      std::get<NamedObject>(run(names.on_message({1, Verb::whose, {"", {5, 1}}}, kNode)).at(0))
          .done)
      << "by its other name";
  EXPECT_EQ(detach("c"), std::nullopt);
}

TEST_F(Records, ANameWithoutWhichARecordMakesNoSenseIsRefused) {
  Batch batch;
  batch.put("object/weights", "\x02later");
  ASSERT_TRUE(store->commit({&batch, 1}).ok());
  EXPECT_EQ(ObjectNames::recover(*store).error().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace troupe::control
