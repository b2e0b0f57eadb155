#include "troupe/runtime/control/internal/prober.hpp"

#include "troupe/runtime/base/wait.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::control::internal {
namespace {

constexpr std::size_t kMostProbes = 256;

/// Reads "tcp://10.0.0.1:6500" or "tcp://[::1]:6500"; returns the size of the address, 0 on
/// failure. It accepts numeric hosts only: a look-up of a name could block.
socklen_t parse(const std::string& address, sockaddr_storage& out) {
  const std::string scheme = "tcp://";
  const auto colon = address.rfind(':');
  if (address.compare(0, scheme.size(), scheme) != 0 || colon == std::string::npos ||
      colon < scheme.size())
    return 0;
  std::string host = address.substr(scheme.size(), colon - scheme.size());
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return 0;
  const socklen_t size = found->ai_addrlen;
  std::memcpy(&out, found->ai_addr, size);
  freeaddrinfo(found);
  return size;
}

}  // namespace

void Prober::start(const Probe& probe, Time now) {
  if (running_.count(probe.node) != 0 || running_.size() >= kMostProbes) return;
  Running& running = running_[probe.node];
  running.epoch = probe.epoch;
  running.until = now + timeout_;
  sockaddr_storage address{};
  const socklen_t size = parse(probe.address, address);
  if (size != 0)
    running.socket =
        Fd(socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!running.socket) {
    running.ended = true;
    return;
  }
  if (connect(running.socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) {
    running.ended = true;
  } else if (errno != EINPROGRESS) {
    running.ended = true;
    running.gone = errno == ECONNREFUSED;
  }
}

void Prober::add_to(std::vector<pollfd>& entries) const {
  for (const auto& [node, running] : running_)
    if (!running.ended) entries.push_back({running.socket.get(), POLLOUT, 0});
}

Time Prober::next_deadline() const {
  Time next = Time::max();
  for (const auto& [node, running] : running_)
    next = std::min(next, running.ended ? Time{} : running.until);
  return next;
}

void Prober::poll(Time now, std::vector<ProbeAnswer>& answers) {
  for (auto at = running_.begin(); at != running_.end();) {
    Running& running = at->second;
    if (!running.ended && is_ready(running.socket.get(), POLLOUT)) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(running.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      running.ended = true;
      running.gone = error == ECONNREFUSED;
    }
    if (!running.ended && now < running.until) {
      ++at;
      continue;
    }
    answers.push_back({at->first, running.epoch, running.gone});
    at = running_.erase(at);
  }
}

}  // namespace troupe::control::internal
