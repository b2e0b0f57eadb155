#include "operate/commands.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

extern char** environ;

namespace troupe::bench {

namespace fs = std::filesystem;

std::string beside(const std::string& name) {
  return (fs::read_symlink("/proc/self/exe").parent_path() / name).string();
}

Command::Command(std::vector<std::string> words, const fs::path& out)
    : name_(fs::path(words.at(0)).filename().string()) {
  std::array<int, 2> in{-1, -1}, back{-1, -1};
  expect(pipe2(in.data(), O_CLOEXEC) == 0 && pipe2(back.data(), O_CLOEXEC) == 0, "a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  if (out.empty())
    posix_spawn_file_actions_adddup2(&actions, back[1], 1);
  else
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int failed = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(back[1]);
  to_ = fdopen(in[1], "w");
  from_ = fdopen(back[0], "r");
  if (failed != 0) throw std::runtime_error(name_ + " is not beside this program");
  expect(to_ != nullptr && from_ != nullptr, "streams of a child");
}

Command::~Command() {
  if (to_ != nullptr) std::fclose(to_);
  if (from_ != nullptr) std::fclose(from_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Command::say(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
}

std::string Command::line() {
  std::array<char, 65536> text{};
  if (std::fgets(text.data(), text.size(), from_) == nullptr)
    throw std::runtime_error(name_ + " ended before it answered");
  return text.data();
}

void Command::finish() {
  std::fclose(std::exchange(to_, nullptr));
  std::array<char, 4096> rest{};
  while (std::fread(rest.data(), 1, rest.size(), from_) > 0) {
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error(name_ + " failed");
}

OneNode::OneNode(int cpus) {
  fs::create_directory(folder_.path() / "run");
  fs::permissions(folder_.path() / "run", fs::perms::owner_all);
  setenv("XDG_RUNTIME_DIR", (folder_.path() / "run").c_str(), 1);
  setenv("XDG_STATE_HOME", state().c_str(), 1);
  unsetenv("TROUPE_ADDRESS");
  Command start({beside("troupe"), "start", "--head", "--json", "--cpus", std::to_string(cpus),
                 "--memory", "64MiB"});
  start.finish();
}

OneNode::~OneNode() {
  try {
    Command({beside("troupe"), "stop", "--all"}).finish();
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "a cluster is left: %s\n", failed.what());
  }
  unsetenv("XDG_RUNTIME_DIR");
  unsetenv("XDG_STATE_HOME");
}

}  // namespace troupe::bench
