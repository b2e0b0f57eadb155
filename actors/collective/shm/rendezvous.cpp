#include "troupe/actors/collective/shm/rendezvous.hpp"

#include "troupe/actors/collective/internal/sockets.hpp"
#include "troupe/runtime/base/random_bytes.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

namespace troupe::collective {
namespace {

struct Address {
  sockaddr_un at{};
  socklen_t size = 0;
};

/// An abstract name begins with a zero byte and needs no file.
Address address_of(const std::string& name) {
  Address address;
  address.at.sun_family = AF_UNIX;
  const std::size_t n = std::min(name.size(), sizeof(address.at.sun_path) - 1);
  std::memcpy(address.at.sun_path + 1, name.data(), n);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
  return address;
}

Fd new_socket() {
  Fd socket = make_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket)
    throw Unavailable(Code::unavailable,
                      std::string("no socket for a rendezvous: ") + std::strerror(errno));
  return socket;
}

bool is_ours(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

/// A message of one byte and one descriptor (SCM_RIGHTS). The control buffer has room for one
/// descriptor only.
struct Message {
  char byte = 'm';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr header{};
  Message() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

void send_descriptor(const Fd& socket, const Fd& memory) {
  Message message;
  cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = memory.get();
  std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  static_cast<void>(::sendmsg(socket.get(), &message.header, MSG_NOSIGNAL));
}

/// Returns the descriptor that the peer sent, or an empty one. Throws when this process has no
/// descriptor number left: the kernel then drops the descriptor, and the byte comes alone.
Fd receive_descriptor(const Fd& socket) {
  Message message;
  if (::recvmsg(socket.get(), &message.header, MSG_CMSG_CLOEXEC) != 1) return Fd();
  if ((message.header.msg_flags & MSG_CTRUNC) != 0)
    throw Unavailable(Code::unavailable,
                      "no descriptor is free for a group's memory; close files, or raise the limit "
                      "(`ulimit -n`)");
  const cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  if (part == nullptr || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS ||
      part->cmsg_len != CMSG_LEN(sizeof(int)))
    return Fd();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
  return make_fd(fd);
}

[[noreturn]] void fail_late(const std::string& who) {
  throw TimedOut(Code::timed_out, who + " did not come to the rendezvous");
}

}  // namespace

std::string new_rendezvous_name() {
  return "troupe-group-" + random_id();
}

void share_group(const std::string& name, const Fd& memory, int peers, Time deadline) {
  const Fd listener = new_socket();
  const Address address = address_of(name);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.at), address.size) != 0 ||
      ::listen(listener.get(), std::max(peers, 1)) != 0)
    throw Unavailable(Code::unavailable,
                      std::string("the rendezvous cannot listen: ") + std::strerror(errno));
  while (peers > 0) {
    const Fd peer = internal::accept_until(listener, deadline);
    if (!peer) fail_late("some rank");
    if (!is_ours(peer)) continue;
    send_descriptor(peer, memory);
    --peers;
  }
}

Fd fetch_group(const std::string& name, Time deadline) {
  const Address address = address_of(name);
  while (steady_now() < deadline) {
    const Fd socket = new_socket();
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.at), address.size) ==
        0) {
      if (!is_ours(socket))
        throw Unavailable(Code::unavailable, "another user answers at the rendezvous");
      if (!internal::is_readable_by(socket, deadline)) break;
      if (Fd memory = receive_descriptor(socket)) return memory;
    }
    internal::pause(std::chrono::milliseconds(5), deadline);  // until rank 0 listens
  }
  fail_late("rank 0");
}

}  // namespace troupe::collective
