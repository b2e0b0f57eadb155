#include "troupe/actors/collective/tcp/internal/tcp_link.hpp"

#include "troupe/runtime/base/assert.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace troupe::collective::internal {

TcpLink::TcpLink(int rank, int peer, std::unique_ptr<Opening> opening, SealedOutput output,
                 SealedInput input)
    : rank_(rank),
      peer_(peer),
      opening_(std::move(opening)),
      output_(std::move(output)),
      input_(std::move(input)) {}

/// A socket that is closed with unread bytes sends a reset, which may overtake the last frames; so
/// this reads what is there.
TcpLink::~TcpLink() {
  if (!fd_) return;
  write();
  ::shutdown(fd_.get(), SHUT_WR);
  char sink[4096];
  for (int i = 0; i < 256 && ::recv(fd_.get(), sink, sizeof sink, MSG_DONTWAIT) > 0; ++i) {
  }
}

void TcpLink::advance() noexcept {
  if (state_ == State::closed || !is_open()) return;
  write();
  read();
}

bool TcpLink::is_open() {
  if (state_ == State::open) return true;
  std::optional<Result<Fd>> opened = opening_->advance();
  if (!opened) return false;
  opening_.reset();
  if (!*opened) {
    close(opened->error().code(), opened->error().message());
    return false;
  }
  fd_ = std::move(**opened);
  state_ = State::open;
  return true;
}

pollfd TcpLink::watched() const noexcept {
  if (state_ == State::opening) return opening_->watched();
  short events = 0;
  if (state_ == State::open && !has_frame()) events = POLLIN;
  if (state_ == State::open && !is_flushed()) events = static_cast<short>(events | POLLOUT);
  return {events != 0 ? fd_.get() : -1, events, 0};
}

void TcpLink::send(FrameKind kind, std::span<const std::byte> bytes) noexcept {
  if (state_ == State::closed || !reaches_peer_) return;
  output_.put(kind, bytes);
  if (state_ == State::open) write();
}

void TcpLink::write() noexcept {
  for (BlobView bytes = output_.unwritten(); !bytes.empty(); bytes = output_.unwritten()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      output_.written(static_cast<std::size_t>(n));
    } else if (would_wait(errno)) {
      return;
    } else {
      // The peer's last frames may still be there to read, and say why.
      reaches_peer_ = false;
      output_.drop();
    }
  }
}

void TcpLink::read() {
  for (std::span<std::byte> space = input_.space(); !space.empty(); space = input_.space()) {
    const ssize_t n = ::recv(fd_.get(), space.data(), space.size(), MSG_DONTWAIT);
    if (n < 0 && would_wait(errno)) return;
    if (n <= 0) return end(n == 0 ? "it closed the link" : std::strerror(errno));
    input_.received(static_cast<std::size_t>(n));
    if (input_.is_forged()) return refuse_forged();
    has_left_ = has_left_ || (has_frame() && front().kind == FrameKind::left);
    if (static_cast<std::size_t>(n) < space.size()) return;  // poll(2) tells when there is more
  }
}

void TcpLink::pop() noexcept {
  TROUPE_ASSERT(has_frame(), "there is no frame to pop");
  input_.pop();
  if (input_.is_forged()) return refuse_forged();
  has_left_ = has_left_ || (has_frame() && front().kind == FrameKind::left);
}

void TcpLink::refuse_forged() {
  close(Code::unavailable, "the link from rank " + std::to_string(peer_) + " to rank " +
                               std::to_string(rank_) +
                               " brought a frame that is not authentic (altered, repeated, moved, "
                               "or under another key), so it is closed");
}

/// The stream has ended.
void TcpLink::end(const std::string& how) {
  const std::string peer = "rank " + std::to_string(peer_);
  if (has_left_) return close(Code::unavailable, peer + " has left the group");
  close(Code::worker_died, "rank " + std::to_string(rank_) + " lost its link to " + peer + ": " +
                               how + " without leaving the group" +
                               (input_.has_part() ? ", in the middle of a frame" : "") +
                               ", as a process that dies does");
}

void TcpLink::close(Code code, std::string why) {
  state_ = State::closed;
  code_ = code;
  why_ = std::move(why);
  output_.drop();
  fd_.reset();
}

}  // namespace troupe::collective::internal
