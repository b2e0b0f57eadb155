#include "operate/commands.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <utility>

extern char** environ;

namespace troupe::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::runtime_error too_late(const std::string& name, const char* what) {
  return std::runtime_error(name + " has not " + what + " within " +
                            std::to_string(kBound.count()) + " s");
}

}  // namespace

std::string beside(const std::string& name) {
  return (fs::read_symlink("/proc/self/exe").parent_path() / name).string();
}

Command::Command(std::vector<std::string> words, const fs::path& out)
    : name_(fs::path(words.at(0)).filename().string()) {
  if (words.size() > 1) name_ += " " + words[1];
  // A socket as its stdin: send() raises no signal when the child has ended.
  std::array<int, 2> in{-1, -1}, back{-1, -1};
  expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) == 0, "a pair of sockets");
  to_ = in[1];
  const bool piped = pipe2(back.data(), O_CLOEXEC) == 0;
  from_ = back[0];
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
  const int failed =
      piped ? posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) : errno;
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  if (piped) close(back[1]);
  if (failed == 0) return;
  pid_ = -1;
  close_ends();
  throw std::runtime_error(name_ + " cannot start: it is to be beside this program");
}

Command::~Command() {
  close_ends();
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Command::close_ends() {
  for (int* const end : {&to_, &from_})
    if (*end >= 0) close(std::exchange(*end, -1));
}

void Command::say(const std::string& line) {
  const std::string text = line + '\n';
  if (send(to_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error(name_ + " reads no more: it has ended");
}

/// Reads what comes next. Returns false at the end of the output.
bool Command::read_more(Deadline until, const char* what) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd entry{from_, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready == 0) throw too_late(name_, what);
    if (ready < 0 && errno == EINTR) continue;
    std::array<char, 4096> piece{};
    const ssize_t got = read(from_, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got > 0) read_.append(piece.data(), static_cast<std::size_t>(got));
    return got > 0;
  }
}

std::string Command::line() {
  const Deadline until = Clock::now() + kBound;
  std::size_t end = 0;
  while ((end = read_.find('\n')) == std::string::npos)
    if (!read_more(until, "answered"))
      throw std::runtime_error(name_ + " ended before it answered");
  const std::string line = read_.substr(0, end + 1);
  read_.erase(0, end + 1);
  return line;
}

void Command::finish() {
  const Deadline until = Clock::now() + kBound;
  close(std::exchange(to_, -1));
  while (read_more(until, "ended")) read_.clear();
  int status = 0;
  for (pid_t ended = 0; ended != pid_;) {
    ended = waitpid(pid_, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) throw std::runtime_error(name_ + " has no exit status");
    if (ended != 0) continue;
    if (Clock::now() >= until) throw too_late(name_, "ended");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  throw std::runtime_error(name_ + " failed: " +
                           (WIFEXITED(status)
                                ? "its exit status is " + std::to_string(WEXITSTATUS(status))
                                : "signal " + std::to_string(WTERMSIG(status)) + " ended it"));
}

OneNode::OneNode() {
  fs::create_directory(folder_.path() / "run");
  fs::permissions(folder_.path() / "run", fs::perms::owner_all);
  setenv("XDG_RUNTIME_DIR", (folder_.path() / "run").c_str(), 1);
  setenv("XDG_STATE_HOME", state().c_str(), 1);
  unsetenv("TROUPE_ADDRESS");
}

// The destructor runs also when this body throws, since the other constructor has returned.
OneNode::OneNode(int cpus) : OneNode() {
  Command({beside("troupe"), "start", "--head", "--json", "--cpus", std::to_string(cpus),
           "--memory", "64MiB"})
      .finish();
}

OneNode::~OneNode() {
  try {
    Command({beside("troupe"), "stop", "--all"}).finish();
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "a cluster may be left: %s\n", failed.what());
  }
  unsetenv("XDG_RUNTIME_DIR");
  unsetenv("XDG_STATE_HOME");
}

}  // namespace troupe::bench
