// Tests Reports: REPORT-1, and that the parts are asked. The tests of lists on real processes have
// the others.
#include "troupe/runtime/client/reports.hpp"
#include "parts_world.hpp"
#include "troupe/runtime/observe/answer.hpp"
#include "troupe/runtime/observe/answer_bytes.hpp"

namespace troupe::client::reports_test {
namespace {

using namespace std::chrono_literals;
using observe::RowKind;

struct ReportsTest : WaitingWorld {
  void tell(const wire::NodeMessage& message, BlobView payload) override {
    if (std::holds_alternative<wire::GiveRows>(message))
      bytes.insert(bytes.end(), payload.begin(), payload.end());
  }

  /// Asks, and returns how many rows the answer has.
  std::size_t rows(RowKind kind) {
    wire::AskRows question;
    question.request = 3;
    question.rows.kind = static_cast<std::uint8_t>(kind);
    question.rows.limit = 1000;
    reports.ask(question, observe::encode(observe::Surroundings()));
    for (Time now = steady_now(); reports.step(now) != Time::max(); now += 1s) {
    }
    const auto answer = observe::decode_answer(std::exchange(bytes, {}));
    EXPECT_TRUE(answer);
    return answer ? answer->rows.size() : 0;
  }

  Blob bytes;
  CallSites sites{1};
  Resumes resumes{values, recovery, work};
  Reports reports{static_cast<Calls::Out&>(*this),
                  {self, agent, peers, calls, work, resumes, values, sites, waits}};
};

TEST_F(ReportsTest, ProcessThatNobodyAsksDoesNothing) {
  submit();
  EXPECT_EQ(reports.step(steady_now()), Time::max());
  EXPECT_TRUE(bytes.empty());
}

TEST_F(ReportsTest, TasksAndOwnObjectsAreRows) {
  const Handle one = submit(), two = submit();
  EXPECT_EQ(rows(RowKind::tasks), 2u);
  OutgoingValue value;
  value.kind = wire::Value::Kind::shared;
  value.location.length = 1 << 20;
  value.site = sites.find({"src/train.cpp", 12}).number;
  const Handle object = values.object_of(std::move(value));
  EXPECT_EQ(rows(RowKind::objects), 1u);
  entry_of(object).owns_location = false;  // there is no store
}

}  // namespace
}  // namespace troupe::client::reports_test
