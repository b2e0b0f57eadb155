#include "troupe/tune/export/trial_logs.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/tune/export/internal/disk_error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <utility>
#include <vector>

namespace troupe::tune {
namespace {

constexpr std::size_t kMostOpen = 64;  ///< files that are open at a time
constexpr std::string_view kLeftOut = "(earlier lines are left out)\n";

Result<void> put_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return internal::disk_error("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

/// Returns the trial that a file name names.
std::optional<int> trial_of(std::string_view name) {
  constexpr std::string_view kBegin = "trial-", kEnd = ".txt";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  name.remove_prefix(kBegin.size());
  if (name.size() <= kEnd.size()) return std::nullopt;
  name.remove_suffix(kEnd.size());
  int trial = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), trial);
  if (error != std::errc() || end != name.data() + name.size() || trial < 0) return std::nullopt;
  return trial;
}

}  // namespace

TrialLogs::TrialLogs(std::string folder, TrialLogLimits limits)
    : folder_(std::move(folder)), limits_(limits) {
  look();
}

std::string TrialLogs::path_of(int trial) const {
  return folder_ + "/trial-" + std::to_string(trial) + ".txt";
}

/// Finds the files of an earlier process.
void TrialLogs::look() {
  std::error_code error;
  std::vector<int> found;
  for (std::filesystem::directory_iterator file(folder_, error), end; !error && file != end;
       file.increment(error))
    if (const auto trial = trial_of(file->path().filename().string())) found.push_back(*trial);
  std::sort(found.begin(), found.end());
  others_.assign(found.begin(), found.end());
}

void TrialLogs::write(int trial, std::string_view text) {
  const std::lock_guard guard(mutex_);
  note(append(trial, text));
}

Result<void> TrialLogs::append(int trial, std::string_view text) {
  auto file = open(trial);
  if (!file) return file.error();
  std::string line(text.substr(0, limits_.per_trial.count / 4));
  line += '\n';
  if ((*file)->size + line.size() > limits_.per_trial.count)
    if (auto done = halve(trial, **file); !done) return done;
  if (auto done = put_all((*file)->fd.get(), line, path_of(trial)); !done) {
    // Half a line would spoil the next one. If it stays, the next one is written behind it.
    static_cast<void>(::ftruncate((*file)->fd.get(), static_cast<off_t>((*file)->size)) == 0);
    return done;
  }
  (*file)->size += line.size();
  return {};
}

Result<TrialLogs::File*> TrialLogs::open(int trial) {
  if (const auto found = open_.find(trial); found != open_.end()) return &found->second;
  if (open_.size() >= kMostOpen) open_.clear();
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return internal::disk_error("make the folder", folder_, error.value());
  const std::string path = path_of(trial);
  File file;
  file.fd =
      make_fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
  struct stat info{};
  if (!file.fd || ::fstat(file.fd.get(), &info) != 0)
    return internal::disk_error("open", path, errno);
  file.size = static_cast<std::uint64_t>(info.st_size);
  return &open_.insert_or_assign(trial, std::move(file)).first->second;
}

/// Keeps the latest half of the lines. Readers find the old file or the new one.
Result<void> TrialLogs::halve(int trial, File& file) const {
  const std::string path = path_of(trial), draft = path + ".new";
  std::string tail(std::min(file.size, limits_.per_trial.count / 2), '\0');
  const ssize_t n =
      ::pread(file.fd.get(), tail.data(), tail.size(), static_cast<off_t>(file.size - tail.size()));
  if (n < 0) return internal::disk_error("read", path, errno);
  tail.resize(static_cast<std::size_t>(n));
  tail.erase(0, std::min(tail.find('\n'), tail.size() - 1) + 1);
  tail.insert(0, kLeftOut);
  Fd fresh = make_fd(
      ::open(draft.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fresh) return internal::disk_error("make", draft, errno);
  auto done = put_all(fresh.get(), tail, draft);
  if (done && ::rename(draft.c_str(), path.c_str()) != 0)
    done = internal::disk_error("rename", draft, errno);
  if (!done) {
    ::unlink(draft.c_str());
    return done;
  }
  file.fd = std::move(fresh);
  file.size = tail.size();
  return {};
}

void TrialLogs::over(int trial, bool failed) {
  const std::lock_guard guard(mutex_);
  forget(trial);
  (failed ? failed_ : others_).push_back(trial);
  open_.erase(trial);
  trim(failed_, limits_.failed);
  trim(others_, limits_.others);
}

void TrialLogs::live(int trial) {
  const std::lock_guard guard(mutex_);
  forget(trial);
}

void TrialLogs::forget(int trial) {
  for (std::deque<int>* over : {&failed_, &others_})
    over->erase(std::remove(over->begin(), over->end(), trial), over->end());
}

void TrialLogs::trim(std::deque<int>& over, std::size_t most) {
  for (; over.size() > most; over.pop_front()) {
    open_.erase(over.front());
    ::unlink(path_of(over.front()).c_str());
  }
}

void TrialLogs::note(const Result<void>& done) {
  if (!done && !error_) error_ = done.error();
}

std::optional<Error> TrialLogs::take_error() {
  const std::lock_guard guard(mutex_);
  return std::exchange(error_, std::nullopt);
}

}  // namespace troupe::tune
