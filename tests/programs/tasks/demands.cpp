// Proves that a demand that fits does not wait for others that hold the CPUs.
#include "tests/programs/program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <string>

namespace tasks_demands {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
using troupe::Ref;

int same(int x) {
  return x;
}

/// Two pipes with names, so that tasks hold their CPUs without a clock.
struct Gate {
  explicit Gate(const std::string& path) : begun(path + ".begun"), open(path + ".open") {}
  std::string begun, open;
  /// Says that it has begun, and waits until the driver opens the gate.
  static int pass(const std::string& path) {
    const Gate gate(path);
    char byte = 0;
    const int out = ::open(gate.begun.c_str(), O_WRONLY), in = ::open(gate.open.c_str(), O_RDONLY);
    const bool passed = write(out, &byte, 1) == 1 && read(in, &byte, 1) == 1;
    close(out);
    close(in);
    return passed ? 1 : 0;
  }
};
int hold(std::string path) {
  return Gate::pass(path);
}

/// Calls `then` while tasks hold the CPUs of all nodes: each node's last one to this part.
template <class F>
void beside_holders(Context& ctx, double last, F then) {
  const std::string path = "/tmp/troupe_gate_" + std::to_string(getpid());
  const Gate gate(path);
  mkfifo(gate.begun.c_str(), 0600);
  mkfifo(gate.open.c_str(), 0600);
  const int begun = open(gate.begun.c_str(), O_RDWR), opened = open(gate.open.c_str(), O_RDWR);
  std::vector<Ref<int>> holders;
  for (const auto& node : ctx.cluster().nodes)
    for (int i = 0; i < static_cast<int>(node.cpus); ++i)
      holders.push_back(ctx.with({.cpus = i == 0 ? last : 1.0}).submit<hold>(path));
  char byte = 0;
  for (std::size_t i = 0; i < holders.size(); ++i)
    if (read(begun, &byte, 1) != 1) std::cout << "no holder\n";
  then();
  for (std::size_t i = 0; i < holders.size(); ++i)
    if (write(opened, &byte, 1) != 1) std::cout << "no gate\n";
  for (const int x : ctx.get(holders))
    if (x != 1) std::cout << "not held\n";
  close(begun);
  close(opened);
  unlink(gate.begun.c_str());
  unlink(gate.open.c_str());
}

void nothing(Context& ctx) {
  beside_holders(ctx, 1, [&] {
    int sum = 0;
    for (int i = 0; i < 3; ++i) sum += ctx.get(ctx.with({.cpus = 0}).submit<same>(1), 3s);
    std::vector<Ref<int>> refs;
    for (int i = 0; i < 3; ++i) refs.push_back(ctx.with({.cpus = 0}).submit<same>(1));
    for (const int x : ctx.get(refs, 3s)) sum += x;
    std::cout << sum << std::endl;
  });
  beside_holders(ctx, 0.75, [&] {
    std::cout << ctx.get(ctx.with({.cpus = 0.25}).submit<same>(7), 3s) << std::endl;
  });
}
/// Proves that a task that needs no CPU, or a part of one that is free, starts while other tasks
/// hold the CPUs.
const Program none{"a_task_of_no_cpus_does_not_wait", {.expect = "6\n7\n", .seconds = 20}, nothing};

}  // namespace
}  // namespace tasks_demands
