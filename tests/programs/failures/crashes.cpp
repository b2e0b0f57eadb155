/// Proves what the error of a crashed task names.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <string>

namespace failures_crashes {
namespace {

using programs::Program;
using troupe::Context;

/// Writes the pid of its process to a file, and crashes.
int dereferences_nothing(const std::string& file) {
  if (std::FILE* out = std::fopen(file.c_str(), "w")) {
    std::fprintf(out, "%d", static_cast<int>(::getpid()));
    std::fclose(out);
  }
  std::signal(SIGSEGV, SIG_DFL);
  ::raise(SIGSEGV);
  return 0;
}

/// Proves that an error of a crash names the signal, the process, its node and the task.
const Program crash{
    "a_crash_names_process_node_and_task",
    {.expect = "signal process node task\n"},
    [](Context& ctx) {
      const std::string file = "/tmp/" + std::to_string(::getpid()) + ".crash";
      std::string text;
      try {
        (void)ctx.get(
            ctx.with(troupe::TaskOptions{.max_retries = 0}).submit<dereferences_nothing>(file));
      } catch (const troupe::WorkerDied& error) {
        text = error.what();
      }
      int pid = 0;
      if (std::FILE* in = std::fopen(file.c_str(), "r")) {
        (void)!std::fscanf(in, "%d", &pid);
        std::fclose(in);
      }
      std::remove(file.c_str());
      const auto says = [&](const std::string& part) { return text.find(part) != text.npos; };
      bool named = false;
      for (const auto& node : ctx.cluster().nodes)
        named = named || says("process " + std::to_string(pid) + " of " + node.name);
      std::cout << (says("signal 11") ? "signal " : text)
                << (says(std::to_string(pid)) ? "process " : text) << (named ? "node " : text)
                << (says("dereferences_nothing") ? "task\n" : text);
    }};

}  // namespace
}  // namespace failures_crashes
