// Sends and receives over a ring of bytes for each ordered pair of ranks. A message is a head,
// which the receiver compares with its own arguments, and the bytes.
#include "troupe/actors/collective/internal/parking.hpp"
#include "troupe/actors/collective/internal/rank.hpp"
#include "troupe/actors/collective/internal/turns.hpp"
#include "troupe/runtime/base/deadline.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::collective::internal {
namespace {

struct Head {
  std::uint64_t count = 0;
  std::uint32_t type = 0;
  std::uint32_t magic = 0;
};
constexpr std::uint32_t kMagic = 0x73656e64;  // "send"

/// One end of the ring of a pair. The sender alone writes `written`, the receiver alone writes
/// `read`.
class Ring {
 public:
  Ring(Fifo& counters, std::byte* data, std::uint32_t size) noexcept
      : counters_(&counters), data_(data), size_(size) {}
  /// Return the bytes that may be read, and written. The other process writes one of the counters,
  /// so the difference is limited to the size of the ring: a wrong counter leads to no access
  /// outside.
  std::uint32_t filled() const noexcept {
    return std::min(counters_->written.load(std::memory_order_seq_cst) -
                        counters_->read.load(std::memory_order_seq_cst),
                    size_);
  }
  std::uint32_t room() const noexcept { return size_ - filled(); }

  std::uint64_t write(const std::byte* from, std::uint64_t bytes) noexcept {
    const std::uint32_t at = counters_->written.load(std::memory_order_relaxed);
    const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, room()));
    const std::uint32_t start = at % size_, straight = std::min(n, size_ - start);
    copy(data_ + start, from, straight);
    copy(data_, from + straight, n - straight);
    counters_->written.store(at + n, std::memory_order_seq_cst);
    return n;
  }
  std::uint64_t read(std::byte* to, std::uint64_t bytes) noexcept {
    const std::uint32_t at = counters_->read.load(std::memory_order_relaxed);
    const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, filled()));
    const std::uint32_t start = at % size_, straight = std::min(n, size_ - start);
    copy(to, data_ + start, straight);
    copy(to + straight, data_, n - straight);
    counters_->read.store(at + n, std::memory_order_seq_cst);
    return n;
  }

 private:
  static void copy(void* to, const void* from, std::uint32_t bytes) noexcept {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  Fifo* counters_;
  std::byte* data_;
  std::uint32_t size_;
};

}  // namespace

/// A send or receive in progress.
class ArenaCommunicator::Stream {
 public:
  Stream(const Transfers::One& one, Ring ring) noexcept : one_(one), ring_(ring) {
    head_ = {static_cast<std::uint64_t>(one.count), static_cast<std::uint32_t>(one.type), kMagic};
    bytes_ = head_.count * static_cast<std::uint64_t>(kernels::size_of(one.type));
  }
  const Transfers::One& what() const noexcept { return one_; }
  bool is_done() const noexcept { return moved_ == sizeof(Head) + bytes_; }
  bool can_move() const noexcept { return (one_.sends ? ring_.room() : ring_.filled()) > 0; }
  /// Moves as many bytes as the ring allows, the head first. Returns their number.
  std::uint64_t move() noexcept {
    std::uint64_t now = 0;
    if (moved_ < sizeof(Head)) {
      auto* head = reinterpret_cast<std::byte*>(one_.sends ? &head_ : &came_) + moved_;
      const std::uint64_t left = sizeof(Head) - moved_;
      now = one_.sends ? ring_.write(head, left) : ring_.read(head, left);
      moved_ += now;
      if (moved_ < sizeof(Head) || (!one_.sends && !fits())) return now;
    }
    const std::uint64_t done = moved_ - sizeof(Head), left = bytes_ - done;
    if (left == 0) return now;
    const std::uint64_t n = one_.sends
                                ? ring_.write(static_cast<const std::byte*>(one_.from) + done, left)
                                : ring_.read(static_cast<std::byte*>(one_.to) + done, left);
    moved_ += n;
    return now + n;
  }
  /// Returns whether the head that came fits this receive; true as long as it has not come.
  bool fits() const noexcept {
    return one_.sends || moved_ < sizeof(Head) ||
           (came_.magic == kMagic && came_.count == head_.count && came_.type == head_.type);
  }
  std::string difference() const {
    return "sends " + words_of_message(came_.count, came_.type) + " where it should send " +
           words_of_message(head_.count, head_.type);
  }

 private:
  Transfers::One one_;
  Ring ring_;
  Head head_, came_;
  std::uint64_t bytes_ = 0, moved_ = 0;
};

void ArenaCommunicator::ring(int other) noexcept {
  RankLine& its = line(other);
  its.bell.fetch_add(1, std::memory_order_seq_cst);
  unpark_all(its.bell);
}

bool ArenaCommunicator::advance(Stream& stream) {
  if (stream.move() == 0) return false;
  const int peer = stream.what().peer;
  if (line(peer).bell_sleeps.load(std::memory_order_seq_cst) != 0) ring(peer);
  if (!stream.fits())
    fail(Code::invalid_argument,
         name_of_rank(peer) + " " + stream.difference() + " to " + name_of_rank(rank()));
  return true;
}

/// Returns whether any stream can move bytes. Precondition: `streams` has one stream per peer and
/// direction.
bool ArenaCommunicator::can_any(const std::vector<Stream>& streams) const noexcept {
  return std::any_of(streams.begin(), streams.end(),
                     [](const Stream& stream) { return stream.can_move(); });
}

/// Throws when a peer cannot move bytes any more, or has not done so by the deadline.
void ArenaCommunicator::check_peers(const std::vector<Stream>& streams, Time deadline) {
  if (is_over()) throw_aborted();
  check_calls(0);
  for (const Stream& stream : streams) {
    const int peer = stream.what().peer;
    if (peer == rank()) continue;
    const bool gone = has_left(peer), dead = !gone && process_is_dead(peer);
    if (stream.can_move()) return;  // bytes that the peer sent before it left or died are there
    if (gone) fail(Code::cancelled, name_of_rank(peer) + " left the group");
    if (dead) fail(Code::worker_died, death_of(peer));
  }
  if (watcher_ != nullptr) watcher_->idle(streams.front().what().peer);
  const Time limit = std::min(deadline, current_->must_end());
  if (steady_now() < limit || can_any(streams)) return;
  std::string late;
  for (const Stream& stream : streams) {
    const std::string who = name_of_rank(stream.what().peer);
    if (late.find(who + " ") == std::string::npos)
      late += (late.empty() ? "" : ", ") + who + " did not arrive";
  }
  fail(Code::timed_out, late + late_words(limit, *current_));
}

/// Waits until some stream can move bytes: spins, then sleeps on this rank's bell. This rank sets
/// `bell_sleeps` and then reads the rings and the bell; a peer moves bytes and then reads
/// `bell_sleeps` (advance()). All are seq_cst, so at least one sees the other's write.
void ArenaCommunicator::rest(const std::vector<Stream>& streams, Time deadline) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (can_any(streams)) return;
    relax();
  }
  RankLine& mine = line(rank());
  while (!can_any(streams)) {
    mine.bell_sleeps.store(1, std::memory_order_seq_cst);
    const std::uint32_t seen = mine.bell.load(std::memory_order_seq_cst);
    const Duration left = std::min(deadline, current_->must_end()) - steady_now();
    const bool gone = std::any_of(streams.begin(), streams.end(), [this](const Stream& stream) {
      return has_left(stream.what().peer);
    });
    if (!can_any(streams) && left > Duration::zero() && !gone && !is_over())
      park(mine.bell, seen, std::min(left, kSlice));
    mine.bell_sleeps.store(0, std::memory_order_seq_cst);
    if (!can_any(streams)) check_peers(streams, deadline);
  }
}

void ArenaCommunicator::move(const Operation&, const std::vector<Transfers::One>& messages) {
  if (is_over()) throw_aborted();
  Turns turns(messages);
  std::vector<Stream> streams;
  const auto begin_next = [&] {
    turns.begin_next(streams, [&](const Transfers::One& one) {
      const int peer = at(one.peer), from = one.sends ? self() : peer,
                to = one.sends ? peer : self();
      streams.emplace_back(
          one, Ring(arena_->fifo(seats_.lane, from, to), arena_->fifo_data(seats_.lane, from, to),
                    arena_->fifo_bytes()));
    });
  };
  begin_next();
  Time deadline = deadline_after(steady_now(), timeout());
  while (!streams.empty()) {
    bool moved = false;
    for (Stream& stream : streams) moved = advance(stream) || moved;
    if (std::erase_if(streams, [](const Stream& stream) { return stream.is_done(); }) > 0)
      begin_next();
    if (streams.empty()) break;
    if (moved)
      deadline = deadline_after(steady_now(), timeout());
    else
      rest(streams, deadline);
  }
}

}  // namespace troupe::collective::internal
