/// Rings and shared memory of one simulated node: bounded queues between two processes, and the
/// objects of its arena.
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

namespace troupe::sim::cluster {

struct Frame {
  wire::CallMessage message;
  Blob payload;
};

/// A ring in each direction. Frames that do not fit wait at their sender.
struct Channel {
  struct Side {
    std::deque<Frame> ring, waiting;  ///< written by this side
    std::uint64_t started = 0;
    std::uint64_t sent = 0;      ///< frames, including those that wait
    std::uint64_t received = 0;  ///< frames that the other side has taken from this side
    std::function<void()> wake;  ///< wakes this side; null: this side is gone
  };
  Side side[2];
  std::size_t capacity = 32;
};

/// One side's view of a channel.
class End {
 public:
  End() = default;
  End(std::shared_ptr<Channel> channel, int mine)
      : channel_(std::move(channel)), mine_(mine), other_(1 - mine) {}
  /// Returns both ends of a channel as one. A lease may give an idle worker to itself, for tasks
  /// that it submitted.
  static End loop(std::shared_ptr<Channel> channel) {
    End end(std::move(channel), 0);
    end.other_ = 0;
    return end;
  }
  explicit operator bool() const noexcept { return channel_ != nullptr; }
  void send(Frame frame) {
    Channel::Side& out = channel_->side[mine_];
    out.waiting.push_back(std::move(frame));
    ++out.sent;
    flush();
  }
  /// Moves waiting frames into the ring. Returns true when none waits any more.
  bool flush() {
    Channel::Side& out = channel_->side[mine_];
    bool moved = false;
    while (!out.waiting.empty() && out.ring.size() < channel_->capacity) {
      out.ring.push_back(std::move(out.waiting.front()));
      out.waiting.pop_front();
      moved = true;
    }
    if (moved && channel_->side[other_].wake) channel_->side[other_].wake();
    return out.waiting.empty();
  }
  std::size_t waiting() const { return channel_->side[mine_].waiting.size(); }
  std::uint64_t sent() const { return channel_->side[mine_].sent; }
  std::uint64_t received() const { return channel_->side[other_].received; }
  /// Takes back the last frame that this side sent, unless it was read. Returns whether it did.
  bool take_last() {
    Channel::Side& out = channel_->side[mine_];
    std::deque<Frame>& from = out.waiting.empty() ? out.ring : out.waiting;
    if (from.empty()) return false;
    from.pop_back();
    --out.sent;
    return true;
  }
  std::optional<Frame> receive() {
    Channel::Side& in = channel_->side[other_];
    if (in.ring.empty()) return std::nullopt;
    Frame frame = std::move(in.ring.front());
    in.ring.pop_front();
    ++in.received;
    if (!in.waiting.empty() && in.wake) in.wake();
    return frame;
  }
  /// Calls `f` for each unread frame of the other side, in order.
  template <class F>
  void each_unread(const F& f) const {
    const Channel::Side& in = channel_->side[other_];
    for (const Frame& frame : in.ring) f(frame);
    for (const Frame& frame : in.waiting) f(frame);
  }
  /// Returns the waiting frames, which are then not sent.
  std::deque<Frame> take_waiting() { return std::exchange(channel_->side[mine_].waiting, {}); }
  bool has_input() const { return !channel_->side[other_].ring.empty(); }
  void count_started(std::uint64_t n) { channel_->side[mine_].started = n; }
  std::uint64_t peer_started() const { return channel_->side[other_].started; }
  void on_wake(std::function<void()> wake) { channel_->side[mine_].wake = std::move(wake); }
  void let_go() {
    if (channel_) channel_->side[mine_].wake = nullptr;
  }

 private:
  std::shared_ptr<Channel> channel_;
  int mine_ = 0, other_ = 1;
};

/// The arena of a node. It knows who may read which object and notices a second free.
class Store {
 public:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  struct Object {
    std::uint64_t content = 0;
    ProcessIndex creator;  ///< process; 0: the agent
    bool adopted = false;
  };
  static Key key_of(const wire::Location& at) { return {at.segment, at.slot, at.generation}; }

  wire::Location add(ProcessIndex creator, std::uint64_t content, std::uint64_t bytes) {
    wire::Location at;
    at.segment = static_cast<std::uint32_t>(creator.value + 1);
    at.slot = static_cast<std::uint32_t>(next_ % 64);
    at.generation = ++next_;
    at.length = bytes;
    objects_[key_of(at)] = {content, creator, creator == 0};
    return at;
  }
  const Object* find(const wire::Location& at) const {
    const auto found = objects_.find(key_of(at));
    return found == objects_.end() ? nullptr : &found->second;
  }
  bool adopt(const wire::Location& at) {
    const auto found = objects_.find(key_of(at));
    if (found == objects_.end()) return false;
    return found->second.adopted = true;
  }
  bool free(const wire::Location& at) { return objects_.erase(key_of(at)) != 0; }
  /// Removes the objects that only the dead process knew.
  void process_died(ProcessIndex process) {
    std::erase_if(objects_, [&](const auto& entry) {
      return entry.second.creator == process && !entry.second.adopted;
    });
  }
  std::size_t size() const noexcept { return objects_.size(); }

 private:
  std::map<Key, Object> objects_;
  std::uint64_t next_ = 0;
};

}  // namespace troupe::sim::cluster
