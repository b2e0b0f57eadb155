/// The frames that an agent's Network has yet to send to one peer, packed into batches as in
/// wire/batch.hpp.
///
///     outbox.append(wire::Protocol::peer, frame, most);
///     while (!outbox.empty() && link.can_send(outbox.next_size())) link.send(outbox.take(), …);
///
/// Order is kept, except that urgent frames (a few small ones) go first, in order among themselves.
#pragma once

#include "troupe/runtime/wire/batch.hpp"

#include <algorithm>
#include <deque>
#include <utility>

namespace troupe::agent {

class Outbox {
 public:
  /// Adds a frame to the last batch. A batch takes `most` bytes, or one frame that is larger. Cost:
  /// one copy; one allocation per batch.
  void append(wire::Protocol protocol, BlobView frame, std::size_t most) {
    const std::size_t size = wire::batched_size(frame.size());
    if (!open_.empty() && open_.size() + size > most) close();
    if (open_.empty()) open_.reserve(std::max(size, std::min(guess_, most)));
    wire::append_frame(open_, protocol, frame);
    bytes_ += size;
  }
  /// Adds a frame to the urgent batch. Drops it while more than 64 KiB of urgent frames wait.
  void append_urgent(wire::Protocol protocol, BlobView frame) {
    if (urgent_.size() > (64 << 10)) return;
    wire::append_frame(urgent_, protocol, frame);
    bytes_ += wire::batched_size(frame.size());
  }
  void clear_urgent() {
    bytes_ -= urgent_.size();
    urgent_.clear();
  }
  void clear() {
    urgent_.clear();
    closed_.clear();
    open_.clear();
    bytes_ = 0;
  }

  bool empty() const noexcept { return bytes_ == 0; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Returns the size of the batch that take() returns next. Precondition of both: !empty().
  std::size_t next_size() const noexcept { return next().size(); }
  Blob take() {
    // next() is const for next_size(); the batch that it picks is a member of this object.
    Blob batch = std::exchange(const_cast<Blob&>(next()), {});
    if (!closed_.empty() && closed_.front().empty()) closed_.pop_front();
    bytes_ -= batch.size();
    guess_ = std::max(guess_ / 2, batch.size());
    return batch;
  }

 private:
  const Blob& next() const noexcept {
    if (!urgent_.empty()) return urgent_;
    return closed_.empty() ? open_ : closed_.front();
  }
  void close() { closed_.push_back(std::exchange(open_, {})); }

  Blob urgent_, open_;
  std::deque<Blob> closed_;
  std::size_t bytes_ = 0;
  std::size_t guess_ = 4096;  ///< how much to reserve for the next batch
};

}  // namespace troupe::agent
