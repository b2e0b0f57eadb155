#include "troupe/runtime/os/own_program.hpp"

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <link.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace troupe::os {
namespace {

constexpr std::size_t kMaxLibraries = 64;
constexpr std::size_t kMaxArguments = 4096;
constexpr std::size_t kMaxBytes = 24 * 1024;  // they must fit one packet

bool is_systems(const std::string& path) {
  for (const char* folder : {"/lib/", "/lib64/", "/lib32/", "/usr/lib/", "/usr/lib64/"})
    if (path.rfind(folder, 0) == 0) return true;
  return false;
}

int note_library(dl_phdr_info* info, std::size_t, void* closure) {
  auto& found = *static_cast<std::vector<std::string>*>(closure);
  const char* name = info->dlpi_name;
  if (name == nullptr || std::strchr(name, '/') == nullptr) return 0;  // the executable or the vDSO
  char whole[PATH_MAX];
  if (realpath(name, whole) == nullptr) return 0;
  // Check the name and its resolved form: /usr/lib is often reached through links.
  if (is_systems(name) || is_systems(whole)) return 0;
  // Keep the name by which programs load it (libx.so.1), which is often a link to the file. Resolve
  // its folder only.
  const std::string_view asked(name);
  const std::string folder(asked.substr(0, asked.rfind('/') + 1));
  if (realpath(folder.c_str(), whole) == nullptr) return 0;
  found.push_back(std::string(whole) + std::string(asked.substr(asked.rfind('/'))));
  return 0;
}

std::vector<std::string> read_arguments() {
  std::vector<std::string> arguments;
  const Fd file = make_fd(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  std::string all;
  char buffer[4096];
  for (ssize_t n = 0; file && (n = read(file.get(), buffer, sizeof buffer)) > 0;)
    all.append(buffer, static_cast<std::size_t>(n));
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = all.find('\0', at);
    arguments.push_back(all.substr(at, end - at));
    if (end == std::string::npos) break;
    at = end + 1;
  }
  if (arguments.empty()) arguments.emplace_back("troupe");
  return arguments;
}

}  // namespace

std::vector<std::string> own_arguments() {
  static const auto* arguments = new std::vector<std::string>(read_arguments());
  return *arguments;
}

Result<OwnProgram> own_program() {
  OwnProgram program;
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0)
    return Error(Code::unavailable,
                 std::string("this program's own path is unknown: ") + std::strerror(errno));
  program.path.assign(path, static_cast<std::size_t>(size));
  if (access(program.path.c_str(), R_OK) != 0)
    return Error(Code::unavailable, "this program's file " + program.path +
                                        " cannot be read any more (" + std::strerror(errno) +
                                        "): it was removed or replaced since the start, so no "
                                        "other process can be started from it; start it again");
  program.name = program.path.substr(program.path.rfind('/') + 1);
  program.arguments = own_arguments();
  dl_iterate_phdr(&note_library, &program.libraries);
  std::sort(program.libraries.begin(), program.libraries.end());
  program.libraries.erase(std::unique(program.libraries.begin(), program.libraries.end()),
                          program.libraries.end());
  std::size_t bytes = program.path.size();
  for (const auto& argument : program.arguments) bytes += argument.size() + 16;
  for (const auto& library : program.libraries) bytes += library.size() + 16;
  if (program.libraries.size() > kMaxLibraries || program.arguments.size() > kMaxArguments ||
      bytes > kMaxBytes)
    return Error(Code::invalid_argument,
                 "this program's arguments and libraries (" +
                     std::to_string(program.arguments.size()) + " and " +
                     std::to_string(program.libraries.size()) + ", " + std::to_string(bytes) +
                     " bytes) exceed what a cluster is told of a program: 4096, 64 and 24 KiB. "
                     "Long lists belong in a file");
  return program;
}

}  // namespace troupe::os
