#include "troupe/actors/collective/tcp/internal/entrance.hpp"

#include "troupe/actors/collective/internal/sockets.hpp"
#include "troupe/actors/collective/tcp/internal/opening.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace troupe::collective::internal {

void Entrance::watch(std::vector<pollfd>& into) const {
  const bool accepts = accepts_after_ == Time::min();
  into.push_back({accepts ? listener_.get() : -1, POLLIN, 0});
  for (const Unproven& one : unproven_)  // one with a whole hello waits for its verdict
    into.push_back({one.come < one.hello.size() ? one.fd.get() : -1, POLLIN, 0});
}

Time Entrance::next_deadline() const noexcept {
  Time due = accepts_after_ == Time::min() ? Time::max() : accepts_after_;
  if (!unproven_.empty()) due = std::min(due, unproven_.front().by);
  return due;
}

/// Reads and judges. Returns false when the connection has been taken or refused.
bool Entrance::stays(Unproven& one, const Judge& judge) {
  while (one.come < one.hello.size()) {
    const ssize_t n = ::recv(one.fd.get(), one.hello.data() + one.come, one.hello.size() - one.come,
                             MSG_DONTWAIT);
    if (n < 0 && would_wait(errno)) return true;
    if (n <= 0) return false;
    one.come += static_cast<std::size_t>(n);
  }
  return judge(one.fd, one.hello) == Verdict::later;
}

void Entrance::advance(Time now, const Judge& judge) {
  std::erase_if(unproven_, [&](Unproven& one) { return !stays(one, judge) || now >= one.by; });
  if (now >= accepts_after_) accept_some(now, judge);
}

/// Accepts a few connections at a time, so that those before them are read in between. One that
/// sent its hello at once is judged at once.
void Entrance::accept_some(Time now, const Judge& judge) {
  accepts_after_ = Time::min();
  for (int i = 0; i < 16; ++i) {
    Unproven one;
    one.fd = make_fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!one.fd) {
      // The connection stays in the queue, which keeps the listener readable: so it rests.
      if (is_shortage(errno)) accepts_after_ = now + kRest;
      return;
    }
    one.by = now + kUnproven;
    send_at_once(one.fd.get());
    if (!stays(one, judge)) continue;
    if (unproven_.size() >= kMostUnproven) unproven_.erase(unproven_.begin());
    unproven_.push_back(std::move(one));
  }
}

}  // namespace troupe::collective::internal
