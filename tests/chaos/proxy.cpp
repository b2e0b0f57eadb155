#include "tests/chaos/proxy.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chaos {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostBuffered = 4u << 20;  // per direction
constexpr std::size_t kChunk = 256u << 10;

sockaddr_in loopback(std::uint32_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int listener(int backlog) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_in own = loopback(0);
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
      ::listen(fd, backlog) != 0)
    std::abort();
  return fd;
}

std::uint32_t port_of(int fd) {
  sockaddr_in own{};
  socklen_t size = sizeof own;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size);
  return ntohs(own.sin_port);
}

int connect_to(std::uint32_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

void close_with_reset(int fd) {
  const linger reset{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  ::close(fd);
}

/// Bytes that one side has sent and the other has not received yet.
struct Direction {
  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };
  std::deque<Piece> pieces;
  std::size_t size = 0, done = 0;  ///< all bytes; sent bytes of the first piece
  bool ended = false, told = false;
  bool held_once = false;
};

/// Side 0 opened the connection.
struct Pair {
  int fd[2] = {-1, -1};
  int pid[2] = {0, 0};
  Direction from[2];
  bool cut = false;
};

}  // namespace

struct Proxy::Impl {
  explicit Impl(Page& p) : page(p), door(listener(128)), hole(listener(0)) {
    wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    page.hole_port = port_of(hole);
    page.proxy_port = port_of(door);
    thread = std::thread([this] { run(); });
  }
  ~Impl() {
    page.proxy_port = 0;
    stop = true;
    poke();
    thread.join();
    for (Pair& pair : pairs)
      for (const int fd : pair.fd) ::close(fd);
    for (const int fd : fill) ::close(fd);
    for (const int fd : {door, hole, wake}) ::close(fd);
  }

  /// Fills the backlog of a listener that never accepts. Later connections to it hang, as into a
  /// dead network.
  void fill_hole() {
    if (!fill.empty()) return;
    const sockaddr_in address = loopback(port_of(hole));
    for (int i = 0; i < 3; ++i) {
      fill.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)!::connect(fill.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
  }

  void poke() const {
    const std::uint64_t one = 1;
    (void)!::write(wake, &one, sizeof one);
  }

  // Rules; under the lock.

  bool held(int from, int to) const {
    return isolated.count(from) != 0 || isolated.count(to) != 0 || mute.count(from) != 0 ||
           between.count(std::minmax(from, to)) != 0;
  }
  int delay_of(const Pair& pair) const {
    int most = 0;
    for (const int pid : pair.pid) {
      const auto at = delays.find(pid);
      if (at != delays.end()) most = std::max(most, at->second);
    }
    return most;
  }

  int owner_of(std::uint32_t port) const {
    const std::uint32_t count = std::min<std::uint32_t>(page.listeners, kMostListeners);
    for (std::uint32_t i = count; i-- > 0;)
      if (page.listener[i].port == port) return page.listener[i].pid;
    return 0;
  }

  // The loop.

  void run() {
    while (!stop) {
      std::vector<pollfd> entries{{wake, POLLIN, 0}, {door, POLLIN, 0}};
      int most = 1000;
      {
        const std::lock_guard lock(mutex);
        entries.push_back({fill.empty() ? hole : -1, POLLIN, 0});
        for (const Pair& pair : pairs) add(pair, entries, most);
      }
      ::poll(entries.data(), entries.size(), most);
      std::uint64_t ignored;
      (void)!::read(wake, &ignored, sizeof ignored);
      const std::lock_guard lock(mutex);
      accept_all();
      if (fill.empty()) empty_hole();
      for (auto at = pairs.begin(); at != pairs.end();)
        at = carry(*at) ? std::next(at) : pairs.erase(at);
    }
  }

  void add(const Pair& pair, std::vector<pollfd>& entries, int& most) const {
    const auto now = Clock::now();
    for (int side : {0, 1}) {
      int events = 0;
      const Direction& in = pair.from[side];
      const Direction& out = pair.from[1 - side];
      if (!in.ended && in.size < kMostBuffered) events |= POLLIN;
      if (!out.pieces.empty() && !held(pair.pid[1 - side], pair.pid[side])) {
        if (out.pieces.front().due <= now) {
          events |= POLLOUT;
        } else {
          const auto left =
              std::chrono::ceil<std::chrono::milliseconds>(out.pieces.front().due - now);
          most = std::min<int>(most, static_cast<int>(left.count()));
        }
      }
      entries.push_back({events != 0 ? pair.fd[side] : -1, static_cast<short>(events), 0});
    }
  }

  void accept_all() {
    for (int fd; (fd = ::accept4(door, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) greet(fd);
  }

  void greet(int fd) {
    Greeting greeting;
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, 1000) != 1 ||
        ::recv(fd, &greeting, sizeof greeting, MSG_WAITALL) != ssize_t{sizeof greeting} ||
        greeting.magic != kMagic) {
      ::close(fd);
      return;
    }
    const int target = owner_of(greeting.port);
    Verdict verdict = Verdict::hole;
    int other = -1;
    if (held(greeting.pid, target) || held(target, greeting.pid)) {
      ++effects;
    } else {
      other = connect_to(greeting.port);
      verdict = other >= 0 ? Verdict::connected : Verdict::refused;
    }
    (void)!::send(fd, &verdict, 1, MSG_NOSIGNAL);
    if (other < 0) {
      ::close(fd);
      return;
    }
    pairs.emplace_back();
    Pair& pair = pairs.back();
    pair.fd[0] = fd;
    pair.fd[1] = other;
    pair.pid[0] = greeting.pid;
    pair.pid[1] = target;
    for (const int side : pair.fd) {
      const int one = 1;
      ::setsockopt(side, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      ::fcntl(side, F_SETFL, O_NONBLOCK);
    }
  }

  /// Returns false when the connection is over.
  bool carry(Pair& pair) {
    if (pair.cut) {
      ++effects;
      for (const int fd : pair.fd) close_with_reset(fd);
      return false;
    }
    for (int side : {0, 1}) {
      const bool fine = take(pair, side) && give(pair, side);
      if (!fine) {
        for (const int fd : pair.fd) close_with_reset(fd);
        return false;
      }
    }
    if (!pair.from[0].told || !pair.from[1].told) return true;
    for (const int fd : pair.fd) ::close(fd);
    return false;
  }

  bool take(Pair& pair, int side) {
    Direction& in = pair.from[side];
    if (in.ended || in.size >= kMostBuffered) return true;
    buffer.resize(kChunk);
    const ssize_t n = ::recv(pair.fd[side], buffer.data(), buffer.size(), 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) {
      in.ended = true;
      return true;
    }
    const int late = delay_of(pair);
    if (late > 0 || held(pair.pid[side], pair.pid[1 - side])) ++effects;
    in.pieces.push_back({Clock::now() + std::chrono::milliseconds(late),
                         buffer.substr(0, static_cast<std::size_t>(n))});
    in.size += static_cast<std::size_t>(n);
    return true;
  }

  bool give(Pair& pair, int side) {
    Direction& in = pair.from[side];
    const int other = pair.fd[1 - side];
    if (held(pair.pid[side], pair.pid[1 - side])) return true;
    const auto now = Clock::now();
    while (!in.pieces.empty() && in.pieces.front().due <= now) {
      const std::string& bytes = in.pieces.front().bytes;
      const ssize_t n = ::send(other, bytes.data() + in.done, bytes.size() - in.done, MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      in.done += static_cast<std::size_t>(n);
      in.size -= static_cast<std::size_t>(n);
      if (in.done < bytes.size()) return true;
      in.done = 0;
      in.pieces.pop_front();
    }
    if (in.ended && in.pieces.empty() && !in.told) {
      in.told = true;
      ::shutdown(other, SHUT_WR);
    }
    return true;
  }

  /// Empties the hole's backlog. New connections to the hole then complete and are reset. No
  /// process is ever told that nothing listens on the port.
  void open_hole() {
    for (const int fd : fill) ::close(fd);
    fill.clear();
  }
  void empty_hole() const {
    for (int fd; (fd = ::accept4(hole, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) close_with_reset(fd);
  }

  Page& page;
  int door, hole, wake = -1;
  std::vector<int> fill;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> effects{0};
  std::string buffer;
  std::list<Pair> pairs;
  mutable std::mutex mutex;
  std::set<int> isolated, mute;
  std::set<std::pair<int, int>> between;
  std::map<int, int> delays;
  std::thread thread;
};

Proxy::Proxy(Page& page) : impl_(std::make_unique<Impl>(page)) {}
Proxy::~Proxy() = default;

void Proxy::hold(int pid, bool on, bool only_out) {
  const std::lock_guard lock(impl_->mutex);
  if (on) impl_->fill_hole();
  std::set<int>& rule = only_out ? impl_->mute : impl_->isolated;
  on ? (void)rule.insert(pid) : (void)rule.erase(pid);
  impl_->poke();
}

void Proxy::hold_between(int a, int b, bool on) {
  const std::lock_guard lock(impl_->mutex);
  const std::pair<int, int> key = std::minmax(a, b);
  if (on) impl_->fill_hole();
  on ? (void)impl_->between.insert(key) : (void)impl_->between.erase(key);
  impl_->poke();
}

void Proxy::delay(int pid, int milliseconds) {
  const std::lock_guard lock(impl_->mutex);
  milliseconds > 0 ? (void)(impl_->delays[pid] = milliseconds) : (void)impl_->delays.erase(pid);
  impl_->poke();
}

void Proxy::cut(int pid) {
  const std::lock_guard lock(impl_->mutex);
  for (Pair& pair : impl_->pairs) pair.cut = pair.cut || pair.pid[0] == pid || pair.pid[1] == pid;
  impl_->poke();
}

void Proxy::heal() {
  const std::lock_guard lock(impl_->mutex);
  impl_->isolated.clear();
  impl_->mute.clear();
  impl_->between.clear();
  impl_->delays.clear();
  impl_->open_hole();
  impl_->poke();
}

std::uint64_t Proxy::effect() const {
  return impl_->effects;
}

}  // namespace chaos
