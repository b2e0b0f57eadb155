/// Which processes the program's own cluster consists of, so that an example can kill one: what a
/// power failure or an operator's mistake does elsewhere.
#pragma once

#include "troupe/troupe.hpp"

#include <dirent.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

namespace processes {

/// The parent of a process, and its name.
inline int parent_of(int pid, std::string& name) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string state;
  int parent = 0;
  stat >> pid >> name >> state >> parent;
  return parent;
}

/// The agent of that node: the parent of the zygote from which its workers are forked.
inline int agent_of(troupe::Context& ctx, troupe::NodeId node) {
  const auto there = ctx.with(troupe::TaskOptions{.placement = troupe::Placement::on(node)});
  std::string name;
  return parent_of(
      parent_of(ctx.get(there.submit([] { return static_cast<int>(::getpid()); })), name), name);
}

/// Control, a child of this program; 0: there is none.
inline int control() {
  int found = 0;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    std::string name;
    const int pid = std::atoi(entry->d_name);
    if (pid > 0 && parent_of(pid, name) == ::getpid() && name == "(troupe-control)") found = pid;
  }
  ::closedir(proc);
  return found;
}

/// False, and nothing is done, when there is no such process.
inline bool kill_now(int pid) {
  return pid > 1 && ::kill(pid, SIGKILL) == 0;
}

}  // namespace processes
