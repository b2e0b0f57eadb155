#include "troupe/tune/internal/trial_lines.hpp"

#include "troupe/actors/loop_actor/loop_output.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/random_bytes.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/log_filter.hpp"
#include "troupe/runtime/runtime.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

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

/// Prints the place's line to the pipes of the node. Returns whether there are any.
bool prints_mark(const loops::OutputPlace& place) {
  const loops::LoopOutput output(place);
  return output.is_piped();
}

}  // namespace

TrialLines::TrialLines(Context ctx, const std::string& folder, TrialLogLimits limits)
    : ctx_(ctx),
      folder_(made(folder)),
      temporary_(folder.empty()),
      limits_(limits),
      logs_(folder_, limits),
      pipes_(random_id().substr(0, 16)) {
  try {
    ctx_.on_log(LogFilter{&pipes_, [this](LogLine& line) { return pipes_.take(line); }, &listens_});
  } catch (const InvalidArgument&) {
    listens_ = false;  // this is a task or actor
  }
}

TrialLines::~TrialLines() {
  pipes_.close();
  if (listens_) ctx_.on_log(LogFilter{&pipes_, {}});
  std::error_code ignored;
  if (temporary_) std::filesystem::remove_all(folder_, ignored);
}

loops::OutputPlace TrialLines::place_of(int trial) {
  const auto [at, is_new] = files_.try_emplace(trial);
  File& file = at->second;
  file.over = Time::max();
  const std::string path = logs_.path_of(trial);
  struct stat info{};
  if (is_new) logs_.live(trial);
  // Lines of an earlier process of this study were shown there.
  if (is_new && ::stat(path.c_str(), &info) == 0)
    file.read = static_cast<std::uint64_t>(info.st_size);
  loops::OutputPlace place = loops::output_place(path);
  if (!listens_) return place;
  place.begins = pipes_.begins(trial);
  place.ends = pipes_.ends();
  return place;
}

TrialLines::Taken TrialLines::take(bool last) {
  write_piped();
  Taken taken{std::exchange(piped_, {})};
  for (auto at = files_.begin(); at != files_.end();) {
    File& file = at->second;
    const bool ends = file.piped ? file.over != Time::max() : read(at->first, file, taken);
    if ((ends || last) && !file.half.empty())
      taken.lines.emplace_back(at->first, std::exchange(file.half, {}));
    at = ends ? files_.erase(at) : std::next(at);
  }
  return taken;
}

/// Writes the lines that pipes have brought to their files. They may come after the end of their
/// trial; then a file that went meanwhile is not made again.
void TrialLines::write_piped() {
  for (auto& [trial, text] : pipes_.lines()) {
    const auto file = files_.find(trial);
    if (file != files_.end()) file->second.piped = true;
    if (file != files_.end() || ::access(logs_.path_of(trial).c_str(), F_OK) == 0)
      logs_.write(trial, text);
    piped_.emplace_back(trial, std::move(text));
  }
}

/// Reads what was appended, up to kMostAtOnce. Returns whether the trial is over and nothing more is
/// expected. A file that is too large begins anew.
bool TrialLines::read(int trial, File& file, Taken& taken) {
  const bool over = file.over != Time::max();
  const std::string path = logs_.path_of(trial);
  const Fd fd = make_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return over;
  // Asked first: what a process has printed before its end is read below.
  const bool grows = over && loops::has_printer(fd.get());
  Lines& lines = taken.lines;
  std::array<char, 16 << 10> block{};
  for (std::size_t bytes = 0;;) {
    const ssize_t n = ::pread(fd.get(), block.data(), block.size(), static_cast<off_t>(file.read));
    if (n <= 0) break;
    file.read += static_cast<std::uint64_t>(n);
    bytes += static_cast<std::size_t>(n);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      if (block[i] != '\n' && file.half.size() < kLongestLine) {
        file.half += block[i];
      } else {
        lines.emplace_back(trial, std::move(file.half));
        file.half.clear();
        if (block[i] != '\n') file.half += block[i];
      }
    }
    if (bytes >= kMostAtOnce) break;
  }
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return over;
  if (static_cast<std::uint64_t>(info.st_size) <= limits_.per_trial.count) {
    const bool at_end = file.read >= static_cast<std::uint64_t>(info.st_size);
    if (!at_end || grows) taken.all = false;
    return over && at_end && (!grows || steady_now() >= file.over + kLateLines);
  }
  taken.all = false;
  if (::truncate(path.c_str(), 0) != 0) return over;
  file.read = 0;
  const std::string line = "... earlier lines are left out: a trial keeps " +
                           std::to_string(limits_.per_trial.count) + " bytes\n";
  const Fd end = make_fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (end) (void)!::write(end.get(), line.data(), line.size());
  return false;
}

void TrialLines::over(int trial, bool failed) {
  const auto found = files_.find(trial);
  if (found != files_.end()) found->second.over = steady_now();
  logs_.over(trial, failed);
}

/// A line that a node prints comes after all lines that the node had read from pipes before. It
/// reads all pipes that have lines in one pass, so the second such line comes after all of them.
void TrialLines::finish(Time until) {
  for (int round = 0; round < 2 && listens_; ++round) {
    const std::size_t nodes = mark_all_nodes(until);
    if (nodes == 0) return;
    while (!pipes_.await_complete(nodes, until) && steady_now() < until) write_piped();
  }
  write_piped();
}

/// Lets each node print a mark. Returns how many have pipes that take it.
std::size_t TrialLines::mark_all_nodes(Time until) {
  loops::OutputPlace mark = loops::output_place({});
  mark.begins = mark.ends = pipes_.begin_round();
  std::vector<Ref<bool>> asked;
  for (const NodeInfo& node : ctx_.cluster().nodes)
    if (node.alive)
      asked.push_back(ctx_.with({.name = "the last lines of trials",
                                 .cpus = 0,
                                 .placement = Placement::on(node.id),
                                 .max_retries = 0})
                          .submit<prints_mark>(mark));
  std::size_t nodes = 0;
  const Duration within = std::max<Duration>(until - steady_now(), Duration::zero());
  for (const Ref<bool>& each : ctx_.wait(asked, {.count = asked.size(), .timeout = within}).ready) {
    const Result<bool> printed = ctx_.try_get(each);
    if (printed && *printed) ++nodes;
  }
  return nodes;
}

}  // namespace troupe::tune
