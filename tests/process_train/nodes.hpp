/// What a rank in a test knows of its node's processes.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

/// Returns the agent of this process's node: the parent of its zygote.
inline int agent_of_this_node() {
  std::ifstream stat("/proc/" + std::to_string(::getppid()) + "/stat");
  std::string pid, name, state;
  int parent = 0;
  stat >> pid >> name >> state >> parent;
  return parent;
}
