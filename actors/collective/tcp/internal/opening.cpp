#include "troupe/actors/collective/tcp/internal/opening.hpp"

#include "troupe/runtime/base/back_off.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/wait.hpp"

#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace troupe::collective::internal {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(10);
constexpr Duration kLongestPause = std::chrono::milliseconds(200);

}  // namespace

bool would_wait(int error) noexcept {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

void set_buffers(int fd, int bytes) noexcept {
  if (bytes <= 0) return;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

void send_at_once(int fd) noexcept {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Opening::~Opening() = default;

Connector::Connector(Target target, const Hello& hello, Secret<32> back)
    : target_(std::move(target)), hello_(hello), back_(std::move(back)) {}

Error Connector::failed(Code code, const std::string& why) const {
  return Error(code,
               "rank " + std::to_string(target_.rank) + " has no link to rank " +
                   std::to_string(target_.peer) + " at " + target_.address + ": " + why,
               Outcome::unknown);
}

Error Connector::unreachable(const std::string& why) const {
  return failed(Code::unavailable, why +
                                       "; let the nodes of a gang reach each other on all TCP "
                                       "ports (firewalls, the addresses of the nodes)");
}

std::optional<Result<Fd>> Connector::advance() {
  const Time now = steady_now();
  if (now >= target_.deadline) return unreachable(last_failure_ + ", until its time was over");
  if (step_ == Step::pausing) return now >= again_at_ ? connect() : std::nullopt;
  return step_ == Step::connecting ? await_connection() : prove();
}

pollfd Connector::watched() const noexcept {
  if (step_ == Step::pausing) return {-1, 0, 0};
  const bool writes = step_ == Step::connecting || sent_ < hello_.size();
  return {fd_.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0};
}

/// Pauses, and then connects again.
std::optional<Result<Fd>> Connector::again(const std::string& why) {
  last_failure_ = why;
  fd_.reset();
  step_ = Step::pausing;
  again_at_ = steady_now() + back_off(++failures_, kFirstPause, kLongestPause);
  return {};
}

std::optional<Result<Fd>> Connector::connect() {
  fd_ = make_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) return failed(Code::unavailable, std::string("no socket: ") + std::strerror(errno));
  set_buffers(fd_.get(), target_.buffer);
  send_at_once(fd_.get());
  sent_ = come_ = 0;
  step_ = Step::connecting;
  const auto* at = reinterpret_cast<const sockaddr*>(&target_.at);
  const int error = ::connect(fd_.get(), at, sizeof target_.at) == 0 ? 0 : errno;
  if (error != 0 && error != EINPROGRESS && error != EINTR) return not_connected(error);
  return await_connection();
}

/// Tries again where the door refuses and may be about to open.
std::optional<Result<Fd>> Connector::not_connected(int error) {
  const bool refused = error == ECONNREFUSED || error == ECONNRESET;
  if (!refused) return unreachable(std::strerror(error));
  if (was_connected_)
    return failed(Code::worker_died, "its door has closed, so its process has ended");
  return again(std::strerror(error));
}

std::optional<Result<Fd>> Connector::await_connection() {
  if (!is_ready(fd_.get(), POLLOUT)) return {};
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return not_connected(error);
  was_connected_ = true;
  step_ = Step::proving;
  return prove();
}

/// Sends the hello, then waits for the peer's proof.
std::optional<Result<Fd>> Connector::prove() {
  while (sent_ < hello_.size()) {
    const ssize_t n = ::send(fd_.get(), hello_.data() + sent_, hello_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0 && would_wait(errno)) return {};
    if (n < 0) return again("its door closes the connection");
    sent_ += static_cast<std::size_t>(n);
  }
  while (come_ < proof_.size()) {
    const ssize_t n = ::recv(fd_.get(), proof_.data() + come_, proof_.size() - come_, 0);
    if (n < 0 && would_wait(errno)) return {};
    if (n <= 0) return again("its door closes the connection, as for another gang's key");
    come_ += static_cast<std::size_t>(n);
  }
  if (!is_proof(proof_, back_))
    return failed(Code::unavailable, "whoever listens there does not have the gang's key");
  return Result<Fd>(std::move(fd_));
}

Handover::Handover() : event_(make_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  if (!event_)
    raise(Error(Code::unavailable, std::string("a link needs one more descriptor: ") +
                                       std::strerror(errno) +
                                       "; close files, or raise the limit (`ulimit -n`)"));
}

void Handover::give(Fd connection) {
  const std::lock_guard lock(mutex_);
  connection_ = std::move(connection);
  const std::uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

Fd Handover::take() {
  const std::lock_guard lock(mutex_);
  return std::move(connection_);
}

std::optional<Result<Fd>> Awaiting::advance() {
  Fd connection = handover_->take();
  if (!connection) return {};
  return Result<Fd>(std::move(connection));
}

}  // namespace troupe::collective::internal
