// The writer of crash records: a signal handler, which uses system calls and backtrace() alone.
#include "troupe/runtime/os/crash_record.hpp"

#include "troupe/runtime/os/internal/crash_layout.hpp"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace troupe::os {
namespace {

using internal::CrashHead;
using internal::CrashStage;
using internal::kMaxMapBytes;

constexpr std::size_t kStackBytes = 64 * 1024;
constexpr std::size_t kPage = 4096;
constexpr unsigned kLongest = 3;  ///< seconds that the handler may take before the process ends

std::byte* g_area = nullptr;
pid_t g_pid = 0;                     // the process that records; a fork has another one
std::atomic<pid_t> g_writer{0};      // the first thread that crashed
std::atomic<bool> g_written{false};  // its record is there
char g_piece[4096];                  // of /proc/self/maps; the writer's alone

pid_t own_pid() noexcept {
  return static_cast<pid_t>(syscall(SYS_getpid));
}
pid_t own_thread() noexcept {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

std::uintptr_t instruction_of(const void* context) noexcept {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<std::uintptr_t>(machine.pc);
#else
  static_cast<void>(machine);
  return 0;
#endif
}

/// Returns the word on top of the interrupted stack, which is the return address after a call; 0:
/// it cannot be read. The kernel reads it, so that a bad stack pointer does no harm.
std::uintptr_t return_address_of(const void* context) noexcept {
  std::uintptr_t word = 0;
#if defined(__x86_64__)
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
  const iovec to{&word, sizeof word};
  const iovec from{reinterpret_cast<void*>(machine.gregs[REG_RSP]), sizeof word};
  if (syscall(SYS_process_vm_readv, own_pid(), &to, 1, &from, 1, 0) != sizeof word) word = 0;
#elif defined(__aarch64__)
  word = static_cast<const ucontext_t*>(context)->uc_mcontext.regs[30];
#else
  static_cast<void>(context);
#endif
  return word;
}

/// Writes the stack from the interrupted instruction outwards.
void write_frames(CrashHead& head, const void* context) noexcept {
  constexpr int kOwn = 8;  // frames of the handler and the kernel's trampoline
  const std::uintptr_t instruction = instruction_of(context);
  void* frames[kMaxCrashFrames + kOwn];
  const int count = backtrace(frames, static_cast<int>(kMaxCrashFrames) + kOwn);
  const auto at = [&](int i) { return reinterpret_cast<std::uintptr_t>(frames[i]); };
  int first = 0;
  while (first < count && at(first) != instruction) ++first;
  head.at[0] = instruction;
  std::uint32_t written = 1;
  for (int i = first + 1; i < count && written < kMaxCrashFrames; ++i) head.at[written++] = at(i);
  // After a jump to an address without code the unwinder knows no caller.
  if (written == 1) {
    const std::uintptr_t caller = return_address_of(context);
    if (caller != 0) head.at[written++] = caller;
  }
  head.frames = written;
}

bool is_executable(const char* line, std::size_t size) noexcept {
  const auto* blank = static_cast<const char*>(std::memchr(line, ' ', size));
  return blank != nullptr && line + size - blank > 4 && blank[3] == 'x';
}

/// Copies the executable lines of /proc/self/maps. A line that does not fit is left out.
void write_maps(CrashHead& head, char* to) noexcept {
  const int fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return;
  std::size_t used = 0, kept = 0;  // bytes in `to`; bytes of g_piece that begin a line
  for (;;) {
    const ssize_t got = read(fd, g_piece + kept, sizeof g_piece - kept);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const std::size_t size = kept + static_cast<std::size_t>(got);
    std::size_t begin = 0;
    while (const auto* end =
               static_cast<const char*>(std::memchr(g_piece + begin, '\n', size - begin))) {
      const auto length = static_cast<std::size_t>(end + 1 - (g_piece + begin));
      if (is_executable(g_piece + begin, length) && used + length <= kMaxMapBytes) {
        std::memcpy(to + used, g_piece + begin, length);
        used += length;
      }
      begin += length;
    }
    kept = size - begin;
    if (kept == sizeof g_piece) kept = 0;  // no line is that long
    std::memmove(g_piece, g_piece + begin, kept);
  }
  syscall(SYS_close, fd);
  head.map_bytes = static_cast<std::uint32_t>(used);
}

void write_record(int signal, const siginfo_t& info, const void* context) noexcept {
  auto& head = *reinterpret_cast<CrashHead*>(g_area);
  const bool sent = info.si_code <= 0;
  head.magic = internal::kCrashMagic;
  head.signal = signal;
  head.sent = sent ? 1 : 0;
  head.address = sent ? static_cast<std::uint64_t>(info.si_pid)
                      : reinterpret_cast<std::uintptr_t>(info.si_addr);
  head.pid = g_pid;
  head.thread = own_thread();
  prctl(PR_GET_NAME, head.name);
  const std::atomic_ref stage(head.stage);
  stage.store(static_cast<std::uint32_t>(CrashStage::begun), std::memory_order_release);
  write_maps(head, reinterpret_cast<char*>(g_area) + sizeof head);
  write_frames(head, context);
  stage.store(static_cast<std::uint32_t>(CrashStage::whole), std::memory_order_release);
}

/// Ends the process by SIGALRM if the record is not written in time: a thread that holds a lock of
/// the unwinder may have been stopped for ever.
void bound_time() noexcept {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  sigaction(SIGALRM, &action, nullptr);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  alarm(kLongest);
}

/// Waits until the first thread that crashed has written the record, since the end of this thread
/// ends the process.
void await_writer() noexcept {
  constexpr int kTimes = 100 * static_cast<int>(kLongest);
  const timespec pause{0, 10'000'000};
  for (int i = 0; i < kTimes && !g_written.load(std::memory_order_acquire); ++i)
    nanosleep(&pause, nullptr);
}

void on_crash(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  if (own_pid() == g_pid) {
    pid_t nobody = 0;
    if (g_writer.compare_exchange_strong(nobody, own_thread())) {
      bound_time();
      write_record(signal, *info, context);
      alarm(0);
      g_written.store(true, std::memory_order_release);
    } else {
      await_writer();
    }
  }
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  // A fault happens again at the same instruction. A signal that was sent does not.
  if (info->si_code <= 0) syscall(SYS_tgkill, own_pid(), own_thread(), signal);
  errno = saved;
}

/// The handler's stack of one thread, with a page below it that nobody may touch.
class CrashStack {
 public:
  CrashStack() noexcept = default;
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;
  ~CrashStack() {
    if (memory_ == nullptr) return;
    stack_t present{};
    const bool mine = sigaltstack(nullptr, &present) == 0 &&
                      present.ss_sp == static_cast<std::byte*>(memory_) + kPage;
    if (mine) {
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      if (sigaltstack(&none, nullptr) != 0) return;
    }
    munmap(memory_, kStackBytes + kPage);
  }
  bool give() noexcept {
    stack_t present{};
    if (sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE) == 0) return true;
    void* const memory = mmap(nullptr, kStackBytes + kPage, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    std::byte* const begin = static_cast<std::byte*>(memory) + kPage;
    stack_t stack{};
    stack.ss_sp = begin;
    stack.ss_size = kStackBytes;
    if (mprotect(begin, kStackBytes, PROT_READ | PROT_WRITE) != 0 ||
        sigaltstack(&stack, nullptr) != 0) {
      munmap(memory, kStackBytes + kPage);
      return false;
    }
    memory_ = memory;
    return true;
  }

 private:
  void* memory_ = nullptr;
};

}  // namespace

bool give_crash_stack() noexcept {
  thread_local CrashStack stack;
  return stack.give();
}

std::uint64_t record_crashes(std::span<std::byte> area) noexcept {
  TROUPE_ASSERT(area.size() >= kCrashBytes, "a crash record needs its whole area");
  // The first call loads the unwinder's library, which takes locks and memory.
  void* frame[1];
  backtrace(frame, 1);
  g_area = area.data();
  g_pid = own_pid();
  g_writer.store(0);
  g_written.store(false);
  give_crash_stack();
  std::uint64_t recorded = 0;
  for (const int signal : kCrashSignals) {
    struct sigaction present{};
    if (sigaction(signal, nullptr, &present) != 0) continue;
    const bool is_default = (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL;
    if (!is_default) continue;
    struct sigaction action{};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    // A fault inside the handler meets a blocked signal, so the kernel ends the process.
    for (const int other : kCrashSignals) sigaddset(&action.sa_mask, other);
    if (sigaction(signal, &action, nullptr) == 0) recorded |= std::uint64_t{1} << (signal - 1);
  }
  return recorded;
}

}  // namespace troupe::os
