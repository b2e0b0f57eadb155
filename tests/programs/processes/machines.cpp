/// Proves what a node takes of its machine: the CPUs that a batch system allocated, and which
/// processes the kernel ends first when memory runs out.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace processes_machines {
namespace {

using programs::Program;
using troupe::Context;

void print_cpus(Context& ctx) {
  for (const auto& node : ctx.cluster().nodes) std::cout << (node.cpus == 1 ? "" : "not ");
  std::cout << "one CPU\n";
}

/// Proves that a node offers no more than the CPUs that Slurm allocated.
const Program allocated{"cpus_of_a_batch_job", {.expect = "one CPU\n"}, [](int& argc, char** argv) {
                          ::setenv("SLURM_CPUS_ON_NODE", "1", 1);
                          return troupe::run(argc, argv, print_cpus);
                        }};

int oom_score(int pid) {
  int score = -9999;
  std::ifstream("/proc/" + std::to_string(pid) + "/oom_score_adj") >> score;
  return score;
}

/// Returns the pid of the parent; 0 if there is no such process.
int parent_of(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string word;
  while (status >> word && word != "PPid:") {
  }
  int parent = 0;
  status >> parent;
  return parent;
}

std::string name_of(int pid) {
  std::string name;
  std::ifstream("/proc/" + std::to_string(pid) + "/comm") >> name;
  return name;
}

/// Prints the scores of a worker, its zygote and its agent.
std::string scores(int base) {
  const int zygote = ::getppid(), agent = parent_of(zygote);
  std::string text;
  for (const int pid : {::getpid(), zygote, agent})
    text += std::to_string(oom_score(pid) - base) + ' ';
  return text;
}

/// Prints in how many of the driver's agents and control processes the score is not its own.
int others(int base) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    const std::string name = pid > 0 ? name_of(pid) : "";
    if ((name == "troupe-agent" || name == "troupe-control") && parent_of(pid) == ::getpid())
      count += oom_score(pid) != base ? 1 : 0;
  }
  return count;
}

/// Proves that the kernel ends workers before zygotes, and both before agents and control.
const Program oom{"oom_scores", {.expect = "500 250 0 0\n"}, [](Context& ctx) {
                    const int base = oom_score(::getpid());
                    std::cout << ctx.get(ctx.submit<scores>(base)) << others(base) << '\n';
                  }};

}  // namespace
}  // namespace processes_machines
