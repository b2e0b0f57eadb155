// Tests the logs of a node: pipes of workers that write, hang and die, and questions about lines.
#include "troupe/runtime/agent/node_logs.hpp"

#include "tests/runtime/agent/faulty_files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>
#include <string>
#include <vector>

namespace troupe::agent::node_logs_test {
namespace {

using namespace std::chrono_literals;

struct World final : NodeLogs::Out {
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  NodeLogs logs;
  JobId job = JobId::random();
  JobNumber number = JobNumber::of(1);
  std::set<JobId> running;
  std::string name;
  std::vector<wire::LogBatch> answers;
  Time now = steady_now();

  explicit World(LogStore::Limits limits = {})
      : logs(*this, {"node-7", std::make_unique<FaultyFiles>(faults), limits}) {
    running.insert(job);
  }
  void answer_logs(const Asker&, const wire::LogBatch& batch) override { answers.push_back(batch); }
  bool may_write(JobId id) override { return running.count(id) != 0; }
  std::string name_of(ProcessIndex) override { return name; }

  os::OutputEnds worker(std::uint64_t index) {
    os::OutputEnds ends = logs.add_worker(ProcessIndex::of(index), number, job);
    EXPECT_TRUE(ends);
    fcntl(ends.out.get(), F_SETFL, O_NONBLOCK);
    logs.forked(ProcessIndex::of(index), static_cast<pid_t>(index));
    return ends;
  }
  /// Serves once. The time stands still, but for the rest of pipes.
  void serve() {
    const Time next = logs.next_deadline();
    if (next > now && next <= now + 1ms) now = next;
    logs.serve(now);
  }
  /// Whether a full writer makes workers wait.
  bool makes_wait() const {
    const Time next = logs.next_deadline();
    return next > now + 1s && next != Time::max();
  }
  /// Serves until the condition holds, as the loop of an agent does.
  template <class IsSo>
  bool serve_until(const IsSo& is_so) {
    const Time until = steady_now() + 20s;
    while (!is_so()) {
      if (steady_now() > until) return false;
      pollfd entry{logs.fd(), POLLIN, 0};
      poll(&entry, 1, logs.next_deadline() <= now + 1ms ? 0 : 20);
      serve();
    }
    return true;
  }
  bool has_texts(std::size_t count) {
    return serve_until([&] { return texts_of(faults->text_of(job.str())).size() >= count; });
  }
  std::vector<std::string> texts() { return texts_of(faults->text_of(job.str())); }
  void ask(std::uint64_t after, Duration wait = 10s, bool until_complete = false) {
    logs.ask({{ProcessIndex::of(1), {}, 1}, job, after, 0, wait, until_complete}, now);
  }
};

void say(const Fd& fd, const std::string& text) {
  ASSERT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST(NodeLogs, KeepsTheLinesOfEachStreamWithTheNameOfWhatRuns) {
  World world;
  os::OutputEnds ends = world.worker(5);
  world.name = "mix(int, double)";
  say(ends.out, "one\ntw");
  say(ends.err, "wrong\n");
  ASSERT_TRUE(world.has_texts(2));
  world.name = "(lambda at f.cpp:7)";
  say(ends.out, "o\n");
  ASSERT_TRUE(world.has_texts(3));
  std::set<std::string> seen;
  wire::each_record(world.faults->text_of(world.job.str()), [&](const wire::LogRecord& one) {
    EXPECT_EQ(one.pid, 5);
    EXPECT_GT(one.time_unix_ns, 0);
    seen.insert(std::string(one.name) + (one.is_error ? " e " : " o ") + std::string(one.text));
  });
  EXPECT_EQ(seen, (std::set<std::string>{"mix o one", "mix e wrong", "(lambda at f.cpp:7) o two"}));
}

TEST(NodeLogs, ReadsThePipeOfADeadWorkerUntilItIsEmptyAndNotUntilItIsClosed) {
  World world;
  os::OutputEnds ends = world.worker(5);  // a process that it has started keeps them
  say(ends.out, "first\nlast without a newline");
  EXPECT_EQ(world.logs.ended(ProcessIndex::of(5), world.number), "first\nlast without a newline\n");
  EXPECT_EQ(world.logs.ended(ProcessIndex::of(5), world.number), "");
  ASSERT_TRUE(world.has_texts(2));
  EXPECT_EQ(world.texts()[1], "last without a newline");
  std::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(write(ends.out.get(), "late\n", 5), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST(NodeLogs, GivesTheLastLinesOfAZygote) {
  World world;
  os::OutputEnds ends = world.logs.add_zygote(world.number, world.job);
  world.logs.zygote_started(world.number, 4);
  say(ends.err, "loading\nno licence\n");
  EXPECT_EQ(world.logs.zygote_ended(world.number), "loading\nno licence\n");
  EXPECT_EQ(world.logs.zygote_ended(world.number), "");
  ends = world.logs.add_zygote(world.number, world.job);
  for (int i = 0; i < 60; ++i) say(ends.err, std::string(1000, 'x') + "\n");
  EXPECT_LE(world.logs.zygote_ended(world.number).size(), LastLines::kBytes);
}

TEST(NodeLogs, AnswersAQuestionWhenLinesCome) {
  World world;
  const os::OutputEnds ends = world.worker(5);
  world.ask(0);
  world.logs.serve(world.now);
  EXPECT_TRUE(world.answers.empty());
  say(ends.out, "one\n");
  ASSERT_TRUE(world.serve_until([&] { return !world.answers.empty(); }));
  EXPECT_EQ(texts_of(world.answers[0].text), std::vector<std::string>{"one"});
  EXPECT_FALSE(world.answers[0].complete);
  world.ask(world.answers[0].next(), 10s);
  world.now += 10s;
  ASSERT_TRUE(world.serve_until([&] { return world.answers.size() == 2; })) << "after its time";
  EXPECT_EQ(world.answers[1].text, "");
  EXPECT_EQ(world.answers[1].begin, world.answers[0].next());
}

TEST(NodeLogs, TellsAReaderOfAForgottenJobThatItsOffsetsBeginAgain) {
  LogStore::Limits limits;
  limits.files = 1;  // and two jobs are remembered
  World world(limits);
  const os::OutputEnds ends = world.worker(5);
  say(ends.out, "some words at first\n");
  world.ask(0);
  ASSERT_TRUE(world.serve_until([&] { return world.answers.size() == 1; }));
  const std::uint64_t after = world.answers[0].next();
  for (const std::uint64_t index : {6, 7}) {
    const JobId other = JobId::random();
    const os::OutputEnds others =
        world.logs.add_worker(ProcessIndex::of(index), JobNumber::of(index), other);
    world.logs.forked(ProcessIndex::of(index), static_cast<pid_t>(index));
    say(others.out, "other\n");
    ASSERT_TRUE(world.serve_until([&] { return !world.faults->text_of(other.str()).empty(); }));
  }
  world.ask(after, 0s);
  ASSERT_TRUE(world.serve_until([&] { return world.answers.size() == 2; }));
  EXPECT_EQ(world.answers[1].begin, 0U) << "nothing of it is known";
  EXPECT_EQ(world.answers[1].text, "");
  world.ask(after);
  world.serve();
  EXPECT_EQ(world.answers.size(), 2U) << "it waits for lines";
  say(ends.out, "more\n");
  ASSERT_TRUE(world.serve_until([&] { return world.answers.size() == 3; }));
  EXPECT_EQ(world.answers[2].begin, 0U);
  EXPECT_EQ(texts_of(world.answers[2].text), std::vector<std::string>{"more"});
}

TEST(NodeLogs, AnswersThatALogIsCompleteWhenItsJobHasEnded) {
  World world;
  const os::OutputEnds ends = world.worker(5);
  world.ask(0, 10s, true);
  say(ends.out, "last\n");
  world.logs.ended(ProcessIndex::of(5), world.number);
  world.running.clear();
  world.logs.look_again();
  ASSERT_TRUE(world.serve_until([&] { return !world.answers.empty(); }));
  std::uint64_t next = world.answers[0].next();
  EXPECT_EQ(texts_of(world.answers[0].text), std::vector<std::string>{"last"});
  world.ask(next, 10s, true);
  ASSERT_TRUE(world.serve_until([&] { return world.answers.size() == 2; }));
  EXPECT_TRUE(world.answers[1].complete);
  EXPECT_EQ(world.logs.next_deadline(), Time::max());
  world.ask(0, 10s, true);
  world.logs.forget(ProcessIndex::of(1));
  world.serve_until([&] { return world.logs.next_deadline() == Time::max(); });
  EXPECT_EQ(world.answers.size(), 2U) << "its asker has ended";
}

TEST(NodeLogs, LooksAgainAtTheEndOfAWorkerWhosePipesAreClosedAlready) {
  World world;
  os::OutputEnds ends = world.worker(5);
  world.ask(0, 10s, true);
  ends = {};
  for (int i = 0; i < 3; ++i) {
    pollfd entry{world.logs.fd(), POLLIN, 0};
    (void)poll(&entry, 1, 100);
    world.logs.serve(world.now);
  }
  EXPECT_TRUE(world.answers.empty());
  world.running.clear();
  world.logs.ended(ProcessIndex::of(5), world.number);
  EXPECT_EQ(world.logs.next_deadline(), Time{}) << "nothing else wakes the loop";
  world.logs.serve(world.now);
  ASSERT_EQ(world.answers.size(), 1U);
  EXPECT_TRUE(world.answers[0].complete);
}

/// Writes lines until the pipe is full and nobody reads it. Returns how many.
std::size_t fill(World& world, const Fd& pipe, const std::string& line) {
  std::size_t written = 0;
  for (int quiet = 0; quiet < 3;) {
    if (write(pipe.get(), line.data(), line.size()) > 0) {
      ++written;
      quiet = 0;
    } else {
      ++quiet;
      pollfd entry{world.logs.fd(), POLLIN, 0};
      (void)poll(&entry, 1, 10);
      world.serve();
    }
  }
  return written;
}

/// Serves until the job's file has each of the lines or counts it as lost.
testing::AssertionResult accounts_for(World& world, std::size_t written) {
  std::size_t lost = 0, kept = 0;
  const bool all = world.serve_until([&] {
    lost = kept = 0;
    for (const std::string& text : world.texts())
      if (text.find(" of this job are lost on node-7: ") != std::string::npos)
        lost += std::stoul(text);
      else
        ++kept;
    return lost != 0 && lost + kept == written;
  });
  if (all) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << lost << " lines are counted, " << kept << " kept, " << written << " written";
}

/// The disk hangs. Workers wait, then their lines are counted, and a line tells how many.
TEST(NodeLogs, CountsLinesWhenTheDiskHangsForLong) {
  World world;
  const os::OutputEnds ends = world.worker(5);
  world.faults->set(false, true);
  const std::string line = std::string(1023, 'x') + "\n";
  std::size_t written = fill(world, ends.out, line);
  EXPECT_GE(written, LogWriter::kMostQueued / line.size() / 2);
  const Time drops = world.logs.next_deadline();
  ASSERT_EQ(drops, world.now + NodeLogs::kPatience);
  world.now = drops;
  const std::size_t before = written;
  for (int i = 0; i < 3000; ++i) {  // three pipes full: workers do not wait any more
    world.serve();
    if (write(ends.out.get(), line.data(), line.size()) > 0) ++written;
  }
  EXPECT_GT(written, before + 1000);
  world.faults->set(false, false);
  EXPECT_TRUE(accounts_for(world, written));
  say(ends.out, "after\n");
  ASSERT_TRUE(world.serve_until([&] { return world.texts().back() == "after"; }));
}

TEST(NodeLogs, CountsTheLinesForWhichTheWriterHasNoRoomWhenTheNodeEnds) {
  World world;
  const os::OutputEnds ends = world.worker(5);
  world.faults->set(false, true);
  const std::size_t written = fill(world, ends.out, std::string(1023, 'x') + "\n");
  world.logs.end();
  world.faults->set(false, false);
  EXPECT_TRUE(accounts_for(world, written));
}

TEST(NodeLogs, KeepsNoLastLinesOfProcessesWhoseEndIsKnown) {
  World world;
  const os::OutputEnds busy = world.worker(5);
  const os::OutputEnds late = world.worker(6);
  const os::OutputEnds zygote = world.logs.add_zygote(world.number, world.job);
  world.faults->set(false, true);
  const std::string line = std::string(1023, 'x') + "\n";
  while (!world.makes_wait()) {  // until no pipe is read
    while (write(busy.out.get(), line.data(), line.size()) > 0) {
    }
    world.serve();
  }
  say(late.out, "late\n");
  say(zygote.out, "late\n");
  EXPECT_EQ(world.logs.ended(ProcessIndex::of(6), world.number), "") << "it cannot be read yet";
  EXPECT_EQ(world.logs.zygote_ended(world.number), "");
  EXPECT_NE(world.logs.ended(ProcessIndex::of(5), world.number), "");
  world.logs.job_over(world.number);
  world.faults->set(false, false);
  EXPECT_TRUE(world.serve_until([&] {
    const std::vector<std::string> texts = world.texts();
    return std::count(texts.begin(), texts.end(), "late") == 2;
  }));
  EXPECT_EQ(world.logs.kept_last_lines(), 0U);
}

TEST(NodeLogs, LeavesTheZygotesOutputWhenHalfOfTheDescriptorsAreTaken) {
  World world;
  std::vector<Fd> taken;
  rlimit limit{}, small{};
  getrlimit(RLIMIT_NOFILE, &limit);
  small = limit;
  small.rlim_cur = 256;
  setrlimit(RLIMIT_NOFILE, &small);
  while (!os::is_in_upper_half(taken.empty() ? 0 : taken.back().get()))
    taken.emplace_back(dup(world.logs.fd()));
  EXPECT_FALSE(world.logs.add_worker(ProcessIndex::of(9), world.number, world.job));
  taken.clear();
  EXPECT_TRUE(world.logs.add_worker(ProcessIndex::of(10), world.number, world.job));
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace troupe::agent::node_logs_test
