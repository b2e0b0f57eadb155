#include "troupe/runtime/os/live_stack.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/plug_in.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/os/internal/stack_door.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/os/stack_role.hpp"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>

namespace troupe::os {
namespace {

constexpr std::size_t kMostText = 512 * 1024;
constexpr std::size_t kPiece = 4096;  ///< of one packet
constexpr std::size_t kShown = 200;
constexpr std::size_t kMostThreads = 64;  ///< whose states are told

std::string first_line_of(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Returns the letter of the state in a `stat` of /proc.
char state_letter(const std::string& stat) {
  const auto end = stat.rfind(") ");
  return end == std::string::npos || end + 2 >= stat.size() ? '?' : stat[end + 2];
}

/// Returns "sleeping", or the letter of /proc for a state that has no word here.
std::string state_word(const std::string& stat) {
  const char letter = state_letter(stat);
  switch (letter) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "waiting for a device";
    case 'T': return "stopped";
    case 't': return "stopped by a debugger";
    case 'Z': return "dead, not reaped";
    default: return {letter};
  }
}

std::string name_of_thread(const std::string& folder) {
  return visible_text(first_line_of(folder + "/comm"), kShown);
}

void send_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t put = write(fd, text.data() + done, std::min(text.size() - done, kPiece));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) _exit(1);
    done += static_cast<std::size_t>(put);
  }
}

/// Returns whether somebody has halted the process, as SIGSTOP does.
bool is_halted(pid_t process) {
  return state_letter(first_line_of("/proc/" + std::to_string(process) + "/stat")) == 'T';
}

/// Blocks until the child has ended, and reaps it. Returns whether it has exited with 0.
bool ends_well(pid_t child) noexcept {
  siginfo_t how{};
  int waited = 0;
  do {
    waited = waitid(P_PID, static_cast<id_t>(child), &how, WEXITED | WNOWAIT);
  } while (waited < 0 && errno == EINTR);
  reap_at_end(child);
  return waited == 0 && how.si_code == CLD_EXITED && how.si_status == 0;
}

struct LiveReport {
  int fd, process, thread;
};

void write_frame(void* to, const internal::LiveFrame& frame) {
  auto& report = *static_cast<LiveReport*>(to);
  std::string text;
  if (frame.thread != report.thread) {
    const std::string folder =
        "/proc/" + std::to_string(report.process) + "/task/" + std::to_string(frame.thread);
    text = std::string(report.thread == 0 ? "" : "\n") + "thread " + std::to_string(frame.thread) +
           " (" + name_of_thread(folder) + ")\n";
    report.thread = frame.thread;
  }
  StackLine line;
  if (frame.module != nullptr) line.frame.module = frame.module;
  line.frame.offset = frame.offset;
  if (frame.place.function != nullptr) line.function = readable_type(frame.place.function);
  if (frame.place.file != nullptr) line.file = frame.place.file;
  line.line = frame.place.line;
  send_all(report.fd, text + "    #" + std::to_string(frame.number) + " " + text_of(line) + "\n");
}

pid_t spawn_child(pid_t process, Fd& answer) {
  auto ends = LocalSocket::pair();
  if (!ends) return -1;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(LiveStack::kLimit).count();
  const auto child = spawn(Role::stack, std::move(ends->second), std::to_string(seconds));
  if (!child) return -1;
  answer = std::move(ends->first);
  const std::string request = std::to_string(process) + "\n";
  (void)send(answer.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return *child;
}

pid_t fork_child(pid_t process, Fd& answer) {
  auto ends = LocalSocket::pair();
  if (!ends) return -1;
  answer = std::move(ends->first);
  const pid_t child = fork();
  if (child == 0) show_stacks(process, ends->second.get());
  return child;
}

}  // namespace

void show_stacks(pid_t process, int fd) {
  const auto found = find_in_plug_in(internal::kStackPlugin, internal::kLiveDoor);
  std::string why;
  if (found) {
    LiveReport report{fd, process, 0};
    const char* const reason =
        reinterpret_cast<internal::LiveDoor (*)()>(*found)()(process, write_frame, &report);
    if (reason != nullptr) why = reason;
  } else {
    why = found.error().message();
  }
  if (!why.empty())
    send_all(fd, thread_states(process) + "    (stacks are missing: " + visible_text(why) + ")\n");
  _exit(0);
}

std::string thread_states(pid_t process) {
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  std::string text;
  std::error_code failed;
  std::vector<std::string> threads;
  for (const auto& entry : std::filesystem::directory_iterator(tasks, failed))
    threads.push_back(entry.path().filename().string());
  std::sort(threads.begin(), threads.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  const std::size_t more = threads.size() - std::min(threads.size(), kMostThreads);
  threads.resize(threads.size() - more);
  for (const std::string& thread : threads) {
    std::string folder = tasks;
    folder.append("/").append(thread);
    const std::string waits_in = visible_text(first_line_of(folder + "/wchan"), kShown);
    text += "thread " + thread + " (" + name_of_thread(folder) +
            "): " + state_word(first_line_of(folder + "/stat"));
    text += waits_in.empty() || waits_in == "0" ? "\n" : " in " + waits_in + "\n";
  }
  if (more != 0) text += "and " + std::to_string(more) + " more threads\n";
  return text;
}

void allow_live_stack(int socket) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return;
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(peer.pid), 0, 0, 0);
}

Result<LiveStack> LiveStack::start(pid_t process, StackLines::By by) {
  Fd goes_on = is_halted(process) ? Fd() : handle_of(process);
  Fd answer;
  const pid_t child =
      by == StackLines::By::role ? spawn_child(process, answer) : fork_child(process, answer);
  if (child < 0)
    return Error(Code::out_of_memory, "no process can be started that reads the stacks");
  return LiveStack(process, child, std::move(answer), std::move(goes_on));
}

LiveStack::LiveStack(pid_t process, pid_t child, Fd answer, Fd goes_on) noexcept
    : process_(process), child_(child), answer_(std::move(answer)), goes_on_(std::move(goes_on)) {}
LiveStack::LiveStack(LiveStack&& other) noexcept
    : process_(other.process_),
      child_(std::exchange(other.child_, -1)),
      answer_(std::move(other.answer_)),
      goes_on_(std::move(other.goes_on_)),
      bytes_(std::move(other.bytes_)) {}

LiveStack::~LiveStack() {
  if (child_ < 0) return;
  send_signal(child_, SIGKILL);
  if (ends_well(child_) || !goes_on_) return;
  // The SIGSTOP of an attach outlives a reader that was killed. A thread in the kernel has not even
  // seen it. SIGCONT undoes it in both cases.
  (void)syscall(SYS_pidfd_send_signal, goes_on_.get(), SIGCONT, nullptr, 0);
}

bool LiveStack::read() {
  char piece[kPiece];
  for (;;) {
    const ssize_t got = recv(answer_.get(), piece, sizeof piece, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno != EAGAIN;
    if (got == 0) return true;
    if (bytes_.size() < kMostText) bytes_.append(piece, static_cast<std::size_t>(got));
  }
}

std::string LiveStack::text() const {
  if (!bytes_.empty()) return bytes_;
  return thread_states(process_) + "    (stacks are missing: no answer in 5 s)\n";
}

}  // namespace troupe::os
