// A library that is preloaded into the processes of a cluster. It leads their TCP connections
// through the proxy of the chaos program, which can hold, delay and cut them, and it shifts their
// clocks. Reads and writes of files without a name fail as CHAOS_DISK says: "write=N" each N-th
// write, "read=N" only the N-th read, "last=N" all reads but the first N. The product has no code
// for any of this.
#include "tests/chaos/page.hpp"

#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
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
