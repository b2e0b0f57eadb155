/// Inspects the processes of a test's own clusters, and sends signals to them.
#pragma once

#include <dirent.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

struct Process {
  int pid = 0, parent = 0;
  std::string name;
};

/// Returns what /proc says of a process; pid 0 when there is none or it is a zombie.
inline Process look_at(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  Process found;
  std::string name, state;
  if (!(stat >> found.pid >> name >> state >> found.parent)) return {};
  if (state == "Z" || state == "X" || name.size() < 2) return {};
  found.name = name.substr(1, name.size() - 2);
  return found;
}

inline bool is_ours(Process process) {
  while (process.pid != 0 && process.parent != ::getpid()) process = look_at(process.parent);
  return process.pid != 0;
}

/// Returns the descendants of this test that have this name.
inline std::vector<Process> our_processes(const std::string& name) {
  std::vector<Process> found;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc))
    if (const int pid = std::atoi(entry->d_name); pid > 0)
      if (const Process process = look_at(pid); process.name == name && is_ours(process))
        found.push_back(process);
  ::closedir(proc);
  return found;
}

/// Sends a signal to a process of the test's own cluster, and to nothing else.
inline void hit(int pid, int signal = SIGKILL) {
  if (pid > 1 && is_ours(look_at(pid))) ::kill(pid, signal);
}

inline bool is_alive(int pid) {
  return look_at(pid).pid != 0;
}

/// Returns the state in /proc: 'T' for a stopped process; '-' when there is none.
inline char state_of(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  stat >> number >> name >> state;
  return state.empty() ? '-' : state[0];
}
