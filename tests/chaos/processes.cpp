#include "tests/chaos/processes.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace chaos {
namespace {

std::map<int, int> g_ended;  // pid → status of ended children

void reap() {
  int status = 0;
  for (int pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) g_ended[pid] = status;
}

}  // namespace

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Process look_at(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const auto open = text.find('('), close = text.rfind(')');
  if (close == std::string::npos) return {};
  Process found;
  found.pid = pid;
  found.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  rest >> found.state >> found.parent;
  if (found.state == 'Z' || found.state == 'X') return {};
  return found;
}

std::vector<Process> descendants() {
  reap();
  std::map<int, Process> all;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc))
    if (const int pid = std::atoi(entry->d_name); pid > 0)
      if (Process process = look_at(pid); process.pid != 0) all[pid] = std::move(process);
  ::closedir(proc);
  std::vector<Process> found;
  for (const auto& [pid, process] : all) {
    int parent = process.parent;
    while (parent > 1 && parent != ::getpid()) {
      const auto at = all.find(parent);
      parent = at != all.end() ? at->second.parent : 0;
    }
    if (parent == ::getpid()) found.push_back(process);
  }
  return found;
}

double cpu_ms(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int i = 0; i < 11; ++i) rest >> skipped;
  double user = 0, system = 0;
  rest >> user >> system;
  return (user + system) * 1000 / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

bool hit(int pid, int signal) {
  if (pid <= 1) return false;
  for (int at = pid; at > 1;) {
    at = look_at(at).parent;
    if (at == ::getpid()) return ::kill(pid, signal) == 0;
  }
  return false;
}

bool is_alive(int pid) {
  return look_at(pid).pid != 0;
}

bool within(std::chrono::milliseconds bound, const std::function<bool()>& done) {
  const auto until = Clock::now() + bound;
  while (!done()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

int fork_child() {
  const int parent = ::getpid();
  const int pid = ::fork();
  if (pid > 0) g_ended.erase(pid);  // the pid may be used again
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent is dead already
  return 0;
}

Child start(std::vector<std::string> arguments,
            const std::vector<std::pair<std::string, std::string>>& variables,
            const std::string& log, bool tell) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) return {};
  if (tell) {
    arguments.emplace_back("--tell");
    arguments.push_back(std::to_string(out[1]));
  }
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  Child child;
  child.pid = fork_child();  // other threads may hold locks: only safe calls below
  if (child.pid == 0) {
    const int err = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(in[0], 0);
    ::dup2(tell ? err : out[1], 1);
    ::dup2(err, 2);
    if (tell) ::fcntl(out[1], F_SETFD, 0);
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  child.in = in[1];
  child.out = out[0];
  return child;
}

std::string read_all(int fd, std::chrono::milliseconds bound) {
  const auto until = Clock::now() + bound;
  std::string text;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd entry{fd, POLLIN, 0};
    if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) <= 0) return text;
    char buffer[4096];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

void close_ends(Child& child) {
  for (int* fd : {&child.in, &child.out}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

int wait_for(int pid, std::chrono::milliseconds bound) {
  const bool ended = within(bound, [&] {
    reap();
    return g_ended.count(pid) != 0;
  });
  if (!ended) return -1;
  const int status = g_ended[pid];
  g_ended.erase(pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace chaos
