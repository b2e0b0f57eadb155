// The collective operations as sequences of phases (arena.hpp). Each one copies a piece into this
// rank's slot, meets the other ranks, and reads their slots.
#include "troupe/actors/collective/internal/rank.hpp"
#include "troupe/actors/collective/internal/reduction.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::collective::internal {
namespace {

/// From this number of ranks on, an all_reduce is a reduce-scatter and an all-gather. That takes
/// two meetings, but each rank reads as much as 2 slots instead of `size` slots.
constexpr int kSlicedFrom = 4;

void copy_bytes(void* to, const void* from, std::uint64_t bytes) {
  if (bytes != 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

std::uint64_t element_bytes(const Operation& o) {
  return static_cast<std::uint64_t>(kernels::size_of(o.type));
}

}  // namespace

std::vector<const std::byte*> ArenaCommunicator::slots_at(std::uint64_t first) {
  std::vector<const std::byte*> parts;
  parts.reserve(static_cast<std::size_t>(size()));
  for (int other = 0; other < size(); ++other) parts.push_back(slot_of(other) + first);
  return parts;
}

void ArenaCommunicator::all_reduce_direct(const Operation& o) {
  auto* data = static_cast<std::byte*>(o.out);
  const std::uint64_t element = element_bytes(o), piece = arena_->slot_bytes() / element;
  for (std::uint64_t first = 0; first < o.count; first += piece) {
    const std::uint64_t n = std::min(piece, o.count - first);
    copy_bytes(my_slot(), data + first * element, n * element);
    meet(first);
    reduce_parts(o.type, o.reduce, data + first * element, slots_at(0), n);
  }
}

void ArenaCommunicator::all_reduce_sliced(const Operation& o) {
  auto* data = static_cast<std::byte*>(o.out);
  const std::uint64_t element = element_bytes(o), piece = arena_->slot_bytes() / element;
  const auto ranks = static_cast<std::uint64_t>(size());
  for (std::uint64_t first = 0; first < o.count; first += piece) {
    const std::uint64_t n = std::min(piece, o.count - first);
    auto begin = [&](std::uint64_t r) { return n * r / ranks; };
    const std::uint64_t mine = begin(static_cast<std::uint64_t>(rank()));
    const std::uint64_t end = begin(static_cast<std::uint64_t>(rank()) + 1);
    copy_bytes(my_slot(), data + first * element, n * element);
    meet(first, 0);
    reduce_parts(o.type, o.reduce, my_slot() + mine * element, slots_at(mine * element),
                 end - mine);
    meet(first, 1);
    for (std::uint64_t r = 0; r < ranks; ++r)
      copy_bytes(data + (first + begin(r)) * element,
                 slot_of(static_cast<int>(r)) + begin(r) * element,
                 (begin(r + 1) - begin(r)) * element);
  }
}

void ArenaCommunicator::all_reduce(const Operation& o) {
  if (o.count == 0) return meet(0);
  if (size() < kSlicedFrom)
    all_reduce_direct(o);
  else
    all_reduce_sliced(o);
}

void ArenaCommunicator::reduce_scatter(const Operation& o) {
  const auto* in = static_cast<const std::byte*>(o.in);
  auto* out = static_cast<std::byte*>(o.out);
  const auto ranks = static_cast<std::uint64_t>(size());
  const std::uint64_t element = element_bytes(o);
  const std::uint64_t piece = std::max<std::uint64_t>(arena_->slot_bytes() / element / ranks, 1);
  if (o.count == 0) return meet(0);
  for (std::uint64_t first = 0; first < o.count; first += piece) {
    const std::uint64_t n = std::min(piece, o.count - first);
    for (std::uint64_t r = 0; r < ranks; ++r)
      copy_bytes(my_slot() + r * n * element, in + (r * o.count + first) * element, n * element);
    meet(first);
    reduce_parts(o.type, o.reduce, out + first * element,
                 slots_at(static_cast<std::uint64_t>(rank()) * n * element), n);
  }
}

void ArenaCommunicator::all_gather(const Operation& o) {
  const auto* in = static_cast<const std::byte*>(o.in);
  auto* out = static_cast<std::byte*>(o.out);
  const std::uint64_t bytes = o.bytes();
  if (bytes == 0) return meet(0);
  for (std::uint64_t first = 0; first < bytes; first += arena_->slot_bytes()) {
    const std::uint64_t n = std::min(arena_->slot_bytes(), bytes - first);
    copy_bytes(my_slot(), in + first, n);
    meet(first);
    for (int r = 0; r < size(); ++r)
      copy_bytes(out + static_cast<std::uint64_t>(r) * bytes + first, slot_of(r), n);
  }
}

void ArenaCommunicator::broadcast(const Operation& o) {
  auto* data = static_cast<std::byte*>(o.out);
  const std::uint64_t bytes = o.bytes();
  if (bytes == 0) return meet(0);
  for (std::uint64_t first = 0; first < bytes; first += arena_->slot_bytes()) {
    const std::uint64_t n = std::min(arena_->slot_bytes(), bytes - first);
    if (rank() == o.root) copy_bytes(my_slot(), data + first, n);
    meet(first);
    if (rank() != o.root) copy_bytes(data + first, slot_of(o.root), n);
  }
}

// Every rank writes its color and key into its slot. The first rank also writes the lane that all
// colors will use.
void ArenaCommunicator::split(Operation& o) {
  struct SplitRequest {
    std::int32_t color, key;
    std::uint32_t lane;
  };
  SplitRequest mine{o.color, o.key, rank() == 0 ? arena_->take_lane() : 0};
  copy_bytes(my_slot(), &mine, sizeof mine);
  meet(0);
  std::vector<SplitRequest> requests(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r)
    copy_bytes(&requests[static_cast<std::size_t>(r)], slot_of(r), sizeof mine);
  o.lane = requests.front().lane;
  for (int r = 0; r < size(); ++r)
    if (requests[static_cast<std::size_t>(r)].color == o.color) o.members.push_back(r);
  std::stable_sort(o.members.begin(), o.members.end(), [&](int a, int b) {
    return requests[static_cast<std::size_t>(a)].key < requests[static_cast<std::size_t>(b)].key;
  });
}

}  // namespace troupe::collective::internal
