// Tests the bytes of answers and surroundings: what is sent arrives, and damaged bytes are refused
// without harm.
#include "troupe/runtime/observe/answer_bytes.hpp"

#include <gtest/gtest.h>

#include <string>

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/observe/wait_rows.hpp"

namespace troupe::observe {
namespace answer_bytes_test {
namespace {

Answer sample() {
  Answer answer;
  answer.total = 1'000'000;
  answer.matched = 40;
  answer.more = true;
  answer.more_unanswered = 3;
  answer.unanswered.push_back({"node-1", 31, "no answer in 1 s"});
  for (int i = 0; i < 3; ++i) {
    Row row = make_row(RowKind::tasks, "task-" + std::to_string(i));
    row.cells[column_of(RowKind::tasks, "since")] = std::int64_t{i} - 1;
    row.cells[column_of(RowKind::tasks, "attempt")] = 2.5;
    row.cells[column_of(RowKind::tasks, "why")] = std::string("a\0b", 3);
    row.cells[column_of(RowKind::tasks, "name")] = i == 0;
    answer.rows.push_back(row);
  }
  return answer;
}

TEST(AnswerBytes, AnAnswerArrivesAsItWasSent) {
  const Answer sent = sample();
  const auto read = decode_answer(encode(sent));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->total, sent.total);
  EXPECT_EQ(read->matched, sent.matched);
  EXPECT_EQ(read->more, sent.more);
  EXPECT_EQ(read->more_unanswered, sent.more_unanswered);
  ASSERT_EQ(read->unanswered.size(), 1U);
  EXPECT_EQ(read->unanswered[0].pid, 31);
  EXPECT_EQ(read->unanswered[0].why, "no answer in 1 s");
  ASSERT_EQ(read->rows.size(), sent.rows.size());
  for (std::size_t i = 0; i < sent.rows.size(); ++i) {
    EXPECT_EQ(read->rows[i].id, sent.rows[i].id);
    EXPECT_EQ(read->rows[i].cells, sent.rows[i].cells);
  }
}

TEST(AnswerBytes, DamagedBytesAreRefusedOrAreAnotherAnswer) {
  const Blob whole = encode(sample());
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(decode_answer(BlobView(whole).first(size))) << size;
  Random random(5);
  for (int i = 0; i < 5000; ++i) {
    Blob bytes = whole;
    bytes[random.below(bytes.size())] = static_cast<std::byte>(random());
    const auto read = decode_answer(bytes);
    EXPECT_TRUE(!read || read->rows.size() <= kMaxSums);
  }
}

TEST(AnswerBytes, AnAnswerThatIsTooLongLosesItsLastRowsAndSaysSo) {
  Answer answer;
  for (std::size_t i = 0; i < 200; ++i) {
    Row row = make_row(RowKind::tasks, std::to_string(i));
    row.cells[column_of(RowKind::tasks, "why")] = std::string(2 * kMaxTextBytes, 'x');
    answer.rows.push_back(std::move(row));
  }
  const auto read = decode_answer(encode(answer));
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->more);
  EXPECT_GT(read->rows.size(), 100U);
  EXPECT_LT(read->rows.size(), 200U);
}

TEST(AnswerBytes, SurroundingsKeepWhatFits) {
  Surroundings around;
  around.self = "node-0/17";
  around.whys[LeaseKey::of(3)] = "needs 1 GPU, no node has more than 0";
  for (std::uint64_t i = 1; i <= 2000; ++i)
    around.workers[ProcessIndex::of(i)] = {"node-0/" + std::to_string(i), i % 2 == 0, true};
  const Blob bytes = encode(around);
  EXPECT_LE(bytes.size(), kMaxSurroundingsBytes);
  const auto read = decode_surroundings(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->self, around.self);
  EXPECT_EQ(read->whys, around.whys);
  EXPECT_GT(read->workers.size(), 200U);
  EXPECT_TRUE(read->workers.at(ProcessIndex::of(2)).blocked);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_surroundings(BlobView(bytes).first(size))) << size;
}

TEST(WaitRows, AFactArrivesAsItWasSent) {
  Fact fact;
  fact.thing = {Thing::Kind::request, "node-0/17 key 3", "node-0"};
  fact.state = Fact::State::lacks;
  fact.waits_for = {{Thing::Kind::worker, "node-0/18", "node-0"},
                    {Thing::Kind::object, "00ff", "node-0/17"}};
  fact.any = true;
  fact.name = "mix";
  fact.why = "all CPUs are in use";
  fact.since_ns = 12'000'000'000;
  fact.count = 300'000;
  const Row row = wait_row(fact);
  EXPECT_FALSE(problem_of(RowKind::waits, row));
  const auto read = fact_of(row);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->thing, fact.thing);
  EXPECT_EQ(read->thing.owner, fact.thing.owner);
  EXPECT_EQ(read->state, fact.state);
  EXPECT_EQ(read->waits_for, fact.waits_for);
  EXPECT_EQ(read->waits_for[1].owner, "node-0/17");
  EXPECT_TRUE(read->any);
  EXPECT_EQ(read->name, fact.name);
  EXPECT_EQ(read->why, fact.why);
  EXPECT_EQ(read->since_ns, fact.since_ns);
  EXPECT_EQ(read->count, fact.count);
}

TEST(WaitRows, RowsThatNoOwnerSendsAreRefused) {
  Row row = wait_row({.thing = {Thing::Kind::task, "1", "node-0"}});
  ASSERT_TRUE(fact_of(row));
  row.cells[column_of(RowKind::waits, "state")] = std::string("dreams");
  EXPECT_FALSE(fact_of(row));
  row.cells[column_of(RowKind::waits, "state")] = std::string("waits");
  row.cells[column_of(RowKind::waits, "waits_for")] = std::string("ghost\t1\tnode-0");
  EXPECT_FALSE(fact_of(row));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "task\t" + std::to_string(i) + "\tnode-0\n";
  row.cells[column_of(RowKind::waits, "waits_for")] = many;
  EXPECT_FALSE(fact_of(row));
}

}  // namespace
}  // namespace answer_bytes_test
}  // namespace troupe::observe
