/// Proves what a node takes of its machine: the CPUs that a batch system allocated, and which
/// processes the kernel ends first when memory runs out.
#include "tests/programs/program.hpp"

#include <cstdlib>

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

}  // namespace
}  // namespace processes_machines
