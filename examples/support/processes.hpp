/// Finds the processes of the program's own cluster, so that an example can kill one as a power
/// failure or an operator's mistake would.
#pragma once

#include "troupe/troupe.hpp"

#include <dirent.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

namespace processes {

/// Returns the parent of a process, and sets `name` to the process's name.
inline int parent_of(int pid, std::string& name) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string state;
  int parent = 0;
  stat >> pid >> name >> state >> parent;
  return parent;
}

/// Returns the agent of a node: the parent of the zygote from which the node's workers are forked.
inline int agent_of(troupe::Context& ctx, troupe::NodeId node) {
  const auto there = ctx.with(troupe::TaskOptions{.placement = troupe::Placement::on(node)});
  std::string name;
  return parent_of(
      parent_of(ctx.get(there.submit([] { return static_cast<int>(::getpid()); })), name), name);
}

/// Returns the control process, a child of this program, or 0 if there is none.
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

/// Kills a process. Returns false if there is none with this number.
inline bool kill_now(int pid) {
  return pid > 1 && ::kill(pid, SIGKILL) == 0;
}

}  // namespace processes
