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
  File& file = files_[trial];
  file.over = false;
  const std::string path = logs_.path_of(trial);
  struct stat info{};
  // Lines of an earlier process of this study were shown there.
  if (file.read == 0 && ::stat(path.c_str(), &info) == 0)
    file.read = static_cast<std::uint64_t>(info.st_size);
  return output_place(path);
}

std::vector<std::pair<int, std::string>> TrialLines::take() {
  std::vector<std::pair<int, std::string>> lines;
  for (auto file = files_.begin(); file != files_.end();) {
    read(file->first, file->second, lines);
    if (file->second.over && !file->second.half.empty())
      lines.emplace_back(file->first, std::move(file->second.half));
    file = file->second.over ? files_.erase(file) : std::next(file);
  }
  return lines;
}

/// Reads what was appended. A file that is too large begins anew: its lines were taken.
void TrialLines::read(int trial, File& file, std::vector<std::pair<int, std::string>>& lines) {
  const std::string path = logs_.path_of(trial);
  const Fd fd = make_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return;
  std::array<char, 16 << 10> block{};
  for (;;) {
    const ssize_t n = ::pread(fd.get(), block.data(), block.size(), static_cast<off_t>(file.read));
    if (n <= 0) break;
    file.read += static_cast<std::uint64_t>(n);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      if (block[i] != '\n' && file.half.size() < kLongestLine) {
        file.half += block[i];
      } else {
        lines.emplace_back(trial, std::move(file.half));
        file.half.clear();
        if (block[i] != '\n') file.half += block[i];
      }
    }
  }
  if (file.read > limits_.per_trial.count && ::truncate(path.c_str(), 0) == 0) {
    file.read = 0;
    logs_.write(trial, "… earlier lines are left out: a trial keeps " +
                           std::to_string(limits_.per_trial.count) + " bytes");
  }
}

void TrialLines::over(int trial, bool failed) {
  const auto found = files_.find(trial);
  if (found != files_.end()) found->second.over = true;
  logs_.over(trial, failed);
}

}  // namespace troupe::tune
