// Tests that each line of a worker reaches its driver, its file and `troupe logs`, whole and once.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"
#include "tests/runtime/cli/played_agent.hpp"
#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/wire/log_batch.hpp"

#include <sys/stat.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

namespace troupe::cli {
namespace {

bool is_long() {
  return std::getenv("TROUPE_LONG_TESTS") != nullptr;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns the text after "(NAME pid=… node=…) "; the whole line if it has no such begin.
std::string after_prefix(const std::string& line) {
  const auto end = line.find(") ");
  return line.rfind('(', 0) == 0 && end != std::string::npos ? line.substr(end + 2) : line;
}

/// Expects the lines of many_lines(): each whole, each once, in the order of its writer.
void expect_all(const std::vector<std::string>& lines, int writers, int count) {
  std::map<int, int> next;
  for (const std::string& line : lines) {
    int writer = 0, number = 0;
    char rest[200] = {};
    ASSERT_EQ(std::sscanf(line.c_str(), "w%d %d %199s", &writer, &number, rest), 3) << line;
    ASSERT_EQ(std::string(rest), std::string(20 + static_cast<std::size_t>(writer) * 7,
                                             static_cast<char>('a' + writer)))
        << line;
    ASSERT_EQ(number, next[writer]++) << line;
  }
  for (int writer = 0; writer < writers; ++writer) EXPECT_EQ(next[writer], count) << writer;
}

class Logs : public Clusters {
 protected:
  Outcome run(std::vector<std::string> arguments,
              const std::vector<std::pair<std::string, std::string>>& variables = {}) {
    std::vector<std::string> command{"run", paths::cli_program()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return troupe_command(command, variables);
  }
  static Outcome logs(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), "logs");
    return troupe_command(arguments);
  }
  /// Returns the texts of all files with lines of jobs.
  std::vector<std::string> in_files(std::uint64_t* bytes = nullptr) const {
    std::vector<std::string> texts;
    for (const auto& entry : fs::recursive_directory_iterator(state)) {
      const std::string path = entry.path().string();
      if (entry.path().extension() != ".log" || says(path, "launcher-") || says(path, "events."))
        continue;
      if (bytes != nullptr) *bytes += fs::file_size(entry.path());
      for (const std::string& line : lines_of(text_of(entry.path()))) {
        std::size_t at = 0;
        for (int i = 0; i < 4; ++i) at = line.find('\t', at) + 1;
        texts.push_back(line.substr(at));
      }
    }
    return texts;
  }
};

TEST_F(Logs, ALineOfATaskReachesItsDriverInEachKindOfCluster) {
  const int runs = is_long() ? 200 : 20;
  (void)start({"--nodes", "3", "--cpus", "2"}, "32MiB");
  const fs::path file = state / "out.txt";
  for (int i = 0; i < runs; ++i) {
    for (const std::string where : {" --troupe-nodes 1 --troupe-cpus 2", " --troupe-nodes 3", ""}) {
      std::string command = where.empty() ? std::string(paths::command()) + " run " : "";
      command.append(paths::cli_program()).append(" one_line").append(where);
      command.append(" > ").append(file.string());
      ASSERT_EQ(std::system(command.c_str()), 0) << command;
      const std::vector<std::string> lines = lines_of(text_of(file));
      ASSERT_EQ(lines.size(), 1U) << command << ", run " << i;
      ASSERT_EQ(after_prefix(lines[0]), "step 3") << command << ", run " << i;
      if (where.empty()) {
        ASSERT_EQ(lines[0].rfind("(says::one_line pid=", 0), 0U) << lines[0];
        ASSERT_TRUE(says(lines[0], " node=node-")) << lines[0];
      }
    }
  }
}

TEST_F(Logs, ManyLinesAreWholeAndInOrderInFilesAtTheDriverAndByTheVerb) {
  const int lines = is_long() ? 200'000 : 20'000;
  (void)start({"--nodes", "2", "--cpus", "2"});
  const Outcome outcome = run({"many_lines", "4", std::to_string(lines)});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<std::string> at_driver = lines_of(outcome.out);
  for (std::string& line : at_driver) line = after_prefix(line);
  expect_all(at_driver, 4, lines);
  expect_all(in_files(), 4, lines);
  const Outcome shown = logs();
  ASSERT_EQ(shown.code, 0) << shown.err;
  std::vector<std::string> by_verb = lines_of(shown.out);
  for (std::string& line : by_verb) line = after_prefix(line);
  expect_all(by_verb, 4, lines);
}

TEST_F(Logs, ADriverThatWritesItselfTearsNoLine) {
  (void)start({"--nodes", "1", "--cpus", "2"});
  const Outcome outcome = run({"many_lines", "2", "5000", "and itself"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<std::string> theirs;
  int own = 0;
  for (const std::string& line : lines_of(outcome.out)) {
    if (line == "driver " + std::to_string(own) + " goes on to here")
      ++own;
    else
      theirs.push_back(after_prefix(line));
  }
  EXPECT_EQ(own, 5000);
  expect_all(theirs, 2, 5000);
}

TEST_F(Logs, NoLineIsLostWhenAWorkerIsKilled) {
  (void)start({"--nodes", "1", "--cpus", "2"});
  const Outcome outcome = run({"death", "1000"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 1000U);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(after_prefix(lines[static_cast<std::size_t>(i)]), "last " + std::to_string(i));
}

TEST_F(Logs, TheDriverPrintsEachStreamInTheFormThatItIsAskedFor) {
  (void)start({"--nodes", "1", "--cpus", "2"});
  Outcome outcome = run({"streams"});
  EXPECT_EQ(after_prefix(outcome.out), "to out\n");
  EXPECT_TRUE(says(outcome.err, ") to err\n")) << outcome.err;
  EXPECT_EQ(run({"actor"}).out.rfind("(says::Speaker pid=", 0), 0U);
  outcome = run({"streams"}, {{"TROUPE_LOGS", "plain"}});
  EXPECT_EQ(outcome.out, "to out\n");
  outcome = run({"streams"}, {{"TROUPE_LOGS", "off"}});
  EXPECT_EQ(outcome.out, "");
  EXPECT_FALSE(says(outcome.err, "to err"));
  EXPECT_TRUE(says(logs({"--stderr"}).out, ") to err\n")) << "a file has it in any case";
  outcome = run({"streams"}, {{"TROUPE_LOGS", "loud"}});
  EXPECT_NE(outcome.code, 0);
  EXPECT_TRUE(says(outcome.err, "TROUPE_LOGS is 'loud': give")) << outcome.err;
}

TEST_F(Logs, AProgramTakesTheLinesOfItsJobItself) {
  (void)start({"--nodes", "2", "--cpus", "2"});
  const Outcome outcome = run({"take_lines"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2U) << outcome.out;
  EXPECT_EQ(lines[0], "took 1 says::one_line: step 1");
  EXPECT_EQ(after_prefix(lines[1]), "step 2");
}

TEST_F(Logs, TheVerbChoosesLines) {
  (void)start({"--nodes", "1", "--cpus", "2"});
  ASSERT_EQ(run({"many_lines", "2", "100"}).code, 0);
  EXPECT_EQ(lines_of(logs({"--tail", "3"}).out).size(), 3U);
  EXPECT_EQ(lines_of(logs({"--grep", "^w1 (7|9)0 "}).out).size(), 2U);
  EXPECT_EQ(lines_of(logs({"--since", "10m", "--node", "node-0"}).out).size(), 200U);
  const std::string first = lines_of(logs().out)[0];
  const int pid = std::stoi(first.substr(first.find("pid=") + 4));
  const auto of_one = lines_of(logs({"--pid", std::to_string(pid)}).out);
  EXPECT_GE(of_one.size(), 100U);
  const std::string timed = lines_of(logs({"--time", "--tail", "1"}).out)[0];
  EXPECT_TRUE(timed[4] == '-' && timed[13] == ':' && says(timed, " (says::many_lines pid="))
      << timed;
  const json jobs = rows("jobs");
  const std::string id = jobs[0]["id"];
  EXPECT_EQ(lines_of(logs({id.substr(0, 8), "--tail", "5"}).out).size(), 5U);
  EXPECT_EQ(lines_of(logs({jobs[0]["name"], "--tail", "5"}).out).size(), 5U);
}

TEST_F(Logs, TheVerbRefusesWithASentence) {
  (void)start({"--nodes", "1", "--cpus", "1"});
  EXPECT_TRUE(says(logs().err, "has run no job"));
  ASSERT_EQ(run({"sum", "3"}).code, 0);
  EXPECT_TRUE(says(logs().err, "has no line that is to be shown"));
  EXPECT_EQ(logs().code, 1);
  EXPECT_TRUE(says(logs({"--grep", "("}).err, "--grep: '(' is no POSIX extended expression"));
  EXPECT_TRUE(says(logs({"--since", "noon"}).err, "--since: 'noon' is no time: give one like"));
  EXPECT_TRUE(says(logs({"nobody"}).err, "no job has the name 'nobody', and no id of the jobs"));
  EXPECT_TRUE(says(logs({"--node", "moon"}).err, "no node of the cluster has the name 'moon'"));
  EXPECT_EQ(logs({"--tail", "0"}).code, 2);
}

TEST_F(Logs, NoControlCharacterReachesATerminalUnlessItIsAskedFor) {
  (void)start({"--nodes", "1", "--cpus", "2"});
  ASSERT_EQ(run({"strange"}).code, 0);
  const Outcome shown = logs();
  EXPECT_TRUE(says(shown.out, "title \\x1b]0;owned\\x07 right\\xe2\\x80\\xaeleft\n")) << shown.out;
  EXPECT_TRUE(says(logs({"--raw"}).out, "title \x1b]0;owned\x07 right\xe2\x80\xaeleft\n"));
}

TEST_F(Logs, TheVerbFollowsAJob) {
  (void)start({"--nodes", "1", "--cpus", "2"});
  ASSERT_EQ(run({"one_line"}).code, 0);
  Child follower({paths::command(), "logs", "-f"});
  EXPECT_TRUE(says(follower.read_until("step 3\n"), "step 3\n"));
  EXPECT_EQ(follower.finish(SIGINT), 128 + SIGINT);
}

TEST_F(Logs, ANodeKeepsNoMoreThanItMay) {
  (void)start({"--nodes", "1", "--cpus", "1", "--log-bytes", "1MiB"});
  ASSERT_EQ(run({"kilobytes", "8000"}, {{"TROUPE_LOGS", "off"}}).code, 0);
  std::uint64_t bytes = 0;
  const std::vector<std::string> texts = in_files(&bytes);
  EXPECT_LE(bytes, std::uint64_t{1} << 20);
  EXPECT_GE(bytes, std::uint64_t{1} << 19);
  for (const std::string& text : texts) EXPECT_EQ(text.size(), 1023U);
}

TEST_F(Logs, ADriverThatCannotPrintStopsNoWorkerAndEnds) {
  (void)start({"--nodes", "1", "--cpus", "2"});
  Child driver({paths::command(), "run", paths::cli_program(), "many_lines", "2", "20000"});
  EXPECT_TRUE(eventually([&] { return in_files().size() == 40'000U; }, 60s))
      << "nobody reads the driver's output, and its workers go on";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(eventually([&] { return rows("jobs")[0]["state"] != "running"; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_TRUE(eventually([&] {
    siginfo_t how{};
    return waitid(P_PID, static_cast<id_t>(driver.pid()), &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           how.si_pid != 0;
  })) << "the driver itself ends, too";
}

TEST_F(Logs, TheLastLinesOfAProgramThatEndsTooEarlyStandInItsError) {
  (void)start({"--nodes", "1", "--cpus", "1"});
  const Outcome outcome = run({"early"}, {{"TROUPE_TEST_DRIVER", "1"}});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(says(outcome.err, "Its last lines are:")) << outcome.err;
  EXPECT_TRUE(says(outcome.err, "no licence for this host")) << outcome.err;
}

TEST_F(Logs, AFolderThatIsOpenToOthersIsRefusedAtTheStart) {
  fs::create_directories(state / "open");
  ASSERT_EQ(chmod((state / "open").c_str(), 0777), 0);
  const Outcome outcome =
      troupe_command({"start", "--head", "--state-folder", (state / "open").string()});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_TRUE(says(outcome.err, "is open to others: run 'chmod 700 ")) << outcome.err;
}

/// A node that had lines of a job, has forgotten it, and has lines of it again.
class ForgetfulNode {
 public:
  explicit ForgetfulNode(JobId job) : job_(job) {}
  Blob answer(const wire::Inquire& asked, BlobView payload, NodeId node) {
    if (asked.about == wire::Inquire::About::logs) {
      const std::lock_guard lock(mutex_);
      wire::LogBatch batch;
      batch.begin = asked.logs.after;
      if (asked.logs.after > text_.size()) batch.begin = 0;
      batch.text = text_.substr(batch.begin);
      return wire::encode(batch);
    }
    const auto question = control::decode_to_control(payload);
    EXPECT_TRUE(question);
    control::ListReply reply;
    reply.nodes.emplace_back();
    reply.nodes.back().description.id = node;
    reply.nodes.back().description.name = "node-0";
    reply.jobs.emplace_back();
    reply.jobs.back().id = job_;
    reply.jobs.back().name = "train";
    return control::encode(control::FromControl(reply));
  }
  void set(const std::string& line) {
    std::string text;
    wire::write_record({.time_unix_ns = 1, .pid = 7, .is_error = false, .name = "f", .text = line},
                       text);
    const std::lock_guard lock(mutex_);
    text_ = line.empty() ? "" : text;
  }

 private:
  const JobId job_;
  std::mutex mutex_;
  std::string text_;
};

TEST(LogsOfAForgottenJob, AreFollowedFromTheBeginAgain) {
  ForgetfulNode node(JobId::random());
  node.set("some words at first");
  NodeId id;
  PlayedAgent agent([&](const wire::Inquire& asked, BlobView payload) {
    return node.answer(asked, payload, id);
  });
  id = agent.node();
  Child logs({"/bin/sh", "-c", "exec \"$0\" logs -f --address \"$1\" 2>&1", paths::command(),
              agent.file()});
  EXPECT_TRUE(says(logs.read_until("some words at first\n"), "some words at first\n"));
  node.set("");
  std::this_thread::sleep_for(500ms);  // a look at nothing, or none, makes no difference
  node.set("again");
  const std::string said = logs.read_until("again\n");
  EXPECT_TRUE(says(said, "troupe: node-0 had forgotten the lines of this job") &&
              says(said, ") again\n"))
      << said;
  logs.finish(SIGKILL);
}

}  // namespace
}  // namespace troupe::cli
