#include "troupe/tune/views/files.hpp"

#include "troupe/runtime/base/leave_behind.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/tune/views/report.hpp"
#include "troupe/tune/views/tables.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe::tune {
namespace {

constexpr std::uint64_t kLogLimit = std::uint64_t{4} << 30;
const std::atomic<bool> kInTime{false};

[[noreturn]] void fail(const std::string& what, const std::string& path, int error) {
  const std::string message = "tune: cannot " + what + " " + path + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) throw OutOfDisk(Code::out_of_disk, message);
  throw InvalidArgument(Code::invalid_argument, message);
}

[[noreturn]] void refuse_log(const std::string& path, const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, "tune: " + path + " " + why);
}

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) fail("make the folder", folder.string(), error.value());
}

/// Writes a file under another name and renames it, so that readers never see half of it. Does not
/// rename it once `is_late`. A late writer may still have the last draft, so this one is a new file.
void write_file(const std::filesystem::path& path, std::string_view bytes,
                const std::atomic<bool>& is_late = kInTime) {
  const std::string draft = path.string() + ".new";
  ::unlink(draft.c_str());
  const Fd fd = make_fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) fail("create", draft, errno);
  try {
    write_all(fd.get(), bytes, draft);
    if (is_late) return;
    if (::rename(draft.c_str(), path.c_str()) != 0) fail("rename", draft, errno);
  } catch (...) {
    ::unlink(draft.c_str());
    throw;
  }
}

/// Returns the length of the file up to and including its last newline.
off_t whole_lines(int fd, off_t size) {
  char block[4096];
  while (size > 0) {
    const off_t from =
        size > static_cast<off_t>(sizeof block) ? size - static_cast<off_t>(sizeof block) : 0;
    const ssize_t n = ::pread(fd, block, static_cast<std::size_t>(size - from), from);
    if (n <= 0) return size;
    for (ssize_t i = n; i-- > 0;) {
      if (block[i] == '\n') return from + i + 1;
    }
    size = from;
  }
  return 0;
}

}  // namespace

LogFile::LogFile(const std::string& path, Mode mode) : path_(path) {
  make_folder(std::filesystem::path(path).parent_path());
  file_ = make_fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file_.get() < 0) fail("open", path, errno);
  struct stat info{};
  if (::fstat(file_.get(), &info) != 0) fail("examine", path, errno);
  if (S_ISFIFO(info.st_mode)) refuse_log(path, "is a pipe, and a log is a file");
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      refuse_log(path,
                 "is written by another experiment at this moment; give this one a folder of its "
                 "own");
    if (errno != ENOLCK && errno != EOPNOTSUPP) fail("lock", path, errno);
  }
  if (::fstat(file_.get(), &info) != 0) fail("examine", path, errno);
  const off_t whole = whole_lines(file_.get(), info.st_size);
  if (whole != info.st_size && ::ftruncate(file_.get(), whole) != 0) fail("repair", path, errno);
  if (mode == Mode::create && whole > 0)
    refuse_log(path,
               "is the log of an experiment that ran before; give this one a folder of its own, or "
               "move that one away");
}

/// Removes what it wrote if it could not write everything: half a line would corrupt the lines
/// after it.
void LogFile::append(const std::vector<std::string>& lines) {
  std::string bytes;
  for (const std::string& line : lines) bytes += line + "\n";
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  try {
    write_all(file_.get(), bytes, path_);
  } catch (...) {
    // If half a line stays, close the file, so that no line can follow it.
    if (before < 0 || ::ftruncate(file_.get(), before) != 0) file_ = {};
    throw;
  }
}

Result<std::vector<std::string>> read_log(const std::string& path) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) {
    return Error(Code::invalid_argument, "tune: cannot read " + path + ": " + error.message());
  }
  if (size > kLogLimit) {
    return Error(Code::invalid_argument, "tune: " + path + " is larger than 4 GiB");
  }
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!file.eof()) lines.push_back(std::move(line));  // at eof the line has no newline: torn
  }
  if (!file.eof()) return Error(Code::invalid_argument, "tune: cannot read all of " + path);
  return lines;
}

namespace {

/// Writes reports as progress.csv and as TensorBoard runs. The reports come from a whole log, or
/// from a board, which keeps only a part of them. They are written in chunks, so that a long log
/// need not fit memory. The files are drafts until finish() renames them.
class ReportFiles {
 public:
  ReportFiles(const std::filesystem::path& root, const Board& board, double began)
      : board_(board),
        began_(began),
        runs_(root / "tensorboard"),
        progress_(root / "progress.csv") {}
  ReportFiles(const ReportFiles&) = delete;
  ReportFiles& operator=(const ReportFiles&) = delete;
  ~ReportFiles() {
    ::unlink(draft(progress_).c_str());
    for (const auto& file : events_) ::unlink(draft(file).c_str());
  }

  /// Creates the drafts. Call it once, first. The constructor does not do it, since the destructor,
  /// which removes drafts, does not run after a constructor that threw.
  void make_drafts() {
    write_file(draft(progress_), progress_csv_header(board_));
    for (const TrialInfo& t : board_.trials) {
      const auto run = runs_ / run_name(t.number);
      make_folder(run);
      events_.push_back(run / tensorboard_file_name(began_, "troupe", t.number));
      write_file(draft(events_.back()), tensorboard_header(began_ + t.created));
    }
    pending_.resize(events_.size());
  }

  void add(std::size_t trial, const Sample& sample) {
    if (trial >= events_.size()) return;
    const std::string row = progress_csv_row(static_cast<int>(trial), sample);
    const std::string record = tensorboard_scalar(began_ + sample.seconds, sample.step,
                                                  board_.metric, static_cast<float>(sample.score));
    rows_ += row;
    pending_[trial] += record;
    size_ += row.size() + record.size();
    if (size_ > (std::size_t{8} << 20)) flush();
  }

  void finish() {
    flush();
    publish(progress_);
    for (const auto& file : events_) {
      forget_others(file.parent_path(), file);
      publish(file);
    }
    forget_other_trials();
  }

 private:
  /// Names a draft. TensorBoard reads every file with `tfevents` in its name, so drafts have none.
  static std::filesystem::path draft(const std::filesystem::path& path) {
    return path.parent_path() / (path.filename() == "progress.csv" ? ".progress.draft" : ".draft");
  }
  static std::string run_name(int trial) { return "trial-" + std::to_string(trial); }

  static void append(const std::filesystem::path& path, std::string& bytes) {
    if (bytes.empty()) return;
    const Fd fd = make_fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    if (fd.get() < 0) fail("open", path, errno);
    write_all(fd.get(), bytes, path);
    bytes.clear();
  }

  static void publish(const std::filesystem::path& path) {
    if (::rename(draft(path).c_str(), path.c_str()) != 0) fail("rename", draft(path), errno);
  }

  /// Removes the event files of an earlier run: TensorBoard would join all event files of a folder.
  static void forget_others(const std::filesystem::path& run, const std::filesystem::path& file) {
    std::error_code error;
    std::vector<std::filesystem::path> old;
    for (const auto& entry : std::filesystem::directory_iterator(run, error)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("events.out.tfevents.") && entry.path() != file)
        old.push_back(entry.path());
    }
    for (const auto& path : old) std::filesystem::remove(path, error);
  }

  /// Removes the event files of trials that only an earlier run had. Other files in their folders
  /// stay.
  void forget_other_trials() const {
    std::error_code error;
    std::vector<std::filesystem::path> old;
    for (const auto& entry : std::filesystem::directory_iterator(runs_, error)) {
      const std::string name = entry.path().filename().string();
      const std::string number = name.starts_with("trial-") ? name.substr(6) : "";
      const bool ours = !number.empty() && number.size() < 10 &&
                        number.find_first_not_of("0123456789") == std::string::npos;
      if (ours && std::stoul(number) >= events_.size()) old.push_back(entry.path());
    }
    for (const auto& run : old) {
      forget_others(run, {});
      std::filesystem::remove(run, error);  // removes the folder only if it is empty
    }
  }

  void flush() {
    append(draft(progress_), rows_);
    for (std::size_t i = 0; i < events_.size(); ++i) append(draft(events_[i]), pending_[i]);
    size_ = 0;
  }

  const Board& board_;
  double began_;
  std::filesystem::path runs_;
  std::filesystem::path progress_;
  std::vector<std::filesystem::path> events_;  ///< by trial
  std::string rows_;
  std::vector<std::string> pending_;
  std::size_t size_ = 0;  ///< bytes in rows_ and pending_, not written yet
};

void add_board(ReportFiles& files, const Board& board) {
  for (const TrialInfo& t : board.trials) {
    for (const Sample& s : t.history) files.add(static_cast<std::size_t>(t.number), s);
  }
}

void add_log(ReportFiles& files, const std::string& log, const SearchSpace& space) {
  std::ifstream file(log);
  if (!file) fail("read", log, errno);
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"event\":\"report\"") == std::string::npos) continue;
    const auto e = event_from_json(line, space);
    if (!e || e->kind != Event::Kind::report || e->trial < 0) continue;
    files.add(static_cast<std::size_t>(e->trial), {e->step, e->score, e->seconds(), e->attempt});
  }
}

/// The pages of a folder, and all that a thread uses which writes them.
struct Pages {
  Pages(std::filesystem::path to, const Board& board)
      : root(std::move(to)), curves(curves_svg(board)), report(report_html(board)) {}

  void write() const {
    make_folder(root);
    if (!is_late) write_file(root / "curves.svg", curves, is_late);
    if (!is_late) write_file(root / "report.html", report, is_late);
  }
  /// The body of the thread.
  void run() noexcept {
    std::exception_ptr thrown;
    try {
      write();
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard guard(mutex);
    failed = std::move(thrown);
    is_over = true;
    ended.notify_all();
  }

  const std::filesystem::path root;
  const std::string curves, report;
  std::atomic<bool> is_late{false};  ///< nobody waits for the thread
  std::mutex mutex;
  std::condition_variable ended;
  // What `mutex` guards.
  bool is_over = false;
  std::exception_ptr failed;
  SignalMaskedThread thread;
};

}  // namespace

void write_pages(const std::string& folder, const Board& board) {
  Pages(folder, board).write();
}

bool write_pages_within(const std::string& folder, const Board& board, Duration within) {
  const auto pages = std::make_shared<Pages>(folder, board);
  pages->thread = SignalMaskedThread("tune-pages", [pages = pages.get()] { pages->run(); });
  std::unique_lock lock(pages->mutex);
  if (!pages->ended.wait_for(lock, within, [&] { return pages->is_over; })) {
    pages->is_late = true;
    lock.unlock();
    leave_behind(pages);
    return false;
  }
  lock.unlock();
  pages->thread.join();
  if (pages->failed) std::rethrow_exception(pages->failed);
  return true;
}

void write_results(const std::string& folder, const Board& board, double began,
                   const std::string& log) {
  const std::filesystem::path root = folder;
  write_pages(folder, board);
  write_file(root / "trials.csv", trials_csv(board));
  write_file(root / "trials.jsonl", trials_jsonl(board));
  ReportFiles files(root, board, began);
  files.make_drafts();
  if (log.empty()) {
    add_board(files, board);
  } else {
    add_log(files, log, board.space);
  }
  files.finish();
}

}  // namespace troupe::tune
