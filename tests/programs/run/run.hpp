/// One run of one program: starts it, bounds its time, looks for processes that it leaves, and
/// compares its results.
#pragma once

#include "tests/programs/run/surroundings.hpp"

#include <string>
#include <vector>

namespace programs {

/// A program's entry in the output of an executable's --list.
struct Facts {
  std::string name;
  double seconds = 0;
  int exit_code = 0;
  int nodes = 0;
  bool everywhere = false;
  bool plain_only = false;
  std::string except;
  std::string says;
  std::string expect;
};
/// Returns an empty vector when the executable cannot be run.
std::vector<Facts> programs_of(const std::string& executable);

struct Job {
  std::string executable;
  std::string program;
  int nodes = 1;
  const Surrounding* surrounding = nullptr;  ///< null: no special surrounding
};

enum class Verdict { right = 0, wrong = 1, skipped = 77 };
struct Report {
  Verdict verdict = Verdict::wrong;
  std::string text;
};

/// Returns PROGRAMS_PATIENCE, the factor by which bounds are longer on this machine. The default
/// is 1.
double patience();

/// Runs a program and ends all its processes. Blocks until they have ended. The calling process
/// must have no other children, and it adopts orphaned descendants.
Report run(const Job& job);

}  // namespace programs
