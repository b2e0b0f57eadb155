/// One run of one program: starts it, bounds it, looks for what it leaves, and compares.
#pragma once

#include "tests/programs/run/surroundings.hpp"

#include <string>
#include <vector>

namespace programs {

/// What an executable's --list says of one program.
struct Facts {
  std::string name;
  double seconds = 0;
  int exit_code = 0;
  int nodes = 0;
  bool everywhere = false;
  bool plain_only = false;
  std::string says;
  std::string expect;
};
/// Empty when the executable cannot be run.
std::vector<Facts> programs_of(const std::string& executable);

struct Job {
  std::string executable;
  std::string program;
  int nodes = 1;
  const Surrounding* surrounding = nullptr;  ///< plain
};

enum class Verdict { right = 0, wrong = 1, skipped = 77 };
struct Report {
  Verdict verdict = Verdict::wrong;
  std::string text;
};

/// PROGRAMS_PATIENCE: by how much bounds are longer on this machine. Default 1.
double patience();

/// Blocks until the program and all its processes have ended, which it sees to. The calling process
/// must have no other children; it becomes the parent of what its children leave behind.
Report run(const Job& job);

}  // namespace programs
