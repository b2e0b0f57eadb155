#include "troupe/runtime/ring/channel.hpp"

namespace troupe::ring {

bool Channel::try_send(BlobView head, BlobView body) {
  if (!overflow_.empty() || !out_.push(head, body)) return false;
  peer_->ring(peer_slot_);
  ++sent_;
  return true;
}

bool Channel::send(BlobView head, BlobView body) {
  if (try_send(head, body)) return true;
  if (!out_.sane() || overflow_.size() >= kMaxOverflow) return false;
  Blob frame;
  frame.reserve(head.size() + body.size());
  frame.insert(frame.end(), head.begin(), head.end());
  frame.insert(frame.end(), body.begin(), body.end());
  overflow_.push_back(std::move(frame));
  ++sent_;
  return true;
}

bool Channel::post(BlobView head, BlobView body) {
  if (overflow_.empty() && out_.push(head, body)) {
    ++sent_;
    return peer_->mark(peer_slot_);
  }
  send(head, body);
  peer_->wake_sleeper();  // the ring is full: the peer has to make room
  return false;
}

bool Channel::flush() {
  bool sent = false;
  while (!overflow_.empty() && out_.push(overflow_.front())) {
    overflow_.pop_front();
    sent = true;
  }
  if (sent) peer_->ring(peer_slot_);
  return overflow_.empty();
}

Pop Channel::receive(std::byte* buffer, std::size_t& size) noexcept {
  const Pop pop = in_.pop(buffer, size);
  if (pop != Pop::frame) return pop;
  ++received_;
  if (in_.take_starved()) peer_->ring(peer_slot_);
  return pop;
}

}  // namespace troupe::ring
