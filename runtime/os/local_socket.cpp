#include "troupe/runtime/os/local_socket.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <cerrno>
#include <cstring>

namespace troupe::os {

Result<std::pair<Fd, Fd>> LocalSocket::pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Error(Code::out_of_memory,
                 std::string("cannot make a socket pair: ") + std::strerror(errno));
  return std::pair<Fd, Fd>(make_fd(ends[0]), make_fd(ends[1]));
}

LocalSocket::Sent LocalSocket::try_send(BlobView packet, std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)] = {};
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(int) * descriptors.size());
  }
  for (;;) {
    if (sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Sent::yes;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS ? Sent::later : Sent::gone;
  }
}

bool LocalSocket::send(BlobView packet, std::span<const int> descriptors) {
  TROUPE_ASSERT(packet.size() <= kMaxPacket && descriptors.size() <= kMaxDescriptors,
                "a packet of ours is bounded");
  if (queue_.empty()) {
    switch (try_send(packet, descriptors)) {
      case Sent::yes: return true;
      case Sent::gone: return false;
      case Sent::later: break;
    }
  }
  if (queue_.size() >= kMaxQueued) return false;
  Queued queued{Blob(packet.begin(), packet.end()), {}};
  for (const int fd : descriptors) {
    Fd copy = make_fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) return false;
    queued.descriptors.push_back(std::move(copy));
  }
  queue_.push_back(std::move(queued));
  return true;
}

short LocalSocket::events() const noexcept {
  return has_queued() ? POLLIN | POLLOUT : POLLIN;
}

bool LocalSocket::flush() {
  while (!queue_.empty()) {
    std::vector<int> raw;
    for (const Fd& fd : queue_.front().descriptors) raw.push_back(fd.get());
    switch (try_send(queue_.front().bytes, raw)) {
      case Sent::yes: queue_.pop_front(); break;
      case Sent::later: return true;
      case Sent::gone: return false;
    }
  }
  return true;
}

void LocalSocket::shut_down() noexcept {
  if (fd_) ::shutdown(fd_.get(), SHUT_RDWR);
}

void LocalSocket::end_sending() noexcept {
  (void)flush();
  if (fd_) ::shutdown(fd_.get(), SHUT_WR);
}

void LocalSocket::skip() noexcept {
  (void)::recv(fd_.get(), nullptr, 0, MSG_DONTWAIT);
}

bool LocalSocket::is_hung_up() const noexcept {
  pollfd entry{fd_.get(), 0, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/// Looks at the packet before it takes it. The kernel drops descriptors that find no room, so a
/// packet that was taken without them could never be had whole.
Received LocalSocket::receive(std::span<std::byte> buffer) {
  Received received;
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do {
    n = recvmsg(fd_.get(), &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    const bool later = errno == EAGAIN || errno == ENOMEM || errno == ENOBUFS;
    received.kind = later ? Received::Kind::empty : Received::Kind::closed;
    return received;
  }
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof fd);
      received.descriptors.push_back(make_fd(fd));
    }
  }
  received.size = static_cast<std::size_t>(n);
  const bool lacks = (message.msg_flags & MSG_CTRUNC) != 0;
  if (n == 0 || (message.msg_flags & MSG_TRUNC) != 0 ||
      (lacks && received.descriptors.size() == kMaxDescriptors)) {
    received.kind = Received::Kind::closed;
  } else if (lacks) {
    received.descriptors.clear();
    received.kind = Received::Kind::starved;
  } else {
    skip();
    received.kind = Received::Kind::packet;
  }
  return received;
}

}  // namespace troupe::os
