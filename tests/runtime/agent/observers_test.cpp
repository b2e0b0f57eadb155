// Tests Observers with the real parts below it: OBSERVER-1 to OBSERVER-4.
#include "troupe/runtime/agent/observers.hpp"

#include "tests/runtime/agent/faulty_files.hpp"
#include "tests/runtime/agent/played_objects.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent::observers_test {
namespace {

using namespace std::chrono_literals;
using About = wire::Inquire::About;
constexpr NodeId kHere = PlayedProcesses::kSelfNode, kOther{0, 2};
constexpr JobId kJob{0, 9};

struct ObserversTest : testing::Test, PlayedObjects, Workers::Out, Observers::Control {
  // Workers::Out
  void end(Process&) override {}
  void job_failed(Job&, const std::string&) override {}
  void go_down(const std::string&) override {}
  bool is_over() const override { return false; }
  // Observers::Control
  bool has_control() const override { return !is_private; }
  bool hears_control() const override { return control_answers; }
  void say_to_control(const control::ToControl& message) override { said.push_back(message); }

  Process& speaker(Talker who) {
    Process& process = processes.add({});
    process.speaks_as = who;
    process.introduced = true;
    process.told_pid = 4242;
    process.job = kJob;
    process.kind = who == Talker::worker   ? wire::ProcessKind::worker
                   : who == Talker::driver ? wire::ProcessKind::driver
                                           : wire::ProcessKind::observer;
    return process;
  }
  void ask(Process& from, About about, NodeId node = {}, BlobView payload = {}) {
    wire::Inquire message;
    message.request = ++request;
    message.about = about;
    message.node = node;
    message.logs.job = kJob;
    message.stacks.pid = 1;
    observers.on_inquire(from, message, payload);
  }
  void ask_control(Process& from, const control::ToControl& question) {
    ask(from, About::control, {}, control::encode(question));
  }
  /// Returns the code of the answer to the last question; ok: bytes came. Precondition: it has one
  /// answer.
  std::optional<Code> refused() {
    const auto answers = take<wire::Answer>();
    EXPECT_EQ(answers.size(), 1u);
    if (answers.size() != 1) return Code::internal;
    EXPECT_EQ(answers[0].second.request, request);
    if (!answers[0].second.error) return std::nullopt;
    return answers[0].second.error->code;
  }
  /// Makes kOther a node of the cluster.
  void join_other() {
    control::ClusterNodes nodes;
    for (const NodeId node : {kHere, kOther}) {
      control::ClusterRow& row = nodes.rows.emplace_back();
      row.description.id = node;
      row.description.name = node == kHere ? "node" : "other";
    }
    cluster.on_nodes(nodes, Time{100s});
  }
  template <class Message>
  std::vector<Message> sent_to(NodeId node) {
    std::vector<Message> all;
    for (const auto& sent : std::exchange(to_nodes, {}))
      if (const auto* message = std::get_if<Message>(&sent.message); message && sent.to == node)
        all.push_back(*message);
    return all;
  }

  std::uint64_t request = 100;
  bool is_private = false, control_answers = true;
  std::vector<control::ToControl> said;
  Jobs jobs{quiet_actors, {}};
  JobStops job_stops;
  std::unique_ptr<Programs> programs;
  std::unique_ptr<NodeLogs> logs;
  Observers observers{{kHere,  name,    options,    *host,  processes, workers, jobs,    job_stops,
                       events, table,   references, remote, actors,    proxies, extents, copies,
                       memory, cluster, inquiries,  logs,   *this,     *this}};
  Workers workers{
      {name, events, processes, jobs, table, actors, programs, logs, observers.stacks(), *this}};
};

TEST_F(ObserversTest, MemoryOfThisNodeIsAnsweredAtOnce) {
  ask(speaker(Talker::observer), About::memory);
  ASSERT_FALSE(to_processes.empty());
  const auto report = wire::decode_memory(to_processes[0].payload);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report.value().node, kHere);
  EXPECT_EQ(report.value().name, "node");
  EXPECT_EQ(report.value().arena_bytes, std::uint64_t{4 << 20});
  EXPECT_FALSE(report.value().spills);
  EXPECT_EQ(refused(), std::nullopt);
}

TEST_F(ObserversTest, ReportNamesHolderAndMakerOfAnObject) {
  Process& driver = speaker(Talker::driver);
  constexpr ObjectId kObject{0, 16};
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  value.payload_size = 3;
  references.promote(driver.index, kObject, value, Blob(3));
  references.hold(kObject, driver.index, +1);
  const wire::MemoryReport report = observers.memory_report();
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows_in_all, 1u);
  EXPECT_EQ(report.rows[0].id, kObject);
  EXPECT_EQ(report.rows[0].bytes, 3u);
  EXPECT_EQ(report.rows[0].owner, kHere);
  EXPECT_EQ(report.rows[0].maker_pid, 4242u);
  ASSERT_EQ(report.rows[0].holders.size(), 1u);
  EXPECT_EQ(report.rows[0].holders[0].kind, wire::MemoryUser::driver);
  EXPECT_EQ(report.rows[0].holders[0].refs, 2);
}

TEST_F(ObserversTest, MemoryRowsStacksAndStopsAreForObserversAlone) {
  for (const Talker who : {Talker::driver, Talker::worker})
    for (const About about : {About::memory, About::rows, About::stacks, About::stop}) {
      Process& process = speaker(who);
      ask(process, about);
      EXPECT_EQ(refused(), Code::invalid_argument);
      EXPECT_EQ(process.objections, 1u);
    }
  EXPECT_TRUE(to_nodes.empty());
}

TEST_F(ObserversTest, ObserverGetsTheRowsOfThisNodesProcesses) {
  Process& observer = speaker(Talker::observer);
  speaker(Talker::worker).told_pid = 4243;
  wire::Inquire question;
  question.request = ++request;
  question.about = About::rows;
  question.rows.kind = static_cast<std::uint8_t>(observe::RowKind::processes);
  question.rows.limit = 10;
  observers.on_inquire(observer, question, {});
  EXPECT_TRUE(to_processes.empty()) << "the agent looks at them in its next pass";
  EXPECT_EQ(observers.next_deadline(), Time{});
  observers.rows().on_timer(steady_now());
  ASSERT_FALSE(to_processes.empty());
  const auto answer = observe::decode_answer(to_processes[0].payload);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer.value().rows.size(), 3u) << "the agent, the observer and the worker";
  EXPECT_EQ(refused(), std::nullopt);
}

TEST_F(ObserversTest, DriverOfAStoppedJobIsToldAndKilledWhenItIsLate) {
  Process& observer = speaker(Talker::observer);
  Peer driver = connect();
  of(driver).speaks_as = Talker::driver;
  of(driver).introduced = true;
  wire::Inquire question;
  question.request = ++request;
  question.about = About::stop;
  question.stop.job = kJob;
  question.stop.user = "alice";
  observers.on_inquire(observer, question, {});
  EXPECT_EQ(refused(), Code::invalid_argument) << "its driver is not here";
  jobs.of(kJob).driver = driver.index;
  observers.on_inquire(observer, question, {});
  EXPECT_EQ(refused(), std::nullopt);
  const auto told = driver.read<wire::Shutdown>();
  ASSERT_TRUE(told);
  EXPECT_NE(told->why.find("alice"), std::string::npos) << told->why;
  EXPECT_LE(job_stops.next_deadline(), steady_now() + JobStops::kGrace);
  ASSERT_EQ(events.log().size(), 1u);
  events.log().each([](const Event& event) { EXPECT_EQ(event.kind, EventKind::job_stopped); });
}

TEST_F(ObserversTest, DriverGetsTheLogOfItsOwnJobAlone) {
  Process& driver = speaker(Talker::driver);
  ask(driver, About::logs);
  ASSERT_FALSE(to_processes.empty());
  const auto batch = wire::decode_log_batch(to_processes[0].payload);
  ASSERT_TRUE(batch.ok());
  EXPECT_TRUE(batch.value().complete) << "the node keeps no logs";
  EXPECT_EQ(refused(), std::nullopt);
  driver.job = JobId{0, 10};
  ask(driver, About::logs);
  EXPECT_EQ(refused(), Code::invalid_argument);
  EXPECT_EQ(driver.objections, 1u);
}

TEST_F(ObserversTest, OnlyANodeOfTheClusterIsAsked) {
  Process& observer = speaker(Talker::observer);
  for (const About about : {About::memory, About::logs, About::stacks}) {
    ask(observer, about, kOther);
    EXPECT_EQ(refused(), Code::unavailable);
    EXPECT_TRUE(to_nodes.empty());
  }
  join_other();
  for (const About about : {About::memory, About::logs, About::stacks}) {
    ask(observer, about, kOther);
    EXPECT_TRUE(to_processes.empty());
    const auto asked = sent_to<wire::PeerInquire>(kOther);
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].about_logs, about == About::logs);
    EXPECT_EQ(asked[0].about_stacks, about == About::stacks);
    inquiries.on_answer(kOther, {asked[0].request, 0, 1, nullptr}, Blob(1));
    EXPECT_EQ(refused(), std::nullopt);
  }
}

TEST_F(ObserversTest, AnotherNodeIsAnsweredOrRefused) {
  observers.on_peer_inquire(kOther, {7});
  auto answers = sent_to<wire::PeerAnswer>(kOther);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers[0].request, 7u);
  EXPECT_FALSE(answers[0].error);
  wire::PeerInquire stacks;
  stacks.request = 8;
  stacks.about_stacks = true;
  stacks.stacks.pid = 1;
  observers.on_peer_inquire(kOther, stacks);
  answers = sent_to<wire::PeerAnswer>(kOther);
  ASSERT_EQ(answers.size(), 1u);
  ASSERT_TRUE(answers[0].error) << "the node has no such process";
  EXPECT_EQ(answers[0].error->code, Code::unavailable);
}

TEST_F(ObserversTest, ControlIsAskedOnlyWhatTheProcessMayAsk) {
  const control::ToControl list = control::ListRequest{};
  const control::ToControl drain = control::DrainRequest{};
  ask_control(speaker(Talker::driver), drain);
  EXPECT_EQ(refused(), Code::invalid_argument);
  EXPECT_TRUE(said.empty());
  Process& driver = speaker(Talker::driver);
  ask_control(driver, list);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(to_processes.empty()) << "control answers later";
  EXPECT_EQ(std::get<control::ListRequest>(said[0]).request, inquiries.next_number() - 1);
}

TEST_F(ObserversTest, QuestionForControlFailsWithoutControl) {
  Process& observer = speaker(Talker::observer);
  control_answers = false;
  ask_control(observer, control::ListRequest{});
  EXPECT_EQ(refused(), Code::unavailable);
  is_private = true;
  ask_control(observer, control::ListRequest{});
  EXPECT_EQ(refused(), Code::unavailable);
  is_private = false;
  ask(observer, About::control, {}, Blob(5));
  EXPECT_EQ(refused(), Code::invalid_argument);
  EXPECT_TRUE(said.empty());
}

TEST_F(ObserversTest, QuestionBeyondTheBoundIsRefusedUntilAnotherIsAnswered) {
  join_other();
  Process& observer = speaker(Talker::observer);
  while (!inquiries.is_full()) ask(observer, About::memory, kOther);
  EXPECT_TRUE(to_processes.empty());
  ask(observer, About::memory, kOther);
  EXPECT_EQ(refused(), Code::overloaded);
  ask_control(observer, control::ListRequest{});
  EXPECT_EQ(refused(), Code::overloaded);
  EXPECT_TRUE(said.empty());
  inquiries.on_reply(inquiries.next_number() - 1, control::ListReply{});
  to_processes.clear();
  ask(observer, About::memory, kOther);
  EXPECT_TRUE(to_processes.empty());
}

TEST_F(ObserversTest, NodeThatIsGoneIsOwedNothing) {
  logs = std::make_unique<NodeLogs>(
      observers,
      NodeLogs::Options{name, std::make_unique<FaultyFiles>(std::make_shared<Faults>()), {}});
  join_other();
  Process& observer = speaker(Talker::observer);
  ask(observer, About::logs, kOther);
  wire::PeerInquire question;
  question.request = 7;
  question.about_logs = true;
  question.logs.job = kJob;
  question.logs.wait_ms = 10'000;
  observers.on_peer_inquire(kOther, question);
  to_nodes.clear();
  observers.node_died(kOther, Error(Code::unavailable, "it is dead"), steady_now());
  EXPECT_EQ(refused(), Code::unavailable) << "it will not answer";
  logs->serve(steady_now() + 11s);
  EXPECT_TRUE(sent_to<wire::PeerAnswer>(kOther).empty());
  EXPECT_EQ(logs->next_deadline(), Time::max());
}

TEST_F(ObserversTest, ProcessThatHasEndedGetsNoLog) {
  logs = std::make_unique<NodeLogs>(
      observers,
      NodeLogs::Options{name, std::make_unique<FaultyFiles>(std::make_shared<Faults>()), {}});
  Process& observer = speaker(Talker::observer);
  wire::Inquire question;
  question.about = About::logs;
  question.logs.job = kJob;
  question.logs.wait_ms = 10'000;
  observers.on_inquire(observer, question, {});
  EXPECT_NE(logs->next_deadline(), Time::max());
  observers.process_died(observer.index, steady_now());
  EXPECT_EQ(logs->next_deadline(), Time::max());
  EXPECT_TRUE(to_processes.empty());
}

TEST_F(ObserversTest, JobMayWriteWhileAProcessOfItLives) {
  EXPECT_FALSE(observers.may_write(kJob)) << "an unknown job";
  Job& job = jobs.of(kJob);
  EXPECT_FALSE(observers.may_write(kJob));
  job.state = Job::State::ready;
  EXPECT_TRUE(observers.may_write(kJob));
  job.ended = true;
  EXPECT_FALSE(observers.may_write(kJob));
  Process& worker = speaker(Talker::worker);
  worker.job_number = job.number;
  EXPECT_TRUE(observers.may_write(kJob));
}

}  // namespace
}  // namespace troupe::agent::observers_test
