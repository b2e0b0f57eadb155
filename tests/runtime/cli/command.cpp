#include "tests/runtime/cli/command.hpp"
#include "tests/paths.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace troupe::cli {
namespace {

using Clock = std::chrono::steady_clock;

void read_into(int fd, std::string& text, bool& open) {
  char buffer[4096];
  const ssize_t n = read(fd, buffer, sizeof buffer);
  if (n <= 0)
    open = false;
  else
    text.append(buffer, static_cast<std::size_t>(n));
}

}  // namespace

Outcome command(const std::vector<std::string>& arguments,
                const std::vector<std::pair<std::string, std::string>>& variables) {
  int out[2], err[2];
  if (pipe(out) != 0 || pipe(err) != 0) return {};
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (int fd = 3; fd < 256; ++fd) close(fd);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  Outcome outcome;
  bool out_open = true, err_open = true, killed = false;
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (out_open || err_open) {
    pollfd set[2] = {{out_open ? out[0] : -1, POLLIN, 0}, {err_open ? err[0] : -1, POLLIN, 0}};
    poll(set, 2, 1000);
    if (set[0].revents != 0) read_into(out[0], outcome.out, out_open);
    if (set[1].revents != 0) read_into(err[0], outcome.err, err_open);
    if (Clock::now() < deadline || killed) continue;
    ::kill(pid, SIGKILL);
    killed = true;
  }
  int status = 0;
  waitpid(pid, &status, 0);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  close(out[0]);
  close(err[0]);
  return outcome;
}

Outcome troupe_command(std::vector<std::string> arguments,
                       const std::vector<std::pair<std::string, std::string>>& variables) {
  arguments.insert(arguments.begin(), paths::command());
  return command(arguments, variables);
}

}  // namespace troupe::cli
