/// Helpers of the command line's tests that start, query and end clusters.
#pragma once

#include "tests/eventually.hpp"
#include "tests/runtime/cli/command.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

extern char** environ;

namespace troupe::cli {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline bool runs(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name, state;
  return static_cast<bool>(stat >> id >> name >> state) && state != "Z";
}

/// A child whose stdin and stdout the test holds.
class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  ~Child() {
    if (pid_ > 0) finish(SIGKILL);
    close_input();
    close(out_);
  }
  pid_t pid() const { return pid_; }
  void close_input() {
    if (in_ >= 0) close(in_);
    in_ = -1;
  }
  void say(const std::string& text) {
    EXPECT_EQ(write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  /// Returns its output up to and with the text, or all of it when the time is over.
  std::string read_until(const std::string& text, std::chrono::seconds within = 20s) {
    const auto deadline = std::chrono::steady_clock::now() + within;
    while (!says(seen_, text) && std::chrono::steady_clock::now() < deadline) {
      pollfd entry{out_, POLLIN, 0};
      if (poll(&entry, 1, 1000) <= 0) continue;
      char buffer[4096];
      const ssize_t n = read(out_, buffer, sizeof buffer);
      if (n <= 0) break;
      seen_.append(buffer, static_cast<std::size_t>(n));
    }
    return seen_;
  }
  /// Returns its next line, without the end of line.
  std::string line() {
    if (!says(read_until("\n", 30s), "\n")) return "no line within 30 s, or its output ended";
    const std::string first = seen_.substr(0, seen_.find('\n'));
    seen_.erase(0, first.size() + 1);
    return first;
  }
  /// Sends the signal (0: none) and returns its exit code.
  int finish(int signal) {
    if (signal != 0) ::kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1, out_ = -1;
  std::string seen_;
};

class Clusters : public testing::Test {
 protected:
  void SetUp() override {
    std::string text = testing::TempDir() + "troupe-up-XXXXXX";
    ASSERT_NE(mkdtemp(text.data()), nullptr);
    folder = text;
    setenv("XDG_RUNTIME_DIR", text.c_str(), 1);
    state = text + "-state";
    setenv("XDG_STATE_HOME", state.c_str(), 1);
    unsetenv("TROUPE_ADDRESS");
  }
  void TearDown() override {
    (void)troupe_command({"stop", "--all"});
    EXPECT_TRUE(fs::is_empty(folder)) << "cluster files and their folder go";
    for (const char* name : {"XDG_RUNTIME_DIR", "XDG_STATE_HOME"}) unsetenv(name);
    fs::remove_all(folder);
    fs::remove_all(state);
  }
  /// Starts a cluster in the background and returns its JSON document.
  json start(std::vector<std::string> more, const std::string& memory = "64MiB") {
    std::vector<std::string> arguments{"start", "--head", "--json", "--memory", memory};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = troupe_command(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
  static json ask(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Outcome outcome = troupe_command(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
  /// Returns the rows of the list's document.
  static json rows(const std::string& kind, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"list", kind});
    return ask(std::move(more))["rows"];
  }
  /// Returns the nodes that have neither died nor left.
  static json living_nodes() {
    return rows("nodes", {"--where", "state != dead and state != left"});
  }
  /// Expects that none of the cluster's processes is left within 10 s.
  static void expect_ended(const json& cluster) {
    EXPECT_TRUE(eventually([&] {
      for (const json& node : cluster["nodes"])
        if (runs(node["pid"])) return false;
      return !runs(cluster["launcher"]);
    }));
  }
  fs::path folder;
  fs::path state;  ///< for XDG_STATE_HOME
};

}  // namespace troupe::cli
