// Tests LineageCache. KEPT-1: its bytes are bounded. KEPT-2: how long it knows a call. KEPT-3: a
// successor that takes a call over has what the call needs. KEPT-4: each orphan ends. Only calls
// that ran cost retries. tests/simulation/ownership_cluster_test.cpp tests the whole protocol.
#include "troupe/runtime/agent/lineage_cache.hpp"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace troupe::agent::lineage_cache_test {
namespace {

constexpr ProcessIndex kWorker = 1, kSuccessor = 2, kAsker = 3, kNext = 4, kElsewhere = 100;
constexpr JobNumber kJob = 7;
const ObjectId kX{1, 1}, kY{1, 2}, kInput{1, 3}, kRemote{9, 1}, kTarget{2, 1};

struct Kept : testing::Test, ReferenceTable::Out, LineageCache::Out {
  ReferenceTable references{*this};
  LineageCache kept{references, *this, Bytes{1 << 20}};
  std::optional<ProcessIndex> somebody = kSuccessor;
  struct Said {
    ProcessIndex to;
    wire::NodeMessage message;
  };
  std::vector<Said> said;
  std::vector<wire::Value> answers;  // to processes that ask
  std::vector<std::uint64_t> freed;
  const Error died{Code::worker_died, "killed"};

  void ready(ProcessIndex process, ObjectId, const wire::Value& value, BlobView) override {
    EXPECT_EQ(process, kAsker);
    answers.push_back(value);
  }
  void free(const wire::Location& location) override { freed.push_back(location.offset); }
  void unreferenced(ActorId) override {}
  void lineage_over(ProcessIndex maker, ObjectId object) override {
    if (maker == kSelf) kept.released(object);
  }
  void orphaned(ObjectId object, ObjectId lost) override { kept.orphaned(object, lost); }
  std::optional<ProcessIndex> find_process(JobNumber job) override {
    EXPECT_EQ(job, kJob);
    return somebody;
  }
  void send(ProcessIndex to, const wire::NodeMessage& message, BlobView) override {
    said.push_back({to, message});
  }
  void rebuild(ProcessIndex maker, ObjectId object, ObjectId lost) override {
    send(maker, wire::Rebuild{object, lost}, {});
  }

  static wire::Value forwarded(ObjectId object) {
    wire::Value value;
    value.kind = wire::Value::Kind::forwarded;
    value.forward = object;
    return value;
  }
  static wire::Value shared(std::uint64_t offset) {
    wire::Value value;
    value.kind = wire::Value::Kind::shared;
    value.location.offset = offset;
    return value;
  }
  /// Returns a call with one argument: an object, or result 0 of a kept call.
  static wire::KeptCall call(std::uint64_t number, ObjectId object = {}, std::uint64_t made = 0) {
    wire::KeptCall call;
    call.number = number;
    if (!object && made == 0) return call;
    call.call.arguments.push_back(forwarded(made == 0 ? object : ObjectId{made, 0}));
    if (made != 0) call.made = {0};
    return call;
  }
  void keep(const wire::KeptCall& call) { kept.keep(kWorker, kJob, call, {}); }
  /// Makes an object of the worker whose bytes are on another node; the asker holds it.
  void make(ObjectId object, std::uint64_t number, std::int32_t retries = 3) {
    references.import_from(kRemote, kElsewhere, kElsewhere);
    references.promote(kWorker, object, forwarded(kRemote), {});
    references.hold(object, kAsker, +1);
    kept.made(kWorker, {object, number, 0, retries});
  }
  void worker_dies(ProcessIndex process = kWorker) {
    references.process_died(process, died);
    kept.process_died(process);
    kept.carry_out();
  }
  void miss(ObjectId object, ObjectId lost = kRemote) {
    references.rebuild(object, kAsker, lost);
    kept.carry_out();
  }
  template <class Message>
  const Message* nth(std::size_t i, ProcessIndex to = kSuccessor) {
    if (i >= said.size() || said[i].to != to) return nullptr;
    return std::get_if<Message>(&said[i].message);
  }
  std::string why() {
    EXPECT_EQ(answers.size(), 1u);
    if (answers.empty() || !answers.back().error) return "no error";
    EXPECT_EQ(answers.back().error->code, Code::object_lost);
    return answers.back().error->message;
  }
  void settle() {
    for (int i = 0; i < 10; ++i) {
      kept.carry_out();
      references.settle();
    }
  }
  void nothing_is_left() {
    settle();
    EXPECT_EQ(kept.size(), 0u);
    EXPECT_EQ(kept.bytes(), 0u);
    EXPECT_EQ(references.size(), 0u);
  }
};

TEST_F(Kept, AnotherProcessComputesWhatTheDeadOneMade) {
  keep(call(10));
  make(kX, 10);
  worker_dies();
  EXPECT_TRUE(said.empty()) << "nobody misses anything";
  miss(kX);
  ASSERT_EQ(said.size(), 3u);
  ASSERT_NE(nth<wire::KeptCall>(0), nullptr);
  EXPECT_EQ(nth<wire::KeptCall>(0)->number, 10u);
  ASSERT_NE(nth<wire::MadeBy>(1), nullptr);
  EXPECT_EQ(nth<wire::MadeBy>(1)->object, kX);
  ASSERT_NE(nth<wire::Rebuild>(2), nullptr);
  EXPECT_EQ(nth<wire::Rebuild>(2)->lost, kRemote);
  EXPECT_TRUE(answers.empty());
  references.promote(kSuccessor, kTarget, shared(5), {});
  references.rebuilt(kSuccessor, kX, forwarded(kTarget), {});
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].forward, kTarget);
  references.hold(kTarget, kSuccessor, -1);
  references.hold(kTarget, kAsker, -1);  // releases the count that came with the answer
  references.hold(kX, kAsker, -1);
  settle();
  kept.forget(kSuccessor, 10);
  nothing_is_left();
}

TEST_F(Kept, TheWorkerItselfIsAskedWhileItLives) {
  keep(call(10));
  make(kX, 10);
  miss(kX);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(nth<wire::Rebuild>(0, kWorker), nullptr);
}

TEST_F(Kept, AnArgumentsCallComesFirst) {
  keep(call(10));
  keep(call(11, {}, 10));
  make(kX, 11);
  worker_dies();
  miss(kX);
  ASSERT_EQ(said.size(), 4u);
  ASSERT_NE(nth<wire::KeptCall>(0), nullptr);
  EXPECT_EQ(nth<wire::KeptCall>(0)->number, 10u);
  ASSERT_NE(nth<wire::KeptCall>(1), nullptr);
  EXPECT_EQ(nth<wire::KeptCall>(1)->number, 11u);
  EXPECT_EQ(nth<wire::KeptCall>(1)->made, std::vector<std::uint32_t>{0});
}

TEST_F(Kept, AnArgumentThatIsThereIsNamedAndNotComputed) {
  keep(call(10));
  make(kY, 10);
  keep(call(11, {}, 10));
  make(kX, 11);
  worker_dies();
  miss(kX);
  ASSERT_EQ(said.size(), 3u);
  ASSERT_NE(nth<wire::KeptCall>(0), nullptr);
  EXPECT_TRUE(nth<wire::KeptCall>(0)->made.empty());
  EXPECT_EQ(nth<wire::KeptCall>(0)->call.arguments.at(0).forward, kY);
  references.hold(kY, kAsker, -1);
  settle();
  EXPECT_NE(references.value_of(kY), nullptr) << "it is counted for whoever is to compute";
}

TEST_F(Kept, WithoutAProcessOneIsWaitedFor) {
  somebody.reset();
  keep(call(10));
  make(kX, 10);
  worker_dies();
  miss(kX);
  EXPECT_TRUE(said.empty());
  kept.serve(kJob, kNext);
  ASSERT_EQ(said.size(), 3u);
  EXPECT_NE(nth<wire::Rebuild>(2, kNext), nullptr);
}

TEST_F(Kept, WhenNoProcessComesTheJobSaysWhy) {
  somebody.reset();
  keep(call(10));
  make(kX, 10);
  worker_dies();
  miss(kX);
  kept.job_over(kJob, "its job has ended");
  EXPECT_NE(why().find("its job has ended"), std::string::npos);
}

TEST_F(Kept, WhoTookItOverMayEndTooUntilNoRetryIsLeft) {
  keep(call(10));
  make(kX, 10, 2);
  worker_dies();
  miss(kX);
  somebody = kNext;
  kept.made(kSuccessor, {{}, 10, 0, 1});  // the call runs
  worker_dies(kSuccessor);
  ASSERT_EQ(said.size(), 6u);
  ASSERT_NE(nth<wire::Rebuild>(5, kNext), nullptr);
  EXPECT_EQ(nth<wire::Rebuild>(5, kNext)->lost, kRemote) << "what was missed at first";
  somebody = ProcessIndex{5};
  worker_dies(kNext);  // before the call ran
  EXPECT_EQ(said.size(), 9u);
  kept.made(5, {{}, 10, 0, 0});
  worker_dies(5);
  EXPECT_EQ(said.size(), 9u);
  EXPECT_NE(why().find("max_retries"), std::string::npos) << why();
}

TEST_F(Kept, ASecondObjectOfACallIsAskedOfWhoHasIt) {
  keep(call(10));
  make(kX, 10, 1);
  make(kY, 10, 1);
  worker_dies();
  references.rebuild(kX, kAsker, kRemote);
  references.rebuild(kY, kAsker, kRemote);
  kept.carry_out();
  ASSERT_EQ(said.size(), 5u) << "the call, both objects, both questions";
  EXPECT_NE(nth<wire::Rebuild>(4), nullptr);
}

TEST_F(Kept, WhatIsNotKeptIsLostWithItsWorker) {
  make(kX, 10);
  worker_dies();
  miss(kX);
  EXPECT_NE(why().find("no call is kept"), std::string::npos) << why();
}

TEST_F(Kept, TheLossThatWasMissedIsTheCause) {
  keep(call(10));
  make(kX, 10, 0);
  references.node_died(kElsewhere, Error(Code::unavailable, "its power failed"));
  worker_dies();
  miss(kX);
  EXPECT_NE(why().find("max_retries"), std::string::npos);
  ASSERT_TRUE(answers.back().error->cause);
  EXPECT_NE(explain(Error(*answers.back().error)).find("its power failed"), std::string::npos);
}

TEST_F(Kept, TheOldestIsEvictedAndSaysSo) {
  wire::KeptCall first = call(10), second = call(11);
  first.input_bytes = second.input_bytes = 600 << 10;
  keep(first);
  make(kX, 10);
  keep(second);
  EXPECT_LE(kept.bytes(), std::size_t{1} << 20);
  worker_dies();
  miss(kX);
  EXPECT_NE(why().find("TROUPE_LINEAGE"), std::string::npos) << why();
}

TEST_F(Kept, AnEvictedArgumentStandsInTheWay) {
  wire::KeptCall first = call(10), second = call(11, {}, 10);
  first.input_bytes = second.input_bytes = 600 << 10;
  keep(first);
  keep(second);
  make(kX, 11);
  worker_dies();
  miss(kX);
  EXPECT_NE(why().find("an argument of its task is gone too"), std::string::npos) << why();
}

TEST_F(Kept, ArgumentsAreHeldAsLongAsTheCallIsKept) {
  references.promote(kWorker, kInput, shared(5), {});
  keep(call(10, kInput));
  make(kX, 10);
  references.hold(kInput, kWorker, -1);
  kept.forget(kWorker, 10);
  settle();
  EXPECT_TRUE(freed.empty());
  references.hold(kX, kWorker, -1);
  references.hold(kX, kAsker, -1);
  settle();
  EXPECT_EQ(freed, std::vector<std::uint64_t>{5}) << "nobody can miss what it is for";
  nothing_is_left();
}

TEST_F(Kept, ACallIsKnownWhileItsWorkerMayNameIt) {
  keep(call(10));
  make(kY, 10);
  references.hold(kY, kWorker, -1);
  references.hold(kY, kAsker, -1);
  settle();
  EXPECT_EQ(kept.size(), 1u);
  keep(call(11, {}, 10));
  kept.forget(kWorker, 10);
  EXPECT_EQ(kept.size(), 2u) << "the other needs it";
  kept.forget(kWorker, 11);
  nothing_is_left();
}

TEST_F(Kept, WithoutALimitNothingIsKept) {
  LineageCache none(references, *this, Bytes{0});
  none.keep(kWorker, kJob, call(10, kInput), {});
  EXPECT_EQ(none.size(), 0u);
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(Kept, AChainOfAHundredThousand) {
  LineageCache long_ones(references, *this, Bytes{1 << 30});
  constexpr std::uint64_t kCalls = 100'000;
  for (std::uint64_t n = 1; n <= kCalls; ++n)
    long_ones.keep(kWorker, kJob, n == 1 ? call(n) : call(n, {}, n - 1), {});
  for (std::uint64_t n = 1; n < kCalls; ++n) long_ones.forget(kWorker, n);
  EXPECT_EQ(long_ones.size(), kCalls);
  long_ones.forget(kWorker, kCalls);
  EXPECT_EQ(long_ones.size(), 0u);
}

}  // namespace
}  // namespace troupe::agent::lineage_cache_test
