#include "troupe/tune/internal/trial_lines.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace troupe::tune {
namespace {

constexpr std::size_t kLongestLine = 64 << 10;
constexpr std::size_t kMostAtOnce = 1 << 20;  ///< bytes of a file in one take()

std::string made(const std::string& folder) {
  std::error_code error;
  if (!folder.empty()) {
    std::filesystem::create_directories(folder, error);
    if (!error) return folder;
    throw InvalidArgument(Code::invalid_argument,
                          "tune: cannot make the folder " + folder + ": " + error.message());
  }
  std::string name =
      (std::filesystem::temp_directory_path(error) / "troupe-trials-XXXXXX").string();
  if (::mkdtemp(name.data()) != nullptr) return name;
  throw InvalidArgument(Code::invalid_argument,
                        "tune: cannot make a folder for what trials print, " + name + ": " +
                            std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace

TrialLines::TrialLines(const std::string& folder, TrialLogLimits limits)
    : folder_(made(folder)), temporary_(folder.empty()), limits_(limits), logs_(folder_, limits) {}

TrialLines::~TrialLines() {
  std::error_code ignored;
  if (temporary_) std::filesystem::remove_all(folder_, ignored);
}

OutputPlace TrialLines::place_of(int trial) {
  const auto [at, is_new] = files_.try_emplace(trial);
  File& file = at->second;
  file.over = false;
  const std::string path = logs_.path_of(trial);
  struct stat info{};
  if (is_new) logs_.live(trial);
  // Lines of an earlier process of this study were shown there.
  if (is_new && ::stat(path.c_str(), &info) == 0)
    file.read = static_cast<std::uint64_t>(info.st_size);
  return output_place(path);
}

std::vector<std::pair<int, std::string>> TrialLines::take() {
  std::vector<std::pair<int, std::string>> lines;
  for (auto file = files_.begin(); file != files_.end();) {
    const bool at_end = read(file->first, file->second, lines);
    const bool ends = file->second.over && at_end;
    if (ends && !file->second.half.empty())
      lines.emplace_back(file->first, std::move(file->second.half));
    file = ends ? files_.erase(file) : std::next(file);
  }
  return lines;
}

/// Reads what was appended, up to kMostAtOnce. Returns whether that was all. A file that is too
/// large begins anew.
bool TrialLines::read(int trial, File& file, std::vector<std::pair<int, std::string>>& lines) {
  const std::string path = logs_.path_of(trial);
  const Fd fd = make_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return true;
  std::array<char, 16 << 10> block{};
  for (std::size_t taken = 0;;) {
    const ssize_t n = ::pread(fd.get(), block.data(), block.size(), static_cast<off_t>(file.read));
    if (n <= 0) break;
    file.read += static_cast<std::uint64_t>(n);
    taken += static_cast<std::size_t>(n);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      if (block[i] != '\n' && file.half.size() < kLongestLine) {
        file.half += block[i];
      } else {
        lines.emplace_back(trial, std::move(file.half));
        file.half.clear();
        if (block[i] != '\n') file.half += block[i];
      }
    }
    if (taken >= kMostAtOnce) break;
  }
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return true;
  if (static_cast<std::uint64_t>(info.st_size) <= limits_.per_trial.count)
    return file.read >= static_cast<std::uint64_t>(info.st_size);
  if (::truncate(path.c_str(), 0) != 0) return true;
  file.read = 0;
  const std::string line = "... earlier lines are left out: a trial keeps " +
                           std::to_string(limits_.per_trial.count) + " bytes\n";
  const Fd end = make_fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (end) (void)!::write(end.get(), line.data(), line.size());
  return false;
}

void TrialLines::over(int trial, bool failed) {
  const auto found = files_.find(trial);
  if (found != files_.end()) found->second.over = true;
  logs_.over(trial, failed);
}

}  // namespace troupe::tune
