#include "troupe/runtime/net/bulk.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::net {
namespace {

constexpr std::size_t kMostWaiting = 128;
constexpr int kBacklog = 256;

Result<sockaddr_in> address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
    return Error(Code::invalid_argument, "'" + host + "' is not an IPv4 address");
  return address;
}

std::string name(const std::string& host, std::uint16_t port) {
  return host + ":" + std::to_string(port);
}

void id_to_bytes(BulkId id, std::byte (&out)[16]) noexcept {
  for (int i = 0; i < 8; ++i) {
    out[i] = static_cast<std::byte>(id.high >> (8 * i));
    out[8 + i] = static_cast<std::byte>(id.low >> (8 * i));
  }
}
BulkId id_of(const std::byte (&in)[16]) noexcept {
  BulkId id;
  for (int i = 0; i < 8; ++i) {
    id.high |= static_cast<std::uint64_t>(in[i]) << (8 * i);
    id.low |= static_cast<std::uint64_t>(in[8 + i]) << (8 * i);
  }
  return id;
}

void do_not_wait_for_more(int fd) noexcept {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Result<Fd> bulk_connect(const std::string& host, std::uint16_t port, BulkId id, Time by) {
  const Result<sockaddr_in> address = address_of(host, port);
  if (!address) return address.error();
  auto failed = [&](const std::string& why) {
    return Error(Code::unavailable, "cannot connect to " + name(host, port) + ": " + why);
  };
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return failed(std::strerror(errno));
  do_not_wait_for_more(fd.get());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    if (errno != EINPROGRESS) return failed(std::strerror(errno));
    const Duration left = std::max(by - steady_now(), Duration{});
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(
        std::min<Duration>(left, std::chrono::hours(1)));
    pollfd entry{fd.get(), POLLOUT, 0};
    int n = 0;
    do {
      n = ::poll(&entry, 1, static_cast<int>(ms.count()));
    } while (n < 0 && errno == EINTR && steady_now() < by);
    if (n <= 0) return Error(Code::timed_out, "no connection to " + name(host, port) + " in time");
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failed(std::strerror(error));
  }
  std::byte bytes[16];
  id_to_bytes(id, bytes);
  // 16 bytes always fit into the buffer of a fresh connection.
  if (send(fd.get(), bytes, sizeof bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof bytes))
    return failed(std::strerror(errno));
  return fd;
}

BulkDoor::BulkDoor(Fd listener, Fd epoll, std::uint16_t port)
    : listener_(std::move(listener)), epoll_(std::move(epoll)), port_(port) {}
BulkDoor::~BulkDoor() = default;

Result<std::unique_ptr<BulkDoor>> BulkDoor::open(const std::string& host, std::uint16_t port) {
  Result<sockaddr_in> address = address_of(host, port);
  if (!address) return address.error();
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto* raw = reinterpret_cast<sockaddr*>(&*address);
  socklen_t size = sizeof *address;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listener.get();
  if (!listener || !epoll || bind(listener.get(), raw, size) != 0 ||
      listen(listener.get(), kBacklog) != 0 || getsockname(listener.get(), raw, &size) != 0 ||
      epoll_ctl(epoll.get(), EPOLL_CTL_ADD, listener.get(), &event) != 0)
    return Error(Code::unavailable,
                 "cannot listen on " + name(host, port) + ": " + std::strerror(errno));
  return std::unique_ptr<BulkDoor>(
      new BulkDoor(std::move(listener), std::move(epoll), ntohs(address->sin_port)));
}

void BulkDoor::accept_new(Time now) {
  while (true) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      const bool none_left =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      // No descriptor is left. The connection stays in the listener's queue, which keeps the
      // listener readable; so the door stops watching it for kBulkDoorRest.
      if (none_left && epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr) == 0)
        deaf_until_ = now + kBulkDoorRest;
      return;
    }
    if (waiting_.size() >= kMostWaiting) {
      // Close the connection that has waited longest, so that many silent strangers cannot keep
      // expected connections out.
      const auto oldest =
          std::min_element(waiting_.begin(), waiting_.end(),
                           [](const auto& a, const auto& b) { return a.second.by < b.second.by; });
      waiting_.erase(oldest);
      ++refused_;
    }
    do_not_wait_for_more(fd.get());
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd.get();
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) continue;
    const int key = fd.get();
    Waiting& waiting = waiting_[key];
    waiting.fd = std::move(fd);
    waiting.by = now + kBulkFirstFrame;
  }
}

/// Reads the id of a connection. Returns false when the connection is finished here: handed over
/// to the caller of poll(), or closed.
bool BulkDoor::read_id(Waiting& waiting, Time now, std::vector<Arrived>& arrived) {
  const ssize_t n =
      recv(waiting.fd.get(), waiting.id + waiting.have, sizeof waiting.id - waiting.have, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n > 0) waiting.have += static_cast<std::size_t>(n);
  if (n > 0 && waiting.have < sizeof waiting.id) return true;
  const BulkId id = id_of(waiting.id);
  const auto known = n > 0 ? expected_.find(id) : expected_.end();
  if (known == expected_.end() || known->second <= now) {
    ++refused_;
    return false;
  }
  expected_.erase(known);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, waiting.fd.get(), nullptr);
  arrived.push_back({id, std::move(waiting.fd), waiting.by});
  return false;
}

std::vector<BulkDoor::Arrived> BulkDoor::poll(Time now) {
  std::vector<Arrived> arrived;
  if (now >= deaf_until_) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = listener_.get();
    const bool hears = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) == 0;
    deaf_until_ = hears ? Time::max() : now + kBulkDoorRest;
  }
  epoll_event events[64];
  const int n = epoll_wait(epoll_.get(), events, 64, 0);
  bool newcomers = false;
  for (int i = 0; i < n; ++i) {
    if (events[i].data.fd == listener_.get()) {
      newcomers = true;
      continue;
    }
    const auto at = waiting_.find(events[i].data.fd);
    if (at != waiting_.end() && !read_id(at->second, now, arrived)) waiting_.erase(at);
  }
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const bool late = now >= at->second.by;
    refused_ += late ? 1 : 0;
    at = late ? waiting_.erase(at) : std::next(at);
  }
  for (auto at = expected_.begin(); at != expected_.end();)
    at = at->second <= now ? expected_.erase(at) : std::next(at);
  if (newcomers) accept_new(now);
  return arrived;
}

Time BulkDoor::next_deadline() const noexcept {
  Time due = deaf_until_;
  for (const auto& entry : waiting_) due = std::min(due, entry.second.by);
  return due;
}

}  // namespace troupe::net
