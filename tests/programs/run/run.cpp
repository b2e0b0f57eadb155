#include "tests/programs/run/run.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

namespace programs {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Seconds = std::chrono::duration<double>;

constexpr auto kStandstill = std::chrono::seconds(12);
constexpr auto kAfterwards = std::chrono::seconds(5);  ///< after it, no process may be left

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string plain(std::string_view spelled) {
  std::string out;
  for (std::size_t i = 0; i < spelled.size(); ++i) {
    if (spelled[i] != '\\' || i + 1 == spelled.size()) {
      out += spelled[i];
      continue;
    }
    const char c = spelled[++i];
    out += c == 'n' ? '\n' : c == 't' ? '\t' : c;
  }
  return out;
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    read = ends[0];
    write = ends[1];
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_write();
    if (read >= 0) ::close(read);
  }
  void close_write() {
    if (write >= 0) ::close(std::exchange(write, -1));
  }
  /// Writes until there is no room for a further byte.
  void fill() const {
    const int flags = ::fcntl(write, F_GETFL);
    ::fcntl(write, F_SETFL, flags | O_NONBLOCK);
    const std::string piece(4096, '.');
    while (::write(write, piece.data(), piece.size()) > 0) {
    }
    ::fcntl(write, F_SETFL, flags);
  }
  /// Appends what has arrived. Never blocks.
  void take(std::string& into) const {
    pollfd entry{read, POLLIN, 0};
    char buffer[4096];
    while (::poll(&entry, 1, 0) == 1 && (entry.revents & (POLLIN | POLLHUP)) != 0) {
      const ssize_t n = ::read(read, buffer, sizeof buffer);
      if (n <= 0) return;
      into.append(buffer, static_cast<std::size_t>(n));
    }
  }
};

struct Process {
  pid_t parent = 0;
  char state = '?';
  std::string name;
};

/// Returns all processes below this one, by pid. Ended processes that are not reaped are
/// included.
std::map<pid_t, Process> descendants() {
  std::map<pid_t, Process> everybody;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return {};
  while (const dirent* entry = ::readdir(folder)) {
    const pid_t pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 0) continue;
    const std::string stat = file_text("/proc/" + std::string(entry->d_name) + "/stat");
    const auto open = stat.find('('), shut = stat.rfind(')');
    if (open == std::string::npos || shut == std::string::npos || shut + 4 > stat.size()) continue;
    Process process;
    process.name = stat.substr(open + 1, shut - open - 1);
    process.state = stat[shut + 2];
    process.parent = static_cast<pid_t>(std::strtol(stat.c_str() + shut + 4, nullptr, 10));
    everybody[pid] = process;
  }
  ::closedir(folder);
  std::map<pid_t, Process> mine;
  for (const auto& [pid, process] : everybody) {
    pid_t at = process.parent;
    for (int depth = 0; depth < 1000 && at > 1 && at != ::getpid(); ++depth) {
      const auto above = everybody.find(at);
      if (above == everybody.end()) break;
      at = above->second.parent;
    }
    if (at == ::getpid()) mine.emplace(pid, process);
  }
  return mine;
}

std::string described(const std::map<pid_t, Process>& processes) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& [pid, process] : processes) {
    if (++shown > 12) return text + "  and " + std::to_string(processes.size() - 12) + " more\n";
    const std::string wait = file_text("/proc/" + std::to_string(pid) + "/wchan");
    text += "  " + std::to_string(pid) + " " + process.name + ", state " + process.state +
            ", child of " + std::to_string(process.parent) +
            (wait.empty() || wait == "0" ? "" : ", in " + wait) + "\n";
  }
  return text;
}

void signal_all(int number) {
  for (const auto& [pid, process] : descendants())
    if (process.state != 'Z') ::kill(pid, number);
}

/// Waits until no process is left below this one, and kills those that are left after `patience`.
/// Returns the killed ones.
std::map<pid_t, Process> reap(milliseconds patience) {
  std::map<pid_t, Process> late;
  const auto until = Clock::now() + patience;
  for (;;) {
    const pid_t ended = ::waitpid(-1, nullptr, WNOHANG);
    if (ended > 0) continue;
    if (ended < 0) return late;  // no child
    if (Clock::now() > until) {
      if (late.empty()) late = descendants();
      signal_all(SIGKILL);
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
}

class Folder {
 public:
  Folder() {
    std::string path = std::filesystem::temp_directory_path().string() + "/programs.XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return;
    ::chmod(path.c_str(), 0777);
    path_ = path;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// A program that is running.
class Running {
 public:
  Running(const Job& job, const Facts& facts, const Setting& setting)
      : job_(&job), bound_(facts.seconds * patience()) {
    if (full_errors()) err_.fill();
    started_ = Clock::now();
    child_ = ::fork();
    if (child_ == 0) become(setting);
    out_.close_write();
    err_.close_write();
  }

  /// Waits until the program has ended, and stops it for a while in the surrounding `stopped`.
  /// Returns an empty text, or what went wrong.
  std::string wait() {
    if (child_ < 0) return "it could not be started";
    bool to_stop = job_->surrounding != nullptr && job_->surrounding->stopped;
    bool to_signal = job_->surrounding != nullptr && job_->surrounding->signalled;
    for (;;) {
      take();
      const pid_t ended = ::waitpid(child_, &status_, WNOHANG);
      if (ended == child_) break;
      const Seconds ran = Clock::now() - started_ - stood_;
      if (to_stop && (!output.empty() || ran > Seconds(0.5))) {
        to_stop = false;
        stand_still();
      }
      if (to_signal && !output.empty()) {
        to_signal = false;
        for (const int number : {SIGTERM, SIGHUP, SIGUSR1}) ::kill(-child_, number);
      }
      if (ran.count() > bound_)
        return "it did not end within its bound; its processes:\n" + described(descendants());
      std::this_thread::sleep_for(milliseconds(2));
    }
    if (to_signal) return "it wrote no line, so it got no signals";
    if (to_stop) return "it ended before it could be stopped: let it write a line sooner";
    return {};
  }
  /// Returns the exit code, or 128 + the number of the signal that ended the program.
  int code() const { return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_); }
  void take() {
    out_.take(output);
    if (!full_errors()) err_.take(errors);
  }

  std::string output, errors;

 private:
  bool full_errors() const {
    return job_->surrounding != nullptr && job_->surrounding->full_stderr;
  }
  [[noreturn]] void become(const Setting& setting) {
    ::setpgid(0, 0);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(out_.write, STDOUT_FILENO);
    ::dup2(err_.write, STDERR_FILENO);
    if (::chdir(setting.folder.c_str()) != 0) _exit(125);
    for (const char* name :
         {"TROUPE_ADDRESS", "PROGRAMS_LOCALE", "PROGRAMS_OUTPUT", "PROGRAMS_SIGNALS"})
      ::unsetenv(name);
    if (job_->surrounding != nullptr) {
      if (job_->surrounding->no_output)
        ::setenv("PROGRAMS_OUTPUT", (setting.folder + "/output").c_str(), 1);
      job_->surrounding->enter(setting);
    }
    const std::string nodes = "--troupe-nodes=" + std::to_string(job_->nodes);
    ::execl(job_->executable.c_str(), job_->executable.c_str(), job_->program.c_str(),
            job_->nodes > 1 ? nodes.c_str() : nullptr, nullptr);
    _exit(126);
  }
  void stand_still() {
    const auto from = Clock::now();
    // Two signals, since the first one misses a process that is being forked.
    signal_all(SIGSTOP);
    std::this_thread::sleep_for(milliseconds(20));
    signal_all(SIGSTOP);
    std::this_thread::sleep_until(from + kStandstill);
    signal_all(SIGCONT);
    stood_ = Clock::now() - from;
  }

  const Job* job_;
  double bound_;
  Pipe out_, err_;
  pid_t child_ = -1;
  int status_ = 0;
  Clock::time_point started_;
  Clock::duration stood_{};
};

std::string framed(const std::string& title, std::string text) {
  constexpr std::size_t kMost = 4000;
  if (text.size() > kMost) text = "...\n" + text.substr(text.size() - kMost);
  return "---- " + title + "\n" + text + (text.empty() || text.back() == '\n' ? "" : "\\\n");
}

/// Returns whether the program ended with an error that gives a reason: troupe's own, or an
/// exception that was not caught.
bool refused(int code, const std::string& errors) {
  if (code == 128 + SIGABRT) return errors.find("what():") != std::string::npos;
  return code == 1 && errors.find(": ") != std::string::npos;
}

std::string name_of(const Job& job) {
  std::string name = std::filesystem::path(job.executable).filename().string() + " " + job.program +
                     (job.nodes > 1 ? " nodes3" : "");
  if (job.surrounding != nullptr) name += std::string(" ") + job.surrounding->name;
  return name;
}

}  // namespace

double patience() {
  const char* factor = std::getenv("PROGRAMS_PATIENCE");
  const double value = factor != nullptr ? std::strtod(factor, nullptr) : 1;
  return value > 0 ? value : 1;
}

std::vector<Facts> programs_of(const std::string& executable) {
  Pipe pipe;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe.write, STDOUT_FILENO);
    ::execl(executable.c_str(), executable.c_str(), "--list", nullptr);
    _exit(126);
  }
  pipe.close_write();
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(pipe.read, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) return {};
  std::vector<Facts> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number[5];
    Facts facts;
    std::getline(fields, facts.name, '\t');
    for (std::string& one : number) std::getline(fields, one, '\t');
    std::getline(fields, facts.except, '\t');
    std::getline(fields, facts.says, '\t');
    std::getline(fields, facts.expect, '\t');
    facts.seconds = std::strtod(number[0].c_str(), nullptr);
    facts.exit_code = std::atoi(number[1].c_str());
    facts.nodes = std::atoi(number[2].c_str());
    facts.everywhere = number[3] == "1";
    facts.plain_only = number[4] == "1";
    facts.says = plain(facts.says);
    facts.expect = plain(facts.expect);
    found.push_back(std::move(facts));
  }
  return found;
}

Report run(const Job& job) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string title = name_of(job) + ": ";
  const Facts* facts = nullptr;
  const std::vector<Facts> all = programs_of(job.executable);
  for (const Facts& one : all)
    if (one.name == job.program) facts = &one;
  if (facts == nullptr) return {Verdict::wrong, title + "there is no such program\n"};
  Folder folder;
  if (folder.path().empty()) return {Verdict::wrong, title + "no folder for it\n"};
  Setting setting{.executable = job.executable,
                  .folder = folder.path(),
                  .own_user = 100000 + static_cast<unsigned>(::getpid())};
  if (job.surrounding != nullptr && job.surrounding->missing != nullptr)
    if (const std::string why = job.surrounding->missing(setting); !why.empty())
      return {Verdict::skipped, title + "skipped, " + why + "\n"};

  Running running(job, *facts, setting);
  std::string wrong = running.wait();
  const bool ended = wrong.empty();
  const auto late = reap(ended ? kAfterwards : milliseconds(0));
  running.take();
  if (!ended) {
    // A program that timed out or did not start proves nothing by what it left.
  } else if (!late.empty()) {
    wrong = "processes were left 5 s after its end:\n" + described(late);
  } else if (job.surrounding != nullptr && job.surrounding->may_refuse &&
             refused(running.code(), running.errors)) {
    return {Verdict::right, title + "refused, and said why\n"};
  } else if (running.code() != facts->exit_code) {
    wrong = "its exit code is " + std::to_string(running.code()) + ", not " +
            std::to_string(facts->exit_code);
  }
  const std::string said = job.surrounding != nullptr && job.surrounding->no_output
                               ? file_text(setting.folder + "/output")
                               : running.output;
  if (wrong.empty() && said != facts->expect) wrong = "its output differs";
  const bool heard =
      job.surrounding == nullptr || !(job.surrounding->no_output || job.surrounding->full_stderr);
  if (wrong.empty() && heard && running.errors.find(facts->says) == std::string::npos)
    wrong = "its standard error does not say: " + facts->says;
  if (wrong.empty()) return {Verdict::right, title + "right\n"};
  return {Verdict::wrong, title + wrong + "\n" + framed("expected", facts->expect) +
                              framed("got", said) + framed("standard error", running.errors) +
                              "----\n"};
}

}  // namespace programs
