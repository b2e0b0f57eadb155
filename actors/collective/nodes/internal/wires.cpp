#include "troupe/actors/collective/nodes/internal/wires.hpp"

#include "troupe/actors/collective/internal/parking.hpp"
#include "troupe/actors/collective/internal/sockets.hpp"
#include "troupe/runtime/base/deadline.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::collective::nodes {
namespace {

using std::chrono::milliseconds;

/// How long the words of an end that waits count.
constexpr Duration kFresh = milliseconds(500);
/// The least time between the question for whom an end waits and the verdict that it is silent.
constexpr Duration kForAnAnswer = milliseconds(200);
/// How much longer than its timeout a rank waits for the `end` of one that has told it waits.
constexpr Duration kForAnEnd = std::chrono::seconds(1);
/// How many frames of data a side sets aside.
constexpr std::size_t kMostHeld = 4;
/// Marks a rank in Wires::seen_ that has left.
constexpr std::uint64_t kLeft = std::uint64_t{1} << 63;
/// Marks a rank in Wires::seen_ that has joined.
constexpr std::uint64_t kJoined = std::uint64_t{1} << 62;

/// The beginning of the frame `end`; the text follows.
struct EndHead {
  std::uint16_t code = 0;
  std::uint16_t of_calls = 0;
};

bool is_fresh(const Side& side, Time now) noexcept {
  return side.heard != Time{} && now - side.heard < kFresh;
}

}  // namespace

Wires::Wires(internal::ArenaCommunicator& inner, Gang& gang, const Layout& layout, int rank)
    : inner_(inner),
      gang_(gang),
      layout_(layout),
      rank_(rank),
      seen_(static_cast<std::size_t>(layout.size())) {}

Side& Wires::add(std::uint32_t use, int rank) {
  Side& side = sides_.emplace_back();
  side.use = use;
  side.rank = rank;
  return side;
}

void Wires::open(Side& side) {
  if (side.link) return;
  LinkName name = layout_.name;
  name.use = side.use;
  side.link = gang_.links().link(name, layout_.world_of(side.rank));
}

void Wires::open_or_fail(Side& side) {
  try {
    open(side);
  } catch (const Error& e) {
    inner_.fail(e.code(), e.message());
  }
}

Side& Wires::add(std::unique_ptr<Link> link, int rank) {
  Side& side = sides_.emplace_back();
  side.link = std::move(link);
  side.rank = rank;
  return side;
}

bool Wires::has_data(const Side& side) noexcept {
  return !side.held.empty() ||
         (side.link->has_frame() && side.link->front().kind == FrameKind::data);
}

std::span<const std::byte> Wires::front(const Side& side) noexcept {
  if (side.held.empty()) return side.link->front().bytes;
  return side.held.front();
}

void Wires::pop(Side& side) noexcept {
  if (side.held.empty())
    side.link->pop();
  else
    side.held.pop_front();
}

void Wires::advance(bool looks_behind) noexcept {
  for (Side& side : sides_) {
    if (!side.link) continue;
    if (side.link->state() != Link::State::closed) side.link->advance();
    take_words(side, looks_behind);
  }
}

void Wires::take_words(Side& side, bool looks_behind) noexcept {
  Link& link = *side.link;
  if (side.rank != rank_ && link.state() == Link::State::open) note(side.rank, 0);
  for (; link.has_frame(); link.pop()) {
    const Frame frame = link.front();
    switch (frame.kind) {
      case FrameKind::data:
        if (!looks_behind || side.held.size() >= kMostHeld) return;
        side.held.emplace_back(frame.bytes.begin(), frame.bytes.end());
        break;
      case FrameKind::waits: {
        std::int32_t missing = -1;
        if (frame.bytes.size() != sizeof missing) break;
        std::memcpy(&missing, frame.bytes.data(), sizeof missing);
        side.waits_for = missing;
        side.heard = steady_now();
        side.asked = true;
        break;
      }
      case FrameKind::end: take_end(frame.bytes); break;
      case FrameKind::left:
        side.left = true;
        note(side.rank, kLeft);
        break;
    }
  }
}

void Wires::take_end(std::span<const std::byte> frame) noexcept {
  EndHead head;
  if (frame.size() < sizeof head) return;
  std::memcpy(&head, frame.data(), sizeof head);
  internal::ArenaCommunicator::Ended how;
  how.code = static_cast<Code>(head.code);
  if (head.of_calls != 0) how.ending = internal::Ending::calls;
  how.text.assign(reinterpret_cast<const char*>(frame.data()) + sizeof head,
                  frame.size() - sizeof head);
  inner_.end_with(how);
}

void Wires::part() noexcept {
  const auto is_open = [](const Side& side) { return side.link != nullptr; };
  if (std::none_of(sides_.begin(), sides_.end(), is_open)) return;
  std::vector<std::byte> frame;
  if (inner_.is_over()) {
    const internal::ArenaCommunicator::Ended how = inner_.ended();
    const EndHead head{static_cast<std::uint16_t>(how.code),
                       how.ending == internal::Ending::calls ? std::uint16_t{1} : std::uint16_t{0}};
    frame.resize(sizeof head + how.text.size());
    std::memcpy(frame.data(), &head, sizeof head);
    std::memcpy(frame.data() + sizeof head, how.text.data(), how.text.size());
  }
  for (Side& side : sides_) {
    if (!side.link || side.parted || side.link->state() == Link::State::closed) continue;
    if (!side.link->can_send()) side.link->advance();
    if (!side.link->can_send()) continue;
    side.link->send(frame.empty() ? FrameKind::left : FrameKind::end, frame);
    side.parted = true;
  }
}

void Wires::flush(Time until) noexcept {
  // The other end of a link that this rank does not connect may never come.
  const auto has_words = [this](const Side& side) {
    if (!side.link || side.link->state() == Link::State::closed) return false;
    const bool connects = gang_.rank() < layout_.world_of(side.rank) && !inner_.is_over();
    const bool comes = side.link->state() == Link::State::open || connects;
    return comes && (!side.parted || !side.link->is_flushed());
  };
  while (std::any_of(sides_.begin(), sides_.end(), has_words) && steady_now() < until) {
    poll(std::min<Duration>(until - steady_now(), internal::kSlice));
    advance();
    part();
  }
}

void Wires::begin(const internal::Operation& operation, Duration timeout) noexcept {
  operation_ = &operation;
  begun_ = steady_now();
  served_ = begun_;
  asked_ = {};
  deadline_ = deadline_after(begun_, timeout);
  if (is_away_) inner_.set_away(deadline_after(deadline_, kForAnEnd));
}

void Wires::end() noexcept {
  for (Side& side : sides_) side.awaited = false;
  if (is_away_) inner_.set_away(Time{});
  is_away_ = false;
}

int Wires::missing_for(const Side* whom, Time now) const noexcept {
  for (const Side& side : sides_) {
    if (!side.awaited || &side == whom) continue;
    if (!is_fresh(side, now)) return layout_.world_of(side.rank);
    if (side.waits_for != gang_.rank()) return side.waits_for;
  }
  return whom != nullptr && whom->awaited ? layout_.world_of(whom->rank) : -1;
}

void Wires::tell(int missing, bool all) noexcept {
  const Time now = steady_now();
  for (Side& side : sides_) {
    const bool due = side.asked || (all && now - side.told >= internal::kSlice);
    if (!due || !side.link || side.rank == rank_ || side.link->state() != Link::State::open)
      continue;
    const std::int32_t whom = missing >= 0 ? missing : missing_for(&side, now);
    if (whom < 0 || !side.link->can_send()) continue;
    side.link->send(FrameKind::waits, std::as_bytes(std::span(&whom, 1)));
    side.told = now;
    side.asked = false;
  }
}

void Wires::check_ends() noexcept {
  for (const Side& side : sides_) {
    if (!side.link) continue;
    const Link& link = *side.link;
    if (side.left || side.rank == rank_ || link.has_frame() || link.state() != Link::State::closed)
      continue;
    if (link.code() == Code::worker_died)
      inner_.end(Code::worker_died, name_of(side.rank) + " died: " + link.why());
  }
}

void Wires::check_awaited() {
  for (const Side& side : sides_) {
    if (!side.awaited || has_data(side)) continue;
    if (side.left) inner_.fail(Code::cancelled, name_of(side.rank) + " left the group");
    if (side.link->state() != Link::State::closed) continue;
    if (side.link->code() == Code::unavailable) inner_.fail(Code::unavailable, side.link->why());
    inner_.fail(Code::worker_died, name_of(side.rank) + " died: " + side.link->why());
  }
}

void Wires::judge(Time now) {
  const Time limit = std::min(deadline_, operation_->must_end());
  if (now < limit) return;
  if (asked_ == Time{} || now < asked_ + kForAnAnswer) return;
  const std::string when = inner_.late_words(limit, *operation_);
  std::string late;
  const Side* told = nullptr;
  for (const Side& side : sides_) {
    if (!side.awaited) continue;
    if (is_fresh(side, now)) {
      if (told == nullptr || told->waits_for == gang_.rank()) told = &side;
      continue;
    }
    late += (late.empty() ? "" : ", ") + name_of(side.rank) +
            (side.link->state() == Link::State::opening ? " has not joined" : " did not arrive");
  }
  if (!late.empty()) inner_.fail(Code::timed_out, late + when);
  if (told == nullptr || now < deadline_after(limit, kForAnEnd)) return;
  const bool is_me = told->waits_for == gang_.rank();
  inner_.fail(Code::timed_out, (is_me ? name_of(told->rank) : name_of_world(told->waits_for)) +
                                   " did not arrive" + when);
}

void Wires::rest(const Post* self) {
  if (inner_.is_over()) inner_.throw_aborted();
  check_awaited();
  const Time now = steady_now();
  if (!is_away_) {
    is_away_ = true;
    inner_.set_away(deadline_after(deadline_, kForAnEnd));
  }
  const Time limit = std::min(deadline_, operation_->must_end());
  const bool asks = limit != Time::max() && now - begun_ >= limit - now;
  if (asks && asked_ == Time{}) asked_ = now;
  tell(-1, asks);
  if (now - served_ >= internal::kSlice) {
    served_ = now;
    advance(true);
    gang_.serve(self, missing_for(nullptr, now));
    inner_.check_calls();
    if (inner_.is_over()) inner_.throw_aborted();
  }
  judge(now);
  Duration most = internal::kSlice;
  if (limit > now) most = std::min<Duration>(most, limit - now);
  if (!asks && limit != Time::max())
    most = std::min<Duration>(most, (limit - now - (now - begun_)) / 2 + milliseconds(1));
  poll(most);
}

void Wires::poll(Duration most) noexcept {
  polled_.clear();
  for (const Side& side : sides_) {
    if (!side.link || side.link->state() == Link::State::closed) continue;
    const pollfd watched = side.link->watched();
    if (watched.fd < 0)
      most = std::min<Duration>(most, milliseconds(10));
    else
      polled_.push_back(watched);
  }
  internal::poll_until(polled_, steady_now() + most);
}

std::string Wires::name_of(int rank) const {
  std::string name = "rank " + std::to_string(rank);
  if (layout_.name.lane != 0)
    name += " of a split (" + std::to_string(layout_.world_of(rank)) + " of the whole)";
  return name;
}

std::string Wires::name_of_world(int world_rank) const {
  const int rank = layout_.rank_of(world_rank);
  return rank >= 0 ? name_of(rank) : "rank " + std::to_string(world_rank) + " of the whole";
}

void Wires::note(int rank, std::uint64_t word) noexcept {
  constexpr std::uint64_t marks = kLeft | kJoined;
  std::atomic<std::uint64_t>& seen = seen_[static_cast<std::size_t>(rank)];
  const std::uint64_t before = seen.load(std::memory_order_relaxed);
  // The lowest bit is 1 inside of an operation, which comes before its end.
  const auto how_far = [](std::uint64_t one) {
    return (one & ~marks) == 0 ? 0 : (one & ~marks) ^ 1;
  };
  const std::uint64_t last = how_far(word) > how_far(before) ? word : before;
  seen.store((last & ~marks) | ((before | word) & kLeft) | kJoined, std::memory_order_release);
}

void Wires::forget_progress() noexcept {
  for (auto& seen : seen_) seen.fetch_and(kLeft | kJoined, std::memory_order_acq_rel);
}

void Wires::fill(std::vector<RankProgress>& all) const {
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::uint64_t word = seen_[r].load(std::memory_order_acquire);
    if (word == 0 || all[r].state != RankProgress::State::absent) continue;
    all[r].state = (word & kLeft) != 0 ? RankProgress::State::left : RankProgress::State::joined;
    internal::take_progress(word & ~(kLeft | kJoined), all[r]);
  }
}

}  // namespace troupe::collective::nodes
