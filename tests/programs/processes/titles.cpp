// Proves that `ps` shows the roles of a program's processes, and none of its arguments.
#include "tests/programs/program.hpp"

#include <sys/prctl.h>
#include <unistd.h>
#include <fstream>
#include <iterator>
#include <string>

namespace processes_titles {
namespace {

using programs::Program;
using troupe::Context;

std::string file_of(int pid, const char* name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

int parent_of(int pid) {
  const std::string stat = file_of(pid, "stat");
  const auto end = stat.rfind(") ");
  return end == std::string::npos ? 0 : std::stoi(stat.substr(end + 4));
}

/// Returns what `ps` shows of this worker, its zygote and its agent.
std::vector<std::string> lines() {
  std::vector<std::string> all;
  for (int pid = ::getpid(), i = 0; i < 3; ++i, pid = parent_of(pid))
    all.push_back(file_of(pid, "cmdline").c_str());
  return all;
}

/// Returns whether the kernel lets a process say where its arguments lie.
bool may_be_set() {
#if defined(__SANITIZE_THREAD__)
  return false;  // its thread runs before any role is taken
#else
  unsigned size = 0;
  return ::prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0) == 0;
#endif
}

void roles(Context& ctx) {
  const char* expected[] = {"troupe: worker ", "troupe: zygote", "troupe: agent"};
  const auto all = ctx.get(ctx.submit<lines>());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool right = !may_be_set() || all[i].rfind(expected[i], 0) == 0;
    std::cout << (right ? "told" : all[i]) << '\n';
  }
}
/// Proves it for a worker, its zygote and its agent.
const Program titles{"ps_shows_roles_and_no_arguments", {.expect = "told\ntold\ntold\n"}, roles};

}  // namespace
}  // namespace processes_titles
