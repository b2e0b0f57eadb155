#include "troupe/runtime/os/process_title.hpp"

#include "troupe/runtime/os/own_program.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

namespace troupe::os {
namespace {

/// What `ps` shows. A fork has a copy of its own.
std::array<char, 128> shown{};
bool is_shown = false;

/// Returns the numbers of /proc/self/stat. Index 0 is the state, the third field there.
std::vector<std::uint64_t> stat_of_self() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  std::vector<std::uint64_t> numbers;
  for (std::string word; rest >> word;) numbers.push_back(std::strtoull(word.c_str(), nullptr, 10));
  return numbers;
}

/// Tells the kernel that the arguments lie in `shown`. The call sets the end of the heap, too, so no
/// other thread may move that meanwhile.
bool show() {
  constexpr std::size_t kFirst = 3, kLast = 51;  // numbers of fields in proc(5)
  const std::vector<std::uint64_t> stat = stat_of_self();
  if (stat.size() <= kLast - kFirst) return false;
  const auto field = [&](std::size_t number) { return stat[number - kFirst]; };
  if (field(20) != 1) return false;  // threads
  prctl_mm_map map{};
  map.start_code = field(26);
  map.end_code = field(27);
  map.start_stack = field(28);
  map.start_data = field(45);
  map.end_data = field(46);
  map.start_brk = field(47);
  map.env_start = field(50);
  map.env_end = field(51);
  map.arg_start = reinterpret_cast<std::uint64_t>(shown.data());
  map.arg_end = map.arg_start + shown.size();
  map.exe_fd = ~std::uint32_t{0};  // it stays
  map.brk = static_cast<std::uint64_t>(syscall(SYS_brk, 0));
  return prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) == 0;
}

}  // namespace

void show_title(const std::string& title) {
  (void)own_arguments();  // it remembers what the kernel forgets
  if (!is_shown && !(is_shown = show())) return;
  const std::size_t size = std::min(title.size(), shown.size() - 1);
  std::memcpy(shown.data(), title.data(), size);
  std::memset(shown.data() + size, 0, shown.size() - size);
}

}  // namespace troupe::os
