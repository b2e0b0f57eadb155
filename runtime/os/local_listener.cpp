#include "troupe/runtime/os/local_listener.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace troupe::os {
namespace {

/// Connections that one call refuses at most: others of this machine may connect without end.
constexpr std::uint64_t kMostRefused = 64;

constexpr std::size_t kMaxNameSize = 100;
constexpr int kQueue = 256;

struct Address {
  sockaddr_un data{};
  socklen_t size = 0;
};

Result<Address> address_of(const std::string& name) {
  if (name.empty() || name.size() > kMaxNameSize || name.find('\0') != std::string::npos)
    return Error(Code::invalid_argument, "'" + name.substr(0, kMaxNameSize) +
                                             "' is no name of a local door (1 to 100 bytes)");
  Address address;
  address.data.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract: it has no file and vanishes with its last
  // descriptor.
  std::memcpy(address.data.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Error system_error(Code code, const std::string& what) {
  return Error(code, what + ": " + std::strerror(errno));
}

Fd spare() {
  return make_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

int accept_one(int listener) {
  return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

bool who(int socket, ucred& peer) {
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && size == sizeof peer;
}

}  // namespace

std::string door_name(ClusterId cluster, NodeId node) {
  return "troupe-" + cluster.str() + "-" + node.str();
}

LocalListener::LocalListener(Fd fd, Accept accept)
    : fd_(std::move(fd)), accept_(accept != nullptr ? accept : accept_one), spare_(spare()) {}

Result<LocalListener> LocalListener::listen(const std::string& name, Accept accept) {
  auto address = address_of(name);
  if (!address) return address.error();
  Fd fd = make_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error(Code::out_of_memory, "cannot make a unix socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address->data), address->size) != 0)
    return system_error(Code::unavailable,
                        "the local door @" + name + " cannot be opened: another process has it");
  if (::listen(fd.get(), kQueue) != 0)
    return system_error(Code::unavailable, "the local door @" + name + " cannot be opened");
  return LocalListener(std::move(fd), accept);
}

std::optional<Visitor> LocalListener::rest() {
  opens_at_ = steady_now() + kRest;
  return std::nullopt;
}

std::optional<Visitor> LocalListener::accept() {
  for (const std::uint64_t most = refused_ + kMostRefused; refused_ < most;) {
    Visitor visitor{make_fd(accept_(fd_.get())), 0};
    if (!visitor.socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
      if (errno != EMFILE && errno != ENFILE) return rest();
      if (!spare_) spare_ = spare();
      if (!spare_) return rest();
      // At the descriptor limit accept() fails even when no connection waits. Free the spare
      // descriptor, accept and close the waiting connection with it, then take the spare again.
      spare_ = Fd();
      const Fd came(accept_(fd_.get()));
      const int why = came ? 0 : errno;
      spare_ = spare();
      if (!came && (why == EAGAIN || why == EWOULDBLOCK)) return std::nullopt;
      if (!came) return rest();
      ++refused_;
      continue;
    }
    ucred peer{};
    if (who(visitor.socket.get(), peer) && peer.uid == geteuid()) {
      visitor.pid = peer.pid;
      return visitor;
    }
    ++refused_;
  }
  return std::nullopt;
}

Result<Visitor> knock(const std::string& name) {
  auto address = address_of(name);
  if (!address) return address.error();
  Visitor visitor{make_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), 0};
  if (!visitor.socket) return system_error(Code::out_of_memory, "cannot make a unix socket");
  if (connect(visitor.socket.get(), reinterpret_cast<const sockaddr*>(&address->data),
              address->size) != 0)
    return system_error(Code::unavailable, "nobody listens at the local door @" + name);
  ucred peer{};
  if (!who(visitor.socket.get(), peer) || peer.uid != geteuid())
    return Error(Code::invalid_argument, "the local door @" + name + " belongs to user " +
                                             std::to_string(peer.uid) + ", not to user " +
                                             std::to_string(geteuid()) + " who runs this");
  visitor.pid = peer.pid;
  return visitor;
}

}  // namespace troupe::os
