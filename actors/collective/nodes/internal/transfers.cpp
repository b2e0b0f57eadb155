// Sends and receives over a link for each pair of ranks. A message is a head, which the receiver
// compares with its own arguments, and the bytes.
#include "troupe/actors/collective/internal/turns.hpp"
#include "troupe/actors/collective/nodes/internal/communicator.hpp"
#include "troupe/actors/collective/nodes/internal/loopback.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::collective::nodes {
namespace {

/// LinkName::use of the links between pairs.
constexpr std::uint32_t kPairs = 1;

struct Head {
  std::uint64_t count = 0;
  std::uint32_t type = 0;
  std::uint32_t magic = 0;
};
constexpr std::uint32_t kMagic = 0x73656e64;  // "send"

}  // namespace

/// A send or receive in progress.
class NodesCommunicator::Stream {
 public:
  Stream(const Transfers::One& one, Side& side) noexcept : one_(one), side_(&side) {
    head_ = {static_cast<std::uint64_t>(one.count), static_cast<std::uint32_t>(one.type), kMagic};
    bytes_ = head_.count * static_cast<std::uint64_t>(kernels::size_of(one.type));
  }
  const Transfers::One& what() const noexcept { return one_; }
  Side& side() const noexcept { return *side_; }
  bool is_done() const noexcept { return began_ && moved_ == bytes_; }
  /// Returns whether what came fits this receive; true as long as nothing has come.
  bool fits() const noexcept { return fits_; }
  std::string difference() const {
    return "sends " + internal::words_of_message(came_.count, came_.type) +
           " where it should send " + internal::words_of_message(head_.count, head_.type);
  }
  /// Moves a frame if that needs no wait. Returns whether it has.
  bool step(std::vector<std::byte>& scratch) {
    Link& link = *side_->link;
    if (one_.sends ? !link.can_send() : !Wires::has_data(*side_)) return false;
    if (one_.sends)
      send(link, scratch);
    else
      receive();
    began_ = true;
    return true;
  }

 private:
  void send(Link& link, std::vector<std::byte>& scratch) {
    const auto* from = static_cast<const std::byte*>(one_.from) + moved_;
    const std::size_t room = began_ ? kMaxFrame : kMaxFrame - sizeof(Head);
    const std::size_t n = std::min<std::size_t>(room, static_cast<std::size_t>(bytes_ - moved_));
    if (began_) {
      link.send(FrameKind::data, {from, n});
    } else {
      scratch.resize(sizeof(Head) + n);
      std::memcpy(scratch.data(), &head_, sizeof(Head));
      if (n != 0) std::memcpy(scratch.data() + sizeof(Head), from, n);
      link.send(FrameKind::data, scratch);
    }
    moved_ += n;
  }
  void receive() {
    std::span<const std::byte> frame = Wires::front(*side_);
    if (!began_) {
      fits_ = frame.size() >= sizeof came_;
      if (!fits_) return;
      std::memcpy(&came_, frame.data(), sizeof came_);
      frame = frame.subspan(sizeof came_);
      fits_ = came_.magic == kMagic && came_.count == head_.count && came_.type == head_.type;
    }
    fits_ = fits_ && frame.size() <= bytes_ - moved_;
    if (!fits_) return;
    if (!frame.empty())
      std::memcpy(static_cast<std::byte*>(one_.to) + moved_, frame.data(), frame.size());
    moved_ += frame.size();
    Wires::pop(*side_);
  }

  Transfers::One one_;
  Side* side_;
  Head head_, came_;
  std::uint64_t bytes_ = 0, moved_ = 0;
  bool began_ = false, fits_ = true;
};

Side& NodesCommunicator::pair(int other) {
  Side*& side = pairs_[other];
  if (side == nullptr)
    side = other == rank() ? &wires_.add(std::make_unique<Loopback>(), other)
                           : &wires_.add(kPairs, other);
  wires_.open_or_fail(*side);
  return *side;
}

void NodesCommunicator::move(const internal::Operation& o,
                             const std::vector<Transfers::One>& messages) {
  if (inner_.is_over()) inner_.throw_aborted();
  internal::Turns turns(messages);
  std::vector<Stream> streams;
  std::vector<Side*> sent;
  const auto begin_next = [&] {
    turns.begin_next(streams, [&](const Transfers::One& one) {
      streams.emplace_back(one, pair(one.peer));
      if (one.sends) sent.push_back(&streams.back().side());
    });
  };
  const auto settle = [&] {
    for (auto& [peer, side] : pairs_) side->awaited = false;
    for (const Stream& stream : streams) stream.side().awaited = true;
    bool waits = !streams.empty();
    for (Side* side : sent) {
      if (Wires::is_flushed(*side)) continue;
      side->awaited = waits = true;
    }
    return waits;
  };
  begin_next();
  wires_.begin(o, timeout());
  while (true) {
    wires_.advance();
    bool moved = false;
    for (Stream& stream : streams) {
      while (!stream.is_done() && stream.fits() && stream.step(scratch_)) moved = true;
      if (!stream.fits())
        inner_.fail(Code::invalid_argument, "rank " + std::to_string(stream.what().peer) + " " +
                                                stream.difference() + " to rank " +
                                                std::to_string(rank()));
    }
    if (std::erase_if(streams, [](const Stream& stream) { return stream.is_done(); }) > 0)
      begin_next();
    if (!settle()) break;
    if (moved)
      wires_.begin(o, timeout());
    else
      wires_.rest(this);
  }
  wires_.end();
}

}  // namespace troupe::collective::nodes
