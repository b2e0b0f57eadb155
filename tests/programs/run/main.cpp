// programs_run: the program that ctest starts.
//   programs_run EXECUTABLE PROGRAM [nodes3] [SURROUNDING]     one run
//   programs_run --together LIST SURROUNDING [nodes3] EXECUTABLE...
//   programs_run --together LIST SURROUNDING [nodes3] EXECUTABLE...
//                                             all programs for `everywhere`, at once
//   programs_run --tests LIST EXECUTABLE...   prints the tests as a script for ctest
// LIST names the tests that are left out: a pattern, a row of the list of faults, and the reason.
#include "tests/programs/run/run.hpp"

#include <fnmatch.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace programs {
namespace {

constexpr double kStandstillSeconds = 12;

struct Disabled {
  std::string pattern, row;
};

std::vector<Disabled> read_disabled(const std::string& path) {
  std::vector<Disabled> all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    Disabled one;
    std::istringstream(line) >> one.pattern >> one.row;
    all.push_back(one);
  }
  return all;
}

/// Returns the row of the list of faults for which the test is left out, or an empty text.
std::string row_of(const std::vector<Disabled>& all, const std::string& name) {
  for (const Disabled& one : all)
    if (::fnmatch(one.pattern.c_str(), name.c_str(), 0) == 0) return one.row;
  return {};
}

/// programs_tasks -> tasks
std::string group_of(const std::string& executable) {
  std::string name = std::filesystem::path(executable).filename().string();
  if (name.rfind("programs_", 0) == 0) name.erase(0, std::strlen("programs_"));
  return name;
}

std::string test_name(const std::string& group, const std::string& program, int nodes,
                      const Surrounding* surrounding) {
  std::string name = group + "." + program;
  if (surrounding == nullptr) return name + (nodes > 1 ? ".nodes3" : "");
  return name + "." + surrounding->name + (nodes > 1 ? ".nodes3" : "");
}

class Script {
 public:
  Script(std::string runner, std::vector<Disabled> disabled)
      : runner_(std::move(runner)), disabled_(std::move(disabled)) {}

  void one(const std::string& executable, const Facts& facts, int nodes,
           const Surrounding* surrounding) const {
    if (facts.nodes != 0 && facts.nodes != nodes) return;
    if (facts.plain_only && surrounding != nullptr) return;
    if (surrounding != nullptr && facts.except == surrounding->name) return;
    std::string arguments = executable + "]=] " + facts.name + (nodes > 1 ? " nodes3" : "");
    if (surrounding != nullptr) arguments += std::string(" ") + surrounding->name;
    const bool stopped = surrounding != nullptr && surrounding->stopped;
    add(test_name(group_of(executable), facts.name, nodes, surrounding), "[=[" + arguments,
        facts.seconds + (stopped ? kStandstillSeconds : 0));
  }
  void together(const std::string& list, const std::vector<std::string>& executables, int nodes,
                const Surrounding& surrounding) const {
    std::string arguments = "--together [=[" + list + "]=] " + surrounding.name +
                            (nodes > 1 ? std::string(" nodes3") : std::string());
    for (const std::string& executable : executables) arguments += " [=[" + executable + "]=]";
    add(test_name("everywhere", "at_once", nodes, &surrounding), arguments,
        30 + kStandstillSeconds);
  }

 private:
  void add(const std::string& name, const std::string& arguments, double seconds) const {
    std::cout << "add_test([=[programs." << name << "]=] [=[" << runner_ << "]=] " << arguments
              << ")\n"
              << "set_tests_properties([=[programs." << name << "]=] PROPERTIES LABELS process"
              << " SKIP_RETURN_CODE 77 TIMEOUT " << std::lround(seconds * patience() + 20)
              << (arguments.rfind("--together", 0) == 0 ? " PROCESSORS 4" : "")
              << (row_of(disabled_, name).empty() ? "" : " DISABLED TRUE") << ")\n";
  }
  std::string runner_;
  std::vector<Disabled> disabled_;
};

int write_tests(const std::string& list, const std::vector<std::string>& executables) {
  const bool everything = std::getenv("TROUPE_LONG_TESTS") != nullptr;
  const Script script(std::filesystem::read_symlink("/proc/self/exe").string(),
                      read_disabled(list));
  for (const std::string& executable : executables) {
    const std::vector<Facts> all = programs_of(executable);
    if (all.empty()) {
      std::cout << "add_test(programs." << group_of(executable) << "_NOT_BUILT NOT_BUILT)\n";
      continue;
    }
    for (const Facts& facts : all) {
      script.one(executable, facts, 1, nullptr);
      script.one(executable, facts, 3, nullptr);
      for (const Surrounding& surrounding : surroundings()) {
        if (!everything && (!facts.everywhere || surrounding.stopped)) continue;
        script.one(executable, facts, 1, &surrounding);
        if (everything) script.one(executable, facts, 3, &surrounding);
      }
    }
  }
  if (!everything)
    for (const Surrounding& surrounding : surroundings())
      for (const int nodes : {1, 3})
        if (surrounding.stopped) script.together(list, executables, nodes, surrounding);
  return 0;
}

int exit_code(const Report& report) {
  std::fputs(report.text.c_str(), stdout);
  std::fflush(stdout);
  return static_cast<int>(report.verdict);
}

int run_together(const std::string& list, const Surrounding& surrounding, int nodes,
                 const std::vector<std::string>& executables) {
  const std::vector<Disabled> disabled = read_disabled(list);
  std::vector<pid_t> children;
  for (const std::string& executable : executables) {
    for (const Facts& facts : programs_of(executable)) {
      if (!facts.everywhere || (facts.nodes != 0 && facts.nodes != nodes)) continue;
      const std::string name = test_name(group_of(executable), facts.name, nodes, &surrounding);
      if (const std::string row = row_of(disabled, name); !row.empty()) {
        std::printf("%s is left out: %s\n", name.c_str(), row.c_str());
        std::fflush(stdout);
        continue;
      }
      const pid_t child = ::fork();
      if (child == 0) _exit(exit_code(run({executable, facts.name, nodes, &surrounding})));
      children.push_back(child);
    }
  }
  int worst = children.empty() ? 77 : 0;
  for (const pid_t child : children) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child || (status != 0 && WEXITSTATUS(status) != 77))
      worst = 1;
  }
  return worst;
}

int usage() {
  std::fputs(
      "usage: programs_run EXECUTABLE PROGRAM [nodes3] [SURROUNDING]\n"
      "surroundings:",
      stderr);
  for (const Surrounding& one : surroundings()) std::fprintf(stderr, " %s", one.name);
  std::fputs("\n", stderr);
  return 2;
}

int main_of(std::vector<std::string> arguments) {
  const auto take_nodes = [&](std::size_t at) {
    if (at >= arguments.size() || arguments[at] != "nodes3") return 1;
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at));
    return 3;
  };
  if (arguments.size() >= 3 && arguments[0] == "--tests")
    return write_tests(arguments[1], {arguments.begin() + 2, arguments.end()});
  if (arguments.size() >= 4 && arguments[0] == "--together") {
    const Surrounding* where = surrounding(arguments[2]);
    const int nodes = take_nodes(3);
    if (where == nullptr) return usage();
    return run_together(arguments[1], *where, nodes, {arguments.begin() + 3, arguments.end()});
  }
  if (arguments.size() < 2 || arguments[0].rfind("--", 0) == 0) return usage();
  Job job{std::filesystem::absolute(arguments[0]).string(), arguments[1]};
  job.nodes = take_nodes(2);
  if (arguments.size() > 3) return usage();
  if (arguments.size() == 3 && (job.surrounding = surrounding(arguments[2])) == nullptr)
    return usage();
  return exit_code(run(job));
}

}  // namespace
}  // namespace programs

int main(int argc, char** argv) {
  return programs::main_of({argv + 1, argv + argc});
}
