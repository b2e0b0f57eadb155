// A library that is preloaded into the processes of a cluster. It leads their TCP connections
// through the proxy of the chaos program, which can hold, delay and cut them, and it shifts their
// clocks. Reads and writes of files without a name fail as CHAOS_DISK says: "write=N" each N-th
// write, "read=N" only the N-th read, "last=N" all reads but the first N.
//
// CHAOS_CALL is "ACT CALL N TEXT". CALL is listen, connect, write, fsync (or fdatasync), rename or
// renamed (after it). Files count whose path has TEXT; listening counts in workers, and connecting to workers. The
// processes of a page count together. ACT says what becomes of the N-th call: "stop" stops the
// process, "hang=MS" delays the call. With "full", the disk has no room from the N-th call on.
// CHAOS_HIDE is "NODE TEXT": the workers of that node cannot open files whose path has TEXT.
//
// The product has no code for any of this.
#include "tests/chaos/page.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using chaos::Page;

Page* page() {
  static Page* const mapped = [] {
    const char* path = std::getenv(chaos::kPageVariable);
    return path != nullptr ? chaos::map_page(path, false) : nullptr;
  }();
  return mapped;
}

/// Returns the real function. It is looked up at the first use, since that may come before any
/// constructor of this library.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}
int real_connect(int fd, const sockaddr* address, socklen_t size) {
  static auto* const real = next<int(int, const sockaddr*, socklen_t)>("connect");
  return real(fd, address, size);
}
int real_listen(int fd, int backlog) {
  static auto* const real = next<int(int, int)>("listen");
  return real(fd, backlog);
}
int real_clock(clockid_t clock, timespec* time) {
  static auto* const real = next<int(clockid_t, timespec*)>("clock_gettime");
  return real(clock, time);
}

void move_by(std::int64_t ns, timespec& time) {
  const std::int64_t moved = std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec + ns;
  time.tv_sec = moved / 1'000'000'000;
  time.tv_nsec = moved % 1'000'000'000;
}

/// Returns the number that follows `word` in CHAOS_DISK, or 0.
long disk_fault(const char* word) {
  const char* text = std::getenv("CHAOS_DISK");
  const char* at = text != nullptr ? std::strstr(text, word) : nullptr;
  return at != nullptr ? std::strtol(at + std::strlen(word), nullptr, 10) : 0;
}

/// Returns whether `fd` is a file of spilled values. Shared memory has no name either, but it can
/// be sealed.
bool has_no_name(int fd) {
  struct stat about{};
  return ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink == 0 &&
         ::fcntl(fd, F_GET_SEALS) != 0;
}

ssize_t write_at(int fd, const void* from, std::size_t size, off_t at) {
  static auto* const real = next<ssize_t(int, const void*, std::size_t, off_t)>("pwrite");
  static const long every = disk_fault("write=");
  static std::atomic<long> count{0};
  if (every == 0 || !has_no_name(fd) || ++count % every != 0) return real(fd, from, size, at);
  errno = EIO;
  return -1;
}

ssize_t read_at(int fd, void* into, std::size_t size, off_t at) {
  static auto* const real = next<ssize_t(int, void*, std::size_t, off_t)>("pread");
  static const long which = disk_fault("read=");
  static const long last = disk_fault("last=");
  static std::atomic<long> count{0};
  if ((which == 0 && last == 0) || !has_no_name(fd)) return real(fd, into, size, at);
  const long now = ++count;
  if (now != which && (last == 0 || now <= last)) return real(fd, into, size, at);
  errno = EIO;
  return -1;
}

/// What CHAOS_CALL says.
struct Plan {
  enum class Act : char { none, stop, full, hang } act = Act::none;
  std::array<char, 16> call{};
  std::array<char, 128> text{};
  int number = 0;
  long ms = 0;
};

const Plan& plan() {
  static const Plan made = [] {
    Plan read;
    std::array<char, 24> act{};
    const char* said = std::getenv("CHAOS_CALL");
    if (said == nullptr || std::sscanf(said, "%23s %15s %d %127s", act.data(), read.call.data(),
                                       &read.number, read.text.data()) < 3)
      return Plan{};
    if (std::strcmp(act.data(), "stop") == 0) read.act = Plan::Act::stop;
    if (std::strcmp(act.data(), "full") == 0) read.act = Plan::Act::full;
    if (std::sscanf(act.data(), "hang=%ld", &read.ms) == 1) read.act = Plan::Act::hang;
    return read;
  }();
  return made;
}

bool is_planned(const char* call) {
  return plan().act != Plan::Act::none && std::strcmp(plan().call.data(), call) == 0 &&
         page() != nullptr;
}

/// Counts a call that is planned, and does what the plan says. Returns the error with which the
/// call fails, or 0.
int planned() {
  const int errors = errno;
  const int number = ++page()->calls;
  if (plan().act == Plan::Act::full) return number >= plan().number ? ENOSPC : 0;
  if (number != plan().number) return 0;
  if (plan().act == Plan::Act::stop) {
    page()->stopped = ::getpid();
    ::raise(SIGSTOP);
  } else {
    ::usleep(static_cast<useconds_t>(plan().ms * 1000));
  }
  errno = errors;
  return 0;
}

bool has_text(const char* path) {
  return std::strstr(path, plan().text.data()) != nullptr;
}

bool has_text(int fd) {
  std::array<char, 32> link{};
  std::array<char, 4096> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  return ::readlink(link.data(), path.data(), path.size() - 1) > 0 && has_text(path.data());
}

/// Returns whether the command line of a process begins with "troupe: worker" and has `text`.
bool is_worker(int pid, const char* text) {
  std::array<char, 32> name{};
  std::array<char, 128> line{};
  std::snprintf(name.data(), name.size(), "/proc/%d/cmdline", pid);
  const int fd = ::open(name.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t size = ::read(fd, line.data(), line.size() - 1);
  ::close(fd);
  return size > 0 && std::strncmp(line.data(), "troupe: worker", 14) == 0 &&
         std::strstr(line.data(), text) != nullptr;
}

bool is_door(int port) {
  const std::uint32_t count = page()->listeners;
  for (std::uint32_t i = 0; i < count && i < chaos::kMostListeners; ++i) {
    const chaos::Listener& one = page()->listener[i];
    if (static_cast<int>(one.port) == port && is_worker(one.pid, "")) return true;
  }
  return false;
}

/// Returns whether CHAOS_HIDE hides this file from this process.
bool is_hidden(const char* path) {
  static const char* const said = std::getenv("CHAOS_HIDE");
  if (said == nullptr) return false;
  std::array<char, 32> node{};
  std::array<char, 256> text{};
  return std::sscanf(said, "%31s %255s", node.data(), text.data()) == 2 &&
         std::strstr(path, text.data()) != nullptr && is_worker(::getpid(), node.data());
}

sockaddr_in loopback(std::uint32_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int to(int fd, const sockaddr_in& address) {
  return real_connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

void disconnect(int fd) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  (void)real_connect(fd, &none, sizeof none);
}

/// Asks the proxy over this socket to connect to `port`, and returns its verdict.
chaos::Verdict ask(int fd, std::uint32_t port) {
  const sockaddr_in proxy = loopback(page()->proxy_port);
  chaos::Greeting greeting;
  greeting.pid = ::getpid();
  greeting.port = port;
  char answer = 0;
  pollfd entry{fd, POLLIN, 0};
  if (to(fd, proxy) != 0 ||
      ::send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) != ssize_t{sizeof greeting} ||
      ::poll(&entry, 1, 10'000) != 1 || ::recv(fd, &answer, 1, 0) != 1)
    return chaos::Verdict::hole;  // the proxy did not answer, so the port is not refused
  return static_cast<chaos::Verdict>(answer);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int connect(int fd, const sockaddr* address,
                                                              socklen_t size) {
  Page* shared = page();
  const auto* target = reinterpret_cast<const sockaddr_in*>(address);
  if (is_planned("connect") && size >= sizeof(sockaddr_in) && target->sin_family == AF_INET &&
      is_door(ntohs(target->sin_port)))
    (void)planned();
  if (shared == nullptr || shared->proxy_port == 0 || size < sizeof(sockaddr_in) ||
      target->sin_family != AF_INET || (ntohl(target->sin_addr.s_addr) >> 24) != 127)
    return real_connect(fd, address, size);
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
  const chaos::Verdict verdict = ask(fd, ntohs(target->sin_port));
  ::fcntl(fd, F_SETFL, flags);
  if (verdict == chaos::Verdict::connected) return 0;
  disconnect(fd);
  if (verdict == chaos::Verdict::hole) return to(fd, loopback(shared->hole_port));
  errno = ECONNREFUSED;
  return -1;
}

extern "C" __attribute__((visibility("default"))) int listen(int fd, int backlog) {
  const int result = real_listen(fd, backlog);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  if (result != 0 || page() == nullptr ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0 || own.sin_family != AF_INET)
    return result;
  const std::uint32_t at = page()->listeners++;
  if (at < chaos::kMostListeners) {
    page()->listener[at].port = ntohs(own.sin_port);
    page()->listener[at].pid = ::getpid();
  }
  if (is_planned("listen") && is_worker(::getpid(), "")) (void)planned();
  return result;
}

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) {
  const int result = real_clock(clock, time);
  if (result != 0 || page() == nullptr) return result;
  if (clock == CLOCK_REALTIME && page()->clock_offset_ns != 0) {
    move_by(page()->clock_offset_ns, *time);
    ++page()->clock_reads;
  } else if (clock == CLOCK_BOOTTIME && page()->slept_ns != 0) {
    move_by(page()->slept_ns, *time);
    ++page()->sleep_reads;
  }
  return result;
}

/// Moves absolute times back to the real clock, since the caller read the shifted one. Only
/// timers of actors are absolute.
extern "C" __attribute__((visibility("default"))) int timer_settime(timer_t timer, int flags,
                                                                    const itimerspec* when,
                                                                    itimerspec* before) noexcept {
  static auto* const real =
      next<int(timer_t, int, const itimerspec*, itimerspec*)>("timer_settime");
  itimerspec moved = *when;
  const bool set = when->it_value.tv_sec != 0 || when->it_value.tv_nsec != 0;
  if ((flags & TIMER_ABSTIME) != 0 && set && page() != nullptr)
    move_by(-page()->slept_ns, moved.it_value);
  if (set && moved.it_value.tv_sec < 0) moved.it_value = {0, 1};  // past, but not 0 (disarmed)
  return real(timer, flags, &moved, before);
}

#define CHAOS_INSTEAD extern "C" __attribute__((visibility("default")))
CHAOS_INSTEAD ssize_t pwrite(int fd, const void* from, std::size_t size, off_t at) {
  return write_at(fd, from, size, at);
}
CHAOS_INSTEAD ssize_t pwrite64(int fd, const void* from, std::size_t size, off64_t at) {
  return write_at(fd, from, size, at);
}
CHAOS_INSTEAD ssize_t pread(int fd, void* into, std::size_t size, off_t at) {
  return read_at(fd, into, size, at);
}
CHAOS_INSTEAD ssize_t pread64(int fd, void* into, std::size_t size, off64_t at) {
  return read_at(fd, into, size, at);
}

CHAOS_INSTEAD ssize_t write(int fd, const void* from, std::size_t size) {
  static auto* const real = next<ssize_t(int, const void*, std::size_t)>("write");
  const int error = is_planned("write") && has_text(fd) ? planned() : 0;
  if (error == 0) return real(fd, from, size);
  errno = error;
  return -1;
}
CHAOS_INSTEAD int fsync(int fd) {
  static auto* const real = next<int(int)>("fsync");
  if (is_planned("fsync") && has_text(fd)) (void)planned();
  return real(fd);
}
CHAOS_INSTEAD int fdatasync(int fd) {
  static auto* const real = next<int(int)>("fdatasync");
  if (is_planned("fsync") && has_text(fd)) (void)planned();
  return real(fd);
}
CHAOS_INSTEAD int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  if (is_planned("rename") && has_text(to)) (void)planned();
  const int result = real(from, to);
  if (is_planned("renamed") && has_text(to)) (void)planned();
  return result;
}

/// Opens a file unless it is hidden. As in the C library, only two flags make use of a mode.
#define CHAOS_OPEN(name)                                                           \
  CHAOS_INSTEAD int name(const char* path, int flags, ...) {                       \
    static auto* const real = next<int(const char*, int, ...)>(#name);             \
    std::va_list rest;                                                             \
    va_start(rest, flags);                                                         \
    const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; \
    const mode_t mode = makes ? va_arg(rest, mode_t) : 0;                          \
    va_end(rest);                                                                  \
    if (!is_hidden(path)) return real(path, flags, mode);                          \
    errno = ENOENT;                                                                \
    return -1;                                                                     \
  }
CHAOS_OPEN(open)
CHAOS_OPEN(open64)
