// The collective operations of a group over nodes. In each piece the ranks of a node write their
// slots and meet; the head exchanges with other nodes and writes its own slot; they meet again and
// read it. A head without other ranks on its node moves the caller's memory.
#include "troupe/actors/collective/internal/reduction.hpp"
#include "troupe/actors/collective/nodes/internal/communicator.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::collective::nodes {
namespace {

using internal::Operation;

void move_bytes(void* to, const void* from, std::uint64_t bytes) {
  if (bytes != 0 && to != from) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

std::uint64_t element_bytes(const Operation& o) noexcept {
  return static_cast<std::uint64_t>(kernels::size_of(o.type));
}

/// The memory of an operation's input, as View has it. Views of inputs are only read.
std::byte* input(const void* from) noexcept {
  return static_cast<std::byte*>(const_cast<void*>(from));
}

View one_row(std::byte* at, std::uint64_t bytes) {
  return {{at}, bytes};
}

}  // namespace

void NodesCommunicator::carry_out(Operation& o) {
  if (layout_.segments() == 1) {
    // The ranks of a split are numbered alike here and in the arena's group.
    split_name_ = {};
    return inner_.run(o);
  }
  inner_.begin(o);
  const bool is_of_all = o.kind < OperationKind::send;
  if (line_) line_->open_or_fail();  // also to hear of the end of the group
  if (line_ && is_of_all) line_->begin(o, timeout(), this);
  switch (o.kind) {
    case OperationKind::barrier: barrier(); break;
    case OperationKind::broadcast: broadcast(o); break;
    case OperationKind::all_reduce: all_reduce(o); break;
    case OperationKind::reduce_scatter: reduce_scatter(o); break;
    case OperationKind::all_gather:
      if (o.bytes() == 0)
        barrier();
      else
        gather(input(o.in), static_cast<std::byte*>(o.out), o.bytes());
      break;
    case OperationKind::split: split(o); break;
    case OperationKind::send:
    case OperationKind::receive:
    case OperationKind::exchange:
    case OperationKind::group: move(o, o.transfers); break;
  }
  inner_.finish();
  if (is_of_all)
    for (int r = 0; r < size(); ++r)
      if (layout_.segment_of(r) != segment_)
        wires_.note(r, internal::progress_word(o.kind, inner_.sequence(), false));
}

// A barrier is a sum of bytes that nobody reads.
void NodesCommunicator::barrier() {
  if (!is_alone()) inner_.meet(0, 0);
  if (is_head()) {
    std::byte none[1] = {};
    Sum sum;
    sum.ranks = size();
    sum.parts = {one_row(none, 1)};
    sum.count = sum.end = 1;
    sum.place = none;
    line_->add(sum);
  }
  if (!is_alone()) inner_.meet(0, 1);
}

void NodesCommunicator::all_reduce(const Operation& o) {
  if (o.count == 0) return barrier();
  const std::uint64_t element = element_bytes(o);
  auto* data = static_cast<std::byte*>(o.out);
  Sum sum;
  sum.type = o.type;
  sum.reduce = o.reduce;
  sum.ranks = size();
  sum.chunk = std::min(kMaxFrame / internal::running_bytes(o.type), slot_bytes() / element);
  // Pieces end where frames end, so that it does not matter how another node cuts them.
  const std::uint64_t fits = slot_bytes() / element / sum.chunk * sum.chunk;
  const std::uint64_t piece = is_alone() ? o.count : fits;
  for (std::uint64_t first = 0; first < o.count; first += piece) {
    const std::uint64_t n = std::min(piece, o.count - first), bytes = n * element;
    std::byte* const mine = data + first * element;
    if (!is_alone()) {
      move_bytes(inner_.my_slot(), mine, bytes);
      inner_.meet(first, 0);
    }
    if (is_head()) {
      sum.parts.clear();
      for (int r = 0; r < inner_.size(); ++r)
        sum.parts.push_back(one_row(is_alone() ? mine : inner_.slot_of(r), bytes));
      sum.count = sum.end = n;
      sum.place = is_alone() ? mine : inner_.my_slot();
      line_->add(sum);
    }
    if (!is_alone()) {
      inner_.meet(first, 1);
      move_bytes(mine, inner_.slot_of(0), bytes);
    }
  }
}

void NodesCommunicator::reduce_scatter(const Operation& o) {
  if (o.count == 0) return barrier();
  const std::uint64_t element = element_bytes(o);
  const auto ranks = static_cast<std::uint64_t>(size());
  const auto begin = static_cast<std::uint64_t>(layout_.begin_of(segment_));
  const auto end = static_cast<std::uint64_t>(layout_.begin_of(segment_ + 1));
  const auto mine = static_cast<std::uint64_t>(inner_.rank());
  std::byte* const in = input(o.in);
  auto* out = static_cast<std::byte*>(o.out);
  const std::uint64_t piece = std::max<std::uint64_t>(slot_bytes() / element / ranks, 1);
  Sum sum;
  sum.type = o.type;
  sum.reduce = o.reduce;
  sum.ranks = size();
  sum.chunk = kMaxFrame / internal::running_bytes(o.type);
  for (std::uint64_t first = 0; first < o.count; first += piece) {
    const std::uint64_t n = std::min(piece, o.count - first), row = n * element;
    View parts{{}, row};
    for (std::uint64_t r = 0; r < ranks; ++r)
      parts.rows.push_back(in + (r * o.count + first) * element);
    if (!is_alone()) {
      for (std::uint64_t r = 0; r < ranks; ++r)
        move_bytes(inner_.my_slot() + r * row, parts.rows[r], row);
      inner_.meet(first, 0);
    }
    if (is_head()) {
      sum.parts.clear();
      if (is_alone()) sum.parts.push_back(parts);
      for (int r = 0; r < inner_.size() && !is_alone(); ++r)
        sum.parts.push_back(one_row(inner_.slot_of(r), ranks * row));
      sum.count = ranks * n;
      sum.begin = begin * n;
      sum.end = end * n;
      sum.place = is_alone() ? out + first * element : inner_.my_slot();
      line_->add(sum);
    }
    if (!is_alone()) {
      inner_.meet(first, 1);
      move_bytes(out + first * element, inner_.slot_of(0) + mine * row, row);
    }
  }
}

/// Returns what goes up and down when each segment has one of these blocks: first this segment's,
/// then those that come, the nearest segment's first.
std::vector<Flow> NodesCommunicator::flows_of_gather(const std::vector<Flow::Part>& blocks) const {
  std::vector<Flow> flows(2);
  flows[1].up = false;
  const auto block = [&](int segment) { return blocks[static_cast<std::size_t>(segment)]; };
  if (line_->has_upper()) flows[0].parts.push_back(block(segment_));
  if (line_->has_lower()) flows[1].parts.push_back(block(segment_));
  for (int s = segment_ - 1; s >= 0; --s) flows[0].parts.push_back(block(s));
  for (int s = segment_ + 1; s < layout_.segments(); ++s) flows[1].parts.push_back(block(s));
  return flows;
}

// Every rank gets all ranks' `bytes`, which are in `out` in the order of ranks.
void NodesCommunicator::gather(const std::byte* in, std::byte* out, std::uint64_t bytes) {
  const std::uint64_t piece = slot_bytes() / static_cast<std::uint64_t>(size());
  const auto in_segment = [this](int r) { return layout_.segment_of(r) == segment_; };
  if (is_alone()) {
    std::byte* const mine = out + static_cast<std::uint64_t>(rank()) * bytes;
    move_bytes(mine, in, bytes);
    std::vector<Flow> all(2);
    all[1].up = false;
    for (std::uint64_t first = 0; first < bytes; first += piece) {
      std::vector<Flow::Part> blocks;
      for (int s = 0; s < layout_.segments(); ++s) {
        Flow::Part& block = blocks.emplace_back();
        block.own = s == segment_;
        block.view.width = std::min(piece, bytes - first);
        for (int r = layout_.begin_of(s); r < layout_.begin_of(s + 1); ++r)
          block.view.rows.push_back(out + static_cast<std::uint64_t>(r) * bytes + first);
      }
      const std::vector<Flow> now = flows_of_gather(blocks);
      for (std::size_t way : {0u, 1u})
        all[way].parts.insert(all[way].parts.end(), now[way].parts.begin(), now[way].parts.end());
    }
    return line_->move(all, kMaxFrame);
  }
  for (std::uint64_t first = 0; first < bytes; first += piece) {
    const std::uint64_t n = std::min(piece, bytes - first);
    move_bytes(inner_.my_slot(), in + first, n);
    inner_.meet(first, 0);
    const auto place_of = [&](int r) {
      return out + static_cast<std::uint64_t>(r) * bytes + first;
    };
    for (int r = 0; r < inner_.size(); ++r)
      move_bytes(place_of(layout_.begin_of(segment_) + r), inner_.slot_of(r), n);
    if (is_head()) {
      std::vector<Flow::Part> blocks;
      for (int s = 0; s < layout_.segments(); ++s) {
        Flow::Part& block = blocks.emplace_back();
        block.own = s == segment_;
        block.view.width = n;
        for (int r = layout_.begin_of(s); r < layout_.begin_of(s + 1); ++r)
          block.view.rows.push_back(block.own
                                        ? inner_.slot_of(r - layout_.begin_of(s))
                                        : inner_.my_slot() + static_cast<std::uint64_t>(r) * n);
      }
      line_->move(flows_of_gather(blocks), kMaxFrame);
    }
    inner_.meet(first, 1);
    for (int r = 0; r < size(); ++r)
      if (!in_segment(r))
        move_bytes(place_of(r), inner_.slot_of(0) + static_cast<std::uint64_t>(r) * n, n);
  }
}

void NodesCommunicator::broadcast(const Operation& o) {
  const std::uint64_t bytes = o.bytes();
  if (bytes == 0) return barrier();
  auto* data = static_cast<std::byte*>(o.out);
  const int from = layout_.segment_of(o.root);
  const int root = o.root - layout_.begin_of(from);  // in its segment
  const std::uint64_t chunk = std::min<std::uint64_t>(kMaxFrame, slot_bytes());
  const std::uint64_t piece = is_alone() ? bytes : slot_bytes() / chunk * chunk;
  for (std::uint64_t first = 0; first < bytes; first += piece) {
    const std::uint64_t n = std::min(piece, bytes - first);
    if (!is_alone()) {
      if (rank() == o.root) move_bytes(inner_.my_slot(), data + first, n);
      inner_.meet(first, 0);
      if (segment_ == from && rank() != o.root) move_bytes(data + first, inner_.slot_of(root), n);
    }
    if (is_head()) {
      std::byte* const place = is_alone()         ? data + first
                               : segment_ == from ? inner_.slot_of(root)
                                                  : inner_.my_slot();
      const Flow::Part part{one_row(place, n), segment_ == from};
      std::vector<Flow> flows;
      if (from > segment_ || (from == segment_ && line_->has_lower()))
        flows.push_back({false, {part}});
      if (from < segment_ || (from == segment_ && line_->has_upper()))
        flows.push_back({true, {part}});
      line_->move(flows, chunk);
    }
    if (is_alone()) continue;
    inner_.meet(first, 1);
    if (segment_ != from) move_bytes(data + first, inner_.slot_of(0), n);
  }
}

// Every rank tells its color and key, a new number, and, as a head, the next lane of its arena.
void NodesCommunicator::split(Operation& o) {
  struct Request {
    std::int32_t color, key;
    std::uint32_t number, lane;
  };
  const bool is_first = inner_.rank() == 0;
  const Request mine{o.color, o.key, gang_->next_lane(),
                     is_first ? gang_->arena()->take_lane() : 0};
  std::vector<Request> requests(static_cast<std::size_t>(size()));
  gather(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(requests.data()),
         sizeof mine);
  const auto of = [&](int r) { return requests[static_cast<std::size_t>(r)]; };
  o.lane = of(layout_.begin_of(segment_)).lane;
  for (int s = 0; s < layout_.segments(); ++s)
    if (of(layout_.begin_of(s)).lane == 0) o.lane = 0;
  if (o.lane == 0) return;
  std::map<int, std::vector<int>> members;
  for (int r = 0; r < size(); ++r)
    if (of(r).color >= 0) members[of(r).color].push_back(r);
  for (auto& [color, ranks] : members) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](int a, int b) { return of(a).key < of(b).key; });
    std::vector<int> world;
    world.reserve(ranks.size());
    for (const int r : ranks) world.push_back(layout_.world_of(r));
    if (layout_of(std::move(world), gang_->node_of())) continue;
    inner_.finish();
    throw InvalidArgument(Code::invalid_argument,
                          "split: the keys of color " + std::to_string(color) +
                              " mix ranks of several nodes; give the ranks of a node keys that "
                              "follow one another");
  }
  if (o.color < 0) return;
  o.members = members[o.color];
  const int first = o.members.front();
  split_name_ = {static_cast<std::uint32_t>(layout_.world_of(first)), of(first).number, 0};
}

}  // namespace troupe::collective::nodes
