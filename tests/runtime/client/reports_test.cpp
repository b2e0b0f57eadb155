// Tests Reports: REPORT-1, and that the parts are asked. The tests of lists on real processes have
// the others.
#include "troupe/runtime/client/reports.hpp"

#include "troupe/runtime/observe/answer.hpp"
#include "troupe/runtime/observe/answer_bytes.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::client::reports_test {
namespace {

using namespace std::chrono_literals;
using Handle = detail::ObjectHandle;
using observe::RowKind;
constexpr ProcessIndex kSelf = 7, kWorker = 11;

void run_nothing(detail::Invocation&) {}
const detail::Callable kFunction{.thunk = &run_nothing, .name = "mix(int)"};

struct ReportsTest : testing::Test, Calls::Out, Recovery::Out, WorkQueue::Out {
  ReportsTest() {
    self.process = kSelf;
    values.begin(kSelf, 5, 1);
  }
  // Calls::Out and Recovery::Out
  void settle_agent_queue() override {}
  void tell(const wire::NodeMessage& message, BlobView payload) override {
    if (std::holds_alternative<wire::GiveRows>(message))
      bytes.insert(bytes.end(), payload.begin(), payload.end());
  }
  void collect_released() override {}
  void notify() override {}
  void fire(const Waiter& waiter, Entry& entry) override { waiter.fire(calls, waiter.who, entry); }
  void unparked(Entry&) override {}
  void run_again(std::unique_ptr<Task>) override {}
  // WorkQueue::Out
  void hand_back(ProcessIndex, const wire::HandBack&) override {}
  void drop_refs(const wire::Call&) override {}
  bool is_refused(ProcessIndex) override { return false; }
  void tell_blocked(bool) override {}

  Handle submit() {
    detail::Call call;
    call.callable = &kFunction;
    Handle result;
    calls.submit(std::move(call), nullptr, {&result, 1}, false);
    return result;
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
  Identity self;
  AgentLink agent;
  Peers peers;
  StoreUse store;
  WorkerLease lease;
  CallSites sites{1};
  WorkQueue work{static_cast<WorkQueue::Out&>(*this)};
  EngineGate gate{static_cast<Recovery::Out&>(*this), values, store};
  Calls calls{static_cast<Calls::Out&>(*this), self, peers, values, recovery, work};
  Recovery recovery{static_cast<Recovery::Out&>(*this), values, calls.classes(), true,
                    Bytes{1 << 20}};
  Values values{static_cast<Values::Out&>(*this), recovery, store, calls.classes()};
  Resumes resumes{values, recovery, work};
  Waits waits{self, gate, agent, work, calls, lease};
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
