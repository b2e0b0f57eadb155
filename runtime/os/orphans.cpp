#include "troupe/runtime/os/orphans.hpp"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace troupe::os {
namespace {

/// Returns the parent of a process, as /proc has it; 0: there is no such process.
pid_t parent_of(const char* pid) {
  std::ifstream stat(std::string("/proc/") + pid + "/stat");
  std::string line;
  std::getline(stat, line);
  const auto name_ends = line.rfind(')');  // a name may contain any character
  int parent = 0;
  char state = 0;
  if (name_ends == std::string::npos ||
      std::sscanf(line.c_str() + name_ends + 1, " %c %d", &state, &parent) != 2)
    return 0;
  return parent;
}

}  // namespace

void adopt_orphans() noexcept {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> children;
  bool known = false;
  if (DIR* threads = opendir("/proc/self/task")) {
    while (const dirent* entry = readdir(threads)) {
      if (entry->d_name[0] == '.') continue;
      std::ifstream list(std::string("/proc/self/task/") + entry->d_name + "/children");
      known = known || list.is_open();
      for (pid_t pid = 0; list >> pid;) children.push_back(pid);
    }
    closedir(threads);
  }
  if (known) return children;
  // The kernel has no such list: read the parent of every process.
  const pid_t self = getpid();
  if (DIR* all = opendir("/proc")) {
    while (const dirent* entry = readdir(all))
      if (const pid_t pid = std::atoi(entry->d_name); pid > 0 && parent_of(entry->d_name) == self)
        children.push_back(pid);
    closedir(all);
  }
  return children;
}

std::size_t end_orphans(const std::function<bool(pid_t)>& is_own) {
  std::size_t left = 0;
  for (const pid_t pid : children_of_this_process()) {
    if (is_own(pid) || waitpid(pid, nullptr, WNOHANG) != 0) continue;
    ::kill(pid, SIGKILL);  // an unreaped child keeps its pid, so this hits no other process
    if (waitpid(pid, nullptr, WNOHANG) == 0) ++left;
  }
  return left;
}

}  // namespace troupe::os
