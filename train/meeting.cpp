#include "troupe/train/internal/meeting.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

namespace troupe::train::internal {
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
  if (!socket) throw Unavailable(Code::unavailable, "train: no socket for the gang's meeting");
  return socket;
}

bool is_ours(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

bool readable_by(const Fd& socket, Time deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_now()).count();
    pollfd look{socket.get(), POLLIN, 0};
    const int n = ::poll(&look, 1, static_cast<int>(std::clamp<long long>(left, 0, 1'000'000)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (n == 0 && steady_now() >= deadline) return false;
  }
}

/// One byte with the descriptor beside it. The buffer of the message is one descriptor long.
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

Fd receive_descriptor(const Fd& socket) {
  Message message;
  if (::recvmsg(socket.get(), &message.header, MSG_CMSG_CLOEXEC) != 1) return Fd();
  const cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  if (part == nullptr || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS ||
      part->cmsg_len != CMSG_LEN(sizeof(int)))
    return Fd();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
  return make_fd(fd);
}

[[noreturn]] void nobody(const char* who) {
  throw TimedOut(Code::timed_out,
                 std::string("train: ") + who + " did not come to the gang's meeting");
}

}  // namespace

std::string meeting_name() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw Unavailable(Code::unavailable, "train: the system gives no random numbers");
  std::string name = "troupe-gang-";
  for (const unsigned char b : bytes) {
    name += "0123456789abcdef"[b >> 4];
    name += "0123456789abcdef"[b & 15];
  }
  return name;
}

void hand_out(const std::string& name, const Fd& memory, int peers, Time deadline) {
  const Fd door = new_socket();
  const Address address = address_of(name);
  if (::bind(door.get(), reinterpret_cast<const sockaddr*>(&address.at), address.size) != 0 ||
      ::listen(door.get(), std::max(peers, 1)) != 0)
    throw Unavailable(Code::unavailable,
                      std::string("train: the gang's meeting: ") + std::strerror(errno));
  while (peers > 0) {
    if (!readable_by(door, deadline)) nobody("a rank");
    const Fd peer = make_fd(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer || !is_ours(peer)) continue;
    send_descriptor(peer, memory);
    --peers;
  }
}

Fd fetch(const std::string& name, Time deadline) {
  const Address address = address_of(name);
  while (steady_now() < deadline) {
    const Fd socket = new_socket();
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.at), address.size) ==
        0) {
      if (!is_ours(socket))
        throw Unavailable(Code::unavailable, "train: another user answers at the gang's meeting");
      if (!readable_by(socket, deadline)) break;
      if (Fd memory = receive_descriptor(socket)) return memory;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // rank 0 has not opened its door
  }
  nobody("rank 0");
}

}  // namespace troupe::train::internal
