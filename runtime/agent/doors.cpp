#include "troupe/runtime/agent/doors.hpp"

#include "troupe/runtime/os/launch.hpp"

#include <array>

namespace troupe::agent {

Result<void> Doors::open(const std::string& socket_name, std::size_t together) {
  auto local = os::LocalListener::listen(socket_name);
  if (!local) return local.error();
  local_ = *std::move(local);
  together_ = together;
  return {};
}

void Doors::tell_launcher(std::size_t nodes, const std::string& address) {
  if (told_ || nodes < together_) return;
  told_ = true;
  (void)os::send_ready(launcher_.fd(), {address, ""});  // is_over() tells of one that is gone
}

void Doors::wait_for(PollSet& set, Time now) {
  local_at_ = set.add(local_ && local_->opens_at() <= now ? local_->fd() : -1);
  launcher_at_ = set.add(launcher_ ? launcher_.fd() : -1);
}

std::vector<Fd> Doors::visitors(const PollSet& set) {
  std::vector<Fd> visitors;
  if (!set.ready(local_at_)) return visitors;
  while (visitors.size() < kMostVisitors) {
    auto visitor = local_->accept();
    if (!visitor) break;
    visitors.push_back(std::move(visitor->socket));
  }
  return visitors;
}

bool Doors::is_over(const PollSet& set) {
  if (!set.ready(launcher_at_)) return false;
  std::array<std::byte, os::kMaxPacket> packet;
  for (;;) {
    switch (launcher_.receive(packet).kind) {
      case os::Received::Kind::packet: break;
      case os::Received::Kind::empty: return false;
      case os::Received::Kind::closed: return true;
      case os::Received::Kind::starved: launcher_.skip(); break;
    }
  }
}

Time Doors::next_deadline(Time now) const {
  return local_ && local_->opens_at() > now ? local_->opens_at() : Time::max();
}

}  // namespace troupe::agent
