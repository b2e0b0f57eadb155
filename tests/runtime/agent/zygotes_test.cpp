// Tests Zygotes with shells that play the zygote's side of the socket: ZYGOTE-1 to ZYGOTE-5.
#include "troupe/runtime/agent/zygotes.hpp"

#include "tests/eventually.hpp"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent::zygotes_test {
namespace {

using namespace std::chrono_literals;
constexpr JobNumber kJob = 7;
constexpr ProcessIndex kWorker = 5, kOther = 6;

struct ZygotesTest : testing::Test, Zygotes::Out, StackAsks::Out {
  ~ZygotesTest() override { zygotes.end_all(); }
  // Zygotes::Out
  void forked(JobNumber job, ProcessIndex worker, pid_t pid) override {
    EXPECT_EQ(job, kJob);
    pids[worker] = pid;
  }
  void ended(ProcessIndex worker, pid_t pid, int status) override {
    EXPECT_EQ(pids[worker], pid);
    statuses[worker].push_back(status);
  }
  void not_forked(ProcessIndex worker, int error) override { errors[worker].push_back(error); }
  void gone(ProcessIndex worker, const std::string& why) override { lost[worker].push_back(why); }
  void zygote_gone(JobNumber job, bool was_ready) override {
    ends.push_back(was_ready);
    zygotes.leave(job, {kWorker, kOther}, "its zygote is gone");
  }
  void answer_stacks(const Asker&, const std::string&) override {}

  /// Starts a zygote that runs this script. In it, `say KIND TOKEN PID STATUS` sends an event, and
  /// `order` takes one.
  void start(const std::string& script) {
    Job job;
    job.number = kJob;
    job.program.path = "/bin/bash";
    job.program.arguments = {
        "bash", "-c",
        "fd=${TROUPE_ROLE#*:}; fd=${fd%%:*}\n"
        "word() { printf '\\\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) 0; }\n"
        "say() { printf \"$(word $1)$(word 0)$(word $2)$(word 0)$(word $3)$(word $4)\" |\n"
        // The shell alone would send two messages where a byte of a pid is a line's end.
        "  dd bs=4096 count=1 iflag=fullblock status=none >&$fd; }\n"
        "order() { dd bs=4096 count=1 status=none <&$fd >/dev/null; }\n" +
            script};
    ASSERT_TRUE(zygotes.start(job).ok());
  }
  void order(ProcessIndex worker) {
    auto ends_of = os::LocalSocket::pair().value();
    ASSERT_TRUE(zygotes.fork_worker(kJob, worker, std::move(ends_of.second), {}));
  }
  void pass() {
    PollSet set;
    zygotes.on_timer();
    zygotes.wait_for(set);
    set.wait(1ms);
    zygotes.serve(set);
  }
  template <class IsSo>
  bool passes_until(const IsSo& is_so) {
    return eventually([&] {
      pass();
      return is_so();
    });
  }
  pid_t pid() const { return zygotes.all().at(kJob).pid; }

  std::map<ProcessIndex, pid_t> pids;
  std::map<ProcessIndex, std::vector<int>> statuses, errors;
  std::map<ProcessIndex, std::vector<std::string>> lost;
  std::vector<bool> ends;  ///< of zygotes: whether each was ready
  std::unique_ptr<Programs> programs;
  std::unique_ptr<NodeLogs> logs;
  StackAsks stacks{*this};
  Zygotes zygotes{{programs, logs, stacks, *this}};
};

TEST_F(ZygotesTest, JobHasOneZygote) {
  start("order");
  const pid_t first = pid();
  start("exit 3");
  EXPECT_EQ(pid(), first);
  EXPECT_EQ(zygotes.all().size(), 1u);
  EXPECT_FALSE(zygotes.all().at(kJob).ready);
}

TEST_F(ZygotesTest, ProgramThatCannotBeStartedIsAnError) {
  Job job;
  job.number = kJob;
  job.program.path = "/nowhere/at/all";
  const auto started = zygotes.start(job);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code(), Code::unavailable);
  EXPECT_TRUE(zygotes.all().empty());
}

TEST_F(ZygotesTest, WorkerIsReportedByItsZygote) {
  start("say 1 0 $$ 0; order; say 2 5 2570 0; order; say 4 6 0 11; say 3 5 2570 256; order");
  order(kWorker);
  order(kOther);
  ASSERT_TRUE(passes_until([&] { return !statuses[kWorker].empty(); }));
  EXPECT_TRUE(zygotes.all().at(kJob).ready);
  EXPECT_EQ(pids[kWorker], 2570);  // 0x0a0a, two ends of a line
  EXPECT_EQ(statuses[kWorker], std::vector<int>{256});
  EXPECT_EQ(errors[kOther], std::vector<int>{11});
  EXPECT_TRUE(lost.empty() && ends.empty());
}

TEST_F(ZygotesTest, WorkersOfADeadZygoteAreGoneOnceAfterItsEnd) {
  start("say 1 0 $$ 0; order; exit 3");
  order(kWorker);
  ASSERT_TRUE(passes_until([&] { return lost.size() == 2; }));
  EXPECT_EQ(ends, std::vector<bool>{true});
  EXPECT_EQ(zygotes.next_deadline(), Time::max()) << "no orphan is left";
  pass();
  EXPECT_EQ(lost[kWorker], std::vector<std::string>{"its zygote is gone"});
  EXPECT_EQ(lost[kOther].size(), 1u);
}

TEST_F(ZygotesTest, KilledZygoteReportsItsOrphansAndNotItself) {
  start("order");
  const pid_t killed = pid();
  EXPECT_TRUE(zygotes.kill(kJob, {kWorker}, "its job has ended"));
  EXPECT_FALSE(zygotes.kill(kJob, {kOther}, "it has none now"));
  ASSERT_TRUE(passes_until([&] { return !lost.empty(); }));
  EXPECT_EQ(lost[kWorker], std::vector<std::string>{"its job has ended"});
  EXPECT_EQ(lost.count(kOther), 0u);
  EXPECT_TRUE(ends.empty());
  EXPECT_NE(::kill(killed, 0), 0);
  start("order");
  EXPECT_NE(pid(), killed);
}

TEST_F(ZygotesTest, ZygoteThatDoesNotEndIsKilled) {
  start("trap '' HUP; while :; do sleep 0.1; done");
  const pid_t stubborn = pid();
  const Time before = steady_now();
  zygotes.leave(kJob, {kWorker}, "a test ends it");
  EXPECT_GT(zygotes.next_deadline(), before + 1s);
  pass();
  EXPECT_TRUE(lost.empty());
  EXPECT_EQ(::kill(stubborn, 0), 0) << "it has some time";
  ASSERT_TRUE(passes_until([&] { return !lost.empty(); }));
  EXPECT_NE(::kill(stubborn, 0), 0);
}

TEST_F(ZygotesTest, ChildMayTakeThePlaceOfAProgramThatExitsWell) {
  start("(while [ -e /proc/$$/exe ]; do sleep 0.01; done; say 1 0 $BASHPID 0; order) & exit 0");
  const pid_t first = pid();
  ASSERT_TRUE(passes_until([&] { return pid() != first; }));
  EXPECT_TRUE(ends.empty());
  EXPECT_TRUE(zygotes.all().at(kJob).ready);
  EXPECT_NE(::kill(first, 0), 0) << "it was reaped";
}

TEST_F(ZygotesTest, ProgramThatFailsBeforeItIsReadyIsGone) {
  start("exit 3");
  ASSERT_TRUE(passes_until([&] { return !ends.empty(); }));
  EXPECT_EQ(ends, std::vector<bool>{false});
}

TEST_F(ZygotesTest, ZygoteThatWasLeftInThisPassIsNotGoneOnceMore) {
  start("exit 3");
  PollSet set;
  zygotes.wait_for(set);
  ASSERT_GT(set.wait(20s), 0) << "it has ended";
  zygotes.leave(kJob, {kWorker}, "a test leaves it");
  zygotes.serve(set);
  EXPECT_TRUE(ends.empty());
  ASSERT_TRUE(passes_until([&] { return !lost.empty(); }));
  EXPECT_EQ(lost[kWorker], std::vector<std::string>{"a test leaves it"});
}

TEST_F(ZygotesTest, NothingIsLeftAtTheEndOfTheNode) {
  start("order");
  const pid_t last = pid();
  zygotes.end_all();
  EXPECT_NE(::kill(last, 0), 0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "no child is left";
  EXPECT_TRUE(lost.empty()) << "the node is over";
}

}  // namespace
}  // namespace troupe::agent::zygotes_test
