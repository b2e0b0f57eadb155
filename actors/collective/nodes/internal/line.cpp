#include "troupe/actors/collective/nodes/internal/line.hpp"

#include "troupe/actors/collective/internal/reduction.hpp"
#include "troupe/runtime/base/random.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::collective::nodes {
namespace {

void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  if (bytes != 0 && to != from) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

std::span<const std::byte> span_of(const std::byte* from, std::uint64_t bytes) noexcept {
  return {from, static_cast<std::size_t>(bytes)};
}

}  // namespace

const std::byte* View::read(std::uint64_t offset, std::uint64_t count, std::byte* scratch) const {
  if (count == 0) return scratch;
  const std::uint64_t row = offset / width, column = offset % width;
  if (column + count <= width) return rows[row] + column;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t at = offset + done, n = std::min(width - at % width, count - done);
    copy_bytes(scratch + done, rows[at / width] + at % width, n);
    done += n;
  }
  return scratch;
}

void View::write(std::uint64_t offset, std::span<const std::byte> from) const {
  for (std::uint64_t done = 0; done < from.size();) {
    const std::uint64_t at = offset + done,
                        n = std::min<std::uint64_t>(width - at % width, from.size() - done);
    copy_bytes(rows[at / width] + at % width, from.data() + done, n);
    done += n;
  }
}

/// What run() moves.
class Line::Course {
 public:
  explicit Course(Line& line) noexcept : line_(line) {}
  Course(const Course&) = delete;
  Course& operator=(const Course&) = delete;
  virtual ~Course() = default;
  /// Moves what can move without waiting. Returns whether something has moved.
  virtual bool step() = 0;
  virtual bool expects_from(bool upper) const noexcept = 0;
  virtual bool is_done() const noexcept = 0;

 protected:
  Line& line_;
};

/// Sums that go up, and results that come down.
class Line::Adding final : public Course {
 public:
  Adding(Line& line, const Sum& sum)
      : Course(line),
        sum_(sum),
        running_(internal::running_bytes(sum.type)),
        element_(static_cast<std::uint64_t>(kernels::size_of(sum.type))),
        down_end_(line.has_upper() ? sum.end : 0),
        now_(sum.parts.size()) {}
  bool expects_from(bool upper) const noexcept override {
    return upper ? down_ < down_end_ : line_.has_lower() && up_ < sum_.count;
  }
  bool is_done() const noexcept override { return up_ == sum_.count && down_ == down_end_; }
  bool step() override {
    bool moved = false;
    while (up_ < sum_.count && step_up()) moved = true;
    while (down_ < down_end_ && step_down()) moved = true;
    return moved;
  }

 private:
  bool step_up() {
    Side* const from = line_.lower_;
    Side* const to = line_.upper_;
    const std::uint64_t n = std::min(sum_.chunk, sum_.count - up_);
    if (from != nullptr && !line_.can_read(from)) return false;
    if (to != nullptr ? !line_.can_write(to) : !can_give(up_)) return false;
    const std::byte* before = from == nullptr ? nullptr : line_.take(*from, n * running_);
    for (std::size_t r = 0; r < now_.size(); ++r)
      now_[r] = sum_.parts[r].read(up_ * element_, n * element_, line_.scratch(2 + r));
    std::byte* out = line_.scratch(0);
    if (to == nullptr) {
      // Where the segment gets all of the chunk, the results go straight to their place.
      if (up_ >= sum_.begin && up_ + n <= sum_.end)
        out = sum_.place + (up_ - sum_.begin) * element_;
      internal::reduce_last(sum_.type, sum_.reduce, out, before, now_, n, sum_.ranks);
      give(up_, n, out);
    } else if (before == nullptr && now_.size() == 1 && running_ == element_) {
      to->link->send(FrameKind::data, span_of(now_.front(), n * element_));
    } else {
      internal::reduce_running(sum_.type, sum_.reduce, out, before, now_, n);
      to->link->send(FrameKind::data, span_of(out, n * running_));
    }
    if (from != nullptr) Wires::pop(*from);
    up_ += n;
    return true;
  }

  bool step_down() {
    Side* const from = line_.upper_;
    const std::uint64_t n = std::min(sum_.chunk, down_end_ - down_);
    if (!line_.can_read(from) || !can_give(down_)) return false;
    give(down_, n, line_.take(*from, n * element_));
    Wires::pop(*from);
    down_ += n;
    return true;
  }

  /// The results from `first` on: those of this segment go to their place, those of lower segments
  /// go down. Where both get all results (begin is 0), so does every segment.
  std::uint64_t lower_end() const noexcept {
    if (line_.lower_ == nullptr) return 0;
    return sum_.begin == 0 ? sum_.end : sum_.begin;
  }
  bool can_give(std::uint64_t first) const noexcept {
    return first >= lower_end() || line_.can_write(line_.lower_);
  }
  void give(std::uint64_t first, std::uint64_t n, const std::byte* from) {
    const std::uint64_t begin = std::max(first, sum_.begin), end = std::min(first + n, sum_.end);
    if (begin < end)
      copy_bytes(sum_.place + (begin - sum_.begin) * element_, from + (begin - first) * element_,
                 (end - begin) * element_);
    if (first < lower_end())
      line_.lower_->link->send(FrameKind::data,
                               span_of(from, std::min(n, lower_end() - first) * element_));
  }

  const Sum& sum_;
  std::uint64_t running_, element_;
  std::uint64_t up_ = 0, down_ = 0;  // elements
  std::uint64_t down_end_;
  std::vector<const std::byte*> now_;  // of the segment's ranks
};

/// Bytes that are copied in either direction, or in both.
class Line::Moving final : public Course {
 public:
  Moving(Line& line, const std::vector<Flow>& flows, std::uint64_t chunk)
      : Course(line), chunk_(chunk) {
    for (const Flow& flow : flows) {
      Running one{&flow, flow.up ? line.lower_ : line.upper_, flow.up ? line.upper_ : line.lower_};
      skip_empty(one);
      flows_.push_back(one);
    }
  }
  bool expects_from(bool upper) const noexcept override {
    return std::any_of(flows_.begin(), flows_.end(), [upper](const Running& one) {
      return one.flow->up != upper && !one.is_done() && !one.part().own;
    });
  }
  bool is_done() const noexcept override {
    return std::all_of(flows_.begin(), flows_.end(),
                       [](const Running& one) { return one.is_done(); });
  }
  bool step() override {
    bool moved = false;
    for (Running& one : flows_)
      while (!one.is_done() && step(one)) moved = true;
    return moved;
  }

 private:
  struct Running {
    const Flow* flow;
    Side* from;
    Side* to;
    std::size_t at = 0;        // the part
    std::uint64_t offset = 0;  // in it
    bool is_done() const noexcept { return at == flow->parts.size(); }
    const Flow::Part& part() const noexcept { return flow->parts[at]; }
  };
  static void skip_empty(Running& one) noexcept {
    while (!one.is_done() && one.offset == one.part().view.bytes()) {
      ++one.at;
      one.offset = 0;
    }
  }
  bool step(Running& one) {
    const Flow::Part& part = one.part();
    if (!part.own && !line_.can_read(one.from)) return false;
    if (one.to != nullptr && !line_.can_write(one.to)) return false;
    const std::uint64_t n = std::min(chunk_, part.view.bytes() - one.offset);
    const std::byte* from =
        part.own ? part.view.read(one.offset, n, line_.scratch(0)) : line_.take(*one.from, n);
    if (!part.own) part.view.write(one.offset, span_of(from, n));
    if (one.to != nullptr) one.to->link->send(FrameKind::data, span_of(from, n));
    if (!part.own) Wires::pop(*one.from);
    one.offset += n;
    skip_empty(one);
    return true;
  }

  std::uint64_t chunk_;
  std::vector<Running> flows_;
};

void Line::open() {
  for (const Neighbour* each : {&up_, &down_})
    if (each->side != nullptr) wires_.open(*each->side);
}

void Line::open_or_fail() {
  for (const Neighbour* each : {&up_, &down_})
    if (each->side != nullptr) wires_.open_or_fail(*each->side);
}

Line::Line(Wires& wires, internal::ArenaCommunicator& inner, const Layout& layout, int rank)
    : wires_(wires), inner_(inner), layout_(layout), rank_(rank) {
  const int segment = layout.segment_of(rank);
  if (segment > 0) down_.side = lower_ = &wires.add(0, layout.begin_of(segment - 1));
  if (segment + 1 < layout.segments())
    up_.side = upper_ = &wires.add(0, layout.begin_of(segment + 1));
}

std::byte* Line::scratch(std::size_t which) {
  if (which >= scratch_.size()) scratch_.resize(which + 1);
  if (scratch_[which].empty()) scratch_[which].resize(kMaxFrame);
  return scratch_[which].data();
}

bool Line::can_read(const Side* side) const noexcept {
  return (side == upper_ ? up_ : down_).call_came && Wires::has_data(*side);
}

bool Line::can_write(const Side* side) const noexcept {
  return (side == upper_ ? up_ : down_).call_sent && side->link->can_send();
}

const std::byte* Line::take(Side& side, std::uint64_t bytes) {
  const std::span<const std::byte> frame = Wires::front(side);
  if (frame.size() != bytes)
    inner_.fail(Code::invalid_argument, "rank " + std::to_string(side.rank) + " sent " +
                                            std::to_string(frame.size()) + " bytes in place of " +
                                            std::to_string(bytes) +
                                            ": the ranks have other programs or options");
  return frame.data();
}

void Line::note_device(const internal::Operation& o) noexcept {
  for (const std::uint64_t word :
       {static_cast<std::uint64_t>(o.kind) << 16 | static_cast<std::uint64_t>(o.type) << 8 |
            static_cast<std::uint64_t>(o.reduce),
        static_cast<std::uint64_t>(o.root), o.count}) {
    std::uint64_t state = device_ ^ word;
    device_ = splitmix64(state);
  }
}

void Line::begin(const internal::Operation& operation, Duration timeout, const Post* self) {
  operation_ = &operation;
  timeout_ = timeout;
  self_ = self;
  mine_ = call_head_of(operation, *inner_.call_log());
  mine_.sequence = inner_.sequence();
  mine_.meeting = ++meetings_;
  mine_.device = device_;
  for (Neighbour* each : {&up_, &down_}) each->call_sent = each->call_came = each->side == nullptr;
}

void Line::take_call(Side& side) {
  const std::optional<CallHead> theirs = call_head_from(Wires::front(side));
  if (!theirs)
    inner_.fail(Code::invalid_argument, "rank " + std::to_string(side.rank) +
                                            " sent data in place of its call: the ranks have "
                                            "other programs or options");
  wires_.note(side.rank, internal::progress_word(static_cast<OperationKind>(theirs->kind),
                                                 theirs->sequence, true));
  const std::optional<Difference> difference =
      difference_of(layout_.world_of(rank_), mine_, layout_.world_of(side.rank), *theirs);
  if (difference) wires_.advance(true);  // the other end may have ended the group since
  if (difference && inner_.is_over()) inner_.throw_aborted();
  if (difference && difference->of_calls) {
    inner_.end_with({Code::invalid_argument, internal::Ending::calls, difference->text});
    inner_.throw_aborted();
  }
  if (difference) inner_.fail(Code::invalid_argument, difference->text);
  Wires::pop(side);
}

void Line::run(Course& course) {
  wires_.begin(*operation_, timeout_);
  while (true) {
    wires_.advance();
    bool moved = false;
    for (Neighbour* each : {&up_, &down_}) {
      if (each->side == nullptr) continue;
      if (!each->call_sent && each->side->link->can_send()) {
        each->side->link->send(FrameKind::data, bytes_of(mine_));
        each->call_sent = moved = true;
      }
      if (!each->call_came && Wires::has_data(*each->side)) {
        take_call(*each->side);
        each->call_came = moved = true;
      }
    }
    moved = course.step() || moved;
    bool waits = !course.is_done();
    for (Neighbour* each : {&up_, &down_}) {
      if (each->side == nullptr) continue;
      each->side->awaited = !each->call_sent || !each->call_came ||
                            !Wires::is_flushed(*each->side) ||
                            course.expects_from(each->side == upper_);
      waits = waits || each->side->awaited;
    }
    if (!waits) break;
    if (moved)
      wires_.begin(*operation_, timeout_);
    else
      wires_.rest(self_);
  }
  wires_.end();
}

void Line::add(const Sum& sum) {
  Adding course(*this, sum);
  run(course);
}

void Line::move(const std::vector<Flow>& flows, std::uint64_t chunk) {
  Moving course(*this, flows, chunk);
  run(course);
}

}  // namespace troupe::collective::nodes
