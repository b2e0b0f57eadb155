// The suite "operate": what logs and questions about a running cluster cost.
#include "operate/commands.hpp"
#include "suite.hpp"
#include "tools.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kWriters = 4, kLines = 200'000, kQuickLines = 500;
constexpr int kTasks = 1'000'000, kQuickTasks = 2'000;
constexpr int kSubmits = 1'000'000;  ///< thrice as many and kTasks fit the queue of a process

// --- lines

void write_lines(int writer, int count, int fd) {
  std::FILE* const out = fdopen(fd, "w");
  std::setvbuf(out, nullptr, _IOLBF, 0);
  for (int i = 0; i < count; ++i)
    std::fprintf(out, "writer %d line %d of a log that somebody reads\n", writer, i);
  std::fclose(out);
}

/// Processes that end with this object.
struct Writers {
  std::vector<pid_t> pids;
  ~Writers() {
    for (const pid_t pid : pids) kill(pid, SIGKILL);
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
  }
};

/// Waits until a pipe has something or is closed.
void await_any(std::vector<pollfd>& pipes) {
  constexpr auto kMost = std::chrono::milliseconds(kBound).count();
  const int ready = poll(pipes.data(), pipes.size(), static_cast<int>(kMost));
  if (ready == 0)
    throw std::runtime_error("the writers of lines have written nothing for " +
                             std::to_string(kBound.count()) + " s");
  expect(ready > 0 || errno == EINTR, "the pipes of writers cannot be waited for");
}

/// Copies what comes out of the pipes to the file, until all are closed.
void copy_pipes(std::vector<pollfd> pipes, int file) {
  static std::array<char, 1 << 16> piece;
  for (std::size_t open = pipes.size(); open > 0;) {
    await_any(pipes);
    for (pollfd& pipe : pipes) {
      if (pipe.revents == 0) continue;
      const ssize_t got = read(pipe.fd, piece.data(), piece.size());
      if (got > 0) {
        expect(write(file, piece.data(), static_cast<std::size_t>(got)) == got, "a file to write");
      } else {
        close(pipe.fd);
        pipe.fd = -1;
        --open;
      }
    }
  }
}

/// The seconds in which four processes write as many lines through pipes to one file.
double seconds_of_pipes() {
  const ScratchFolder folder;
  std::vector<pollfd> pipes;
  Writers writers;
  const Stopwatch watch;
  for (int i = 0; i < kWriters; ++i) {
    std::array<int, 2> ends{-1, -1};
    expect(pipe2(ends.data(), O_CLOEXEC) == 0, "a pipe");
    const pid_t writer = fork();
    expect(writer >= 0, "a writer");
    if (writer == 0) {
      for (const pollfd& pipe : pipes) close(pipe.fd);
      close(ends[0]);
      write_lines(i, kLines, ends[1]);
      _exit(0);
    }
    close(ends[1]);
    writers.pids.push_back(writer);
    pipes.push_back({ends[0], POLLIN, 0});
  }
  const int file = open((folder.path() / "all.log").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  expect(file >= 0, "a file to write");
  copy_pipes(std::move(pipes), file);
  const double seconds = watch.seconds();
  close(file);
  return seconds;
}

/// What a run of the writers has left in files.
struct Written {
  int lines = 0;
  double last = 0;  ///< Unix time in seconds of the last write
};

void look_at(const fs::path& file, Written& written) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.find("of a log that somebody reads") != std::string::npos) ++written.lines;
  struct stat about{};
  if (stat(file.c_str(), &about) != 0) return;
  written.last = std::max(written.last, static_cast<double>(about.st_mtim.tv_sec) +
                                            static_cast<double>(about.st_mtim.tv_nsec) * 1e-9);
}

Written in_log_files(const fs::path& state) {
  Written written;
  for (const auto& entry : fs::recursive_directory_iterator(state))
    if (entry.path().extension() == ".log" &&
        entry.path().filename().string().find("launcher") == std::string::npos)
      look_at(entry.path(), written);
  return written;
}

/// Times of files are as coarse as the kernel's tick.
constexpr double kClockTick = 0.004;

/// The seconds from the begin of four workers until their lines are in files: in those of the node,
/// or in the one of the driver.
double seconds_of_lines(const OneNode& cluster, bool at_driver, bool quick) {
  const ScratchFolder folder;
  const fs::path out = folder.path() / "driver.out";
  const int lines = quick ? kQuickLines : kLines;
  setenv("TROUPE_LOGS", at_driver ? "prefix" : "off", 1);
  const Written before = in_log_files(cluster.state());
  Command run({beside("troupe"), "run", beside("operate_peer"), "lines", std::to_string(kWriters),
               std::to_string(lines), folder.path().string()},
              out);
  run.finish();
  unsetenv("TROUPE_LOGS");
  double begun = 0;
  std::ifstream(folder.path() / "begun") >> begun;
  Written written;
  const Stopwatch watch;
  do {
    written = {};
    if (at_driver) {
      look_at(out, written);
    } else {
      written = in_log_files(cluster.state());
      written.lines -= before.lines;
    }
  } while (written.lines < kWriters * lines && watch.seconds() < 10);
  expect(written.lines == kWriters * lines, "all lines are there, each once");
  return std::max(written.last - begun * 1e-9, kClockTick);
}

// --- state

/// What resident memory is counted in.
constexpr double kPageMib = 1.0 / 256;

struct State {
  double filter = 0, walk = 0;  ///< seconds
  double longest_us = 0, grown_mib = 0;
};

State state_of(bool quick) {
  Command measures({beside("operate_state"), std::to_string(quick ? kQuickTasks : kTasks)});
  std::istringstream line(measures.line());
  State state;
  line >> state.filter >> state.walk >> state.longest_us >> state.grown_mib;
  expect(!line.fail(), "four numbers");
  measures.finish();
  return state;
}

/// The rate of submits of a driver that is asked for its tasks once a second, and of one that is not.
/// The cluster's CPUs are all taken. The tasks that fit the driver's queue are submitted in less than
/// a second, so one question is asked while they are, and its cost is taken from a second.
std::pair<double, double> submit_rates(const OneNode&, bool quick) {
  const ScratchFolder folder;
  const int submits = quick ? kQuickTasks : kSubmits;
  Command driver({beside("troupe"), "run", beside("operate_peer"), "waiting",
                  std::to_string(kWriters), std::to_string(quick ? kQuickTasks : kTasks),
                  std::to_string(submits), folder.path().string()});
  expect(driver.line() == "waiting\n", "tasks that wait");
  const auto seconds = [&] { return submits / std::stod(driver.line()); };
  driver.say("submit");
  Command ask({beside("troupe"), "list", "tasks", "--where", "state = running", "--json"});
  ask.finish();
  const double asked = seconds();
  driver.say("submit");
  const double second = seconds();
  driver.say("submit");
  const double calm = (second + seconds()) / 2;
  std::ofstream(folder.path() / "go") << "go";
  driver.finish();
  return {submits / calm * (1 - (asked - calm)), submits / calm};
}

class Operate final : public Suite {
 public:
  const char* name() const override { return "operate"; }
  std::span<const RowInfo> rows() const override { return rows_; }
  int calm_floor() const override { return 0; }
  Sample measure_floor(int, Placement placement) override {
    go_to({cpu_of(placement, 0), cpu_of(placement, 1)});
    const Sample sample = median_of(3, seconds_of_pipes);
    go_to(allowed_cpus());
    return sample;
  }
  std::vector<Reading> measure(std::span<const std::size_t> rows, Placement, bool quick) override {
    Scene scene{quick, {}, {}, {}};
    std::vector<Reading> readings;
    for (const std::size_t row : rows) readings.push_back(reading(row, scene));
    return readings;
  }

 private:
  /// What rows of one round share.
  struct Scene {
    bool quick;
    std::optional<OneNode> cluster;
    std::optional<double> lines;
    std::optional<State> state;
    const OneNode& node() { return cluster ? *cluster : cluster.emplace(kWriters); }
    const State& of_state() { return state ? *state : state.emplace(state_of(quick)); }
    double of_lines() {
      if (!lines) lines = seconds_of_lines(node(), false, quick);
      return *lines;
    }
  };
  static Reading reading(std::size_t row, Scene& scene) {
    switch (row) {
      case 0: return {scene.of_lines()};
      case 1: {
        const double files = scene.of_lines();
        const double driver = seconds_of_lines(scene.node(), true, scene.quick);
        return {driver, files, driver / files};
      }
      case 2: {
        const State& state = scene.of_state();
        return {state.filter, state.walk, state.filter / state.walk};
      }
      case 3: return {scene.of_state().longest_us};
      case 4: return {std::max(scene.of_state().grown_mib, kPageMib)};
      default: {
        const auto [asked, calm] = submit_rates(scene.node(), scene.quick);
        return {asked, calm, asked / calm};
      }
    }
  }
  static constexpr auto kRatio = Goal::Of::ratio;
  static constexpr auto kValue = Goal::Of::value;
  std::array<RowInfo, 6> rows_{{
      {"log_lines", "s", 0, at_most(kRatio, 1.3), false},
      {"log_driver", "s", kNoFloor, at_most(kRatio, 1.6), false},
      {"state_million", "s", kNoFloor, at_most(kRatio, 10), false},
      {"state_lock", "us", kNoFloor, at_most(kValue, 1000), false},
      {"state_memory", "MiB", kNoFloor, at_most(kValue, 8), false},
      {"state_submits", "tasks/s", kNoFloor, at_least(kRatio, 0.97), false},
  }};
};

}  // namespace

Suite& operate_suite() {
  static Operate suite;
  return suite;
}

}  // namespace troupe::bench
