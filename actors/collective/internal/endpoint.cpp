#include "troupe/actors/collective/internal/endpoint.hpp"

#include "troupe/actors/collective/internal/sockets.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

namespace troupe::collective::internal {
namespace {

constexpr Duration kPortFreesWithin = std::chrono::milliseconds(500);

Fd socket_for(const Endpoint& endpoint) {
  return make_fd(::socket(endpoint.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

const sockaddr* address_of(const Endpoint& endpoint) noexcept {
  return reinterpret_cast<const sockaddr*>(&endpoint.at);
}

bool same(const Endpoint& a, const Endpoint& b) noexcept {
  return a.size == b.size && std::memcmp(&a.at, &b.at, a.size) == 0;
}

/// Returns the name without brackets: "::1" for "[::1]".
std::string bare(const std::string& host) {
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return brackets ? host.substr(1, host.size() - 2) : host;
}

/// Adds the addresses that getaddrinfo(3) finds, and returns its error. A null host means all
/// addresses of this machine.
int look_up(const char* host, int port, std::vector<Endpoint>& found) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (host == nullptr ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return error;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    Endpoint endpoint;
    endpoint.size = one->ai_addrlen;
    std::memcpy(&endpoint.at, one->ai_addr, one->ai_addrlen);
    const auto is_it = [&](const Endpoint& other) { return same(endpoint, other); };
    if (std::none_of(found.begin(), found.end(), is_it)) found.push_back(endpoint);
  }
  return 0;
}

/// Returns a listening socket, or an empty descriptor with errno.
Fd listen_on(const Endpoint& endpoint) {
  Fd socket = socket_for(endpoint);
  const int on = 1;
  if (!socket) return socket;
  // An earlier run may have left connections in TIME_WAIT.
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (endpoint.at.ss_family == AF_INET6)
    (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(socket.get(), address_of(endpoint), endpoint.size) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  const int why = errno;
  socket.reset();
  errno = why;
  return socket;
}

[[noreturn]] void fail_to_listen(const Launch& launch, int why) {
  std::string words = "rank 0 cannot listen at " + text_of(launch) + ": ";
  words += why == EADDRINUSE ? "another program, or another rank 0, has the port; choose another " +
                                   launch.port_variable
                             : std::strerror(why == 0 ? EADDRNOTAVAIL : why);
  throw Unavailable(Code::unavailable, words);
}

/// Listens at each address where it can. `why` is the first error, without those of addresses that
/// this machine does not have.
std::vector<Fd> listen_on_all(const std::vector<Endpoint>& endpoints, int& why) {
  std::vector<Fd> listeners;
  why = 0;
  for (const Endpoint& endpoint : endpoints) {
    if (Fd listener = listen_on(endpoint)) {
      listeners.push_back(std::move(listener));
    } else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT && why == 0) {
      why = errno;
    }
  }
  return listeners;
}

/// Returns whether a socket is connected to itself. TCP allows this (simultaneous open) when no
/// process listens at the port and the kernel chooses the same port for the outgoing end.
bool is_to_itself(const Fd& socket) {
  Endpoint here, there;
  here.size = there.size = sizeof here.at;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here.at), &here.size) == 0 &&
         ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&there.at), &there.size) == 0 &&
         same(here, there);
}

/// Waits for a connect(2) in progress and returns its error, or 0.
int await_connection(const Fd& socket, Time deadline) {
  pollfd one{socket.get(), POLLOUT, 0};
  if (poll_until({&one, 1}, deadline) == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

}  // namespace

std::string text_of(const Launch& launch) {
  const std::string host = bare(launch.host);
  const bool numeric6 = host.find(':') != std::string::npos;
  return (numeric6 ? "[" + host + "]" : host) + ":" + std::to_string(launch.port);
}

std::vector<Endpoint> resolve(const Launch& launch, Time deadline) {
  std::vector<Endpoint> found;
  const std::string host = bare(launch.host);
  for (;;) {
    const int error = look_up(host.c_str(), launch.port, found);
    if (error == 0) return found;
    if (error != EAI_AGAIN)
      throw InvalidArgument(Code::invalid_argument,
                            "MASTER_ADDR is '" + launch.host +
                                "', which is no host that is known here: " + ::gai_strerror(error));
    if (steady_now() >= deadline)
      throw Unavailable(Code::unavailable, "MASTER_ADDR is '" + launch.host +
                                               "', and the resolver of names does not answer");
    pause(std::chrono::milliseconds(100), deadline);
  }
}

std::vector<Fd> listen_at(const Launch& launch, Time deadline) {
  std::vector<Endpoint> endpoints = resolve(launch, deadline);
  const Time patience = std::min(deadline, steady_now() + kPortFreesWithin);
  for (;;) {
    int why = 0;
    std::vector<Fd> listeners = listen_on_all(endpoints, why);
    if (why == 0 && !listeners.empty()) return listeners;
    listeners.clear();
    if (why == 0) {
      endpoints.clear();
      (void)look_up(nullptr, launch.port, endpoints);
      listeners = listen_on_all(endpoints, why);
      if (why == 0 && !listeners.empty()) return listeners;
    }
    // The port may belong to a rank that connected to itself; connect_to() closes such a socket at
    // once, so another try may succeed.
    if (why != EADDRINUSE || steady_now() >= patience) fail_to_listen(launch, why);
    pause(std::chrono::milliseconds(20), patience);
  }
}

Fd connect_to(const Endpoint& endpoint, Time deadline) {
  Fd socket = socket_for(endpoint);
  if (!socket) return socket;
  int error = 0;
  if (::connect(socket.get(), address_of(endpoint), endpoint.size) != 0) error = errno;
  if (error == EINPROGRESS || error == EINTR) error = await_connection(socket, deadline);
  if (error == 0 && is_to_itself(socket)) error = ECONNREFUSED;
  if (error != 0) socket.reset();
  errno = error;
  return socket;
}

}  // namespace troupe::collective::internal
