#include "troupe/objectstore/internal/allocator.hpp"

#include "troupe/runtime/base/assert.hpp"

#include <algorithm>
#include <bit>

namespace troupe::objectstore::internal {
namespace {

constexpr std::uint64_t units_of(std::uint64_t bytes) {
  return (bytes + Allocator::kAlignment - 1) / Allocator::kAlignment;
}

}  // namespace

// Returns the class of a size in units of 64 bytes. The top bit gives the first level, the next
// five bits the second. Below 32 units every size has a class of its own.
Allocator::Class Allocator::class_of(std::uint64_t units) noexcept {
  if (units < kSecond) return {0, static_cast<int>(units)};
  const int log = std::bit_width(units) - 1;
  return {log - kSecondBits + 1, static_cast<int>((units >> (log - kSecondBits)) - kSecond)};
}

Allocator::BlockId Allocator::new_block() {
  if (spare_.empty()) {
    blocks_.emplace_back();
    return static_cast<BlockId>(blocks_.size() - 1);
  }
  const BlockId block = spare_.back();
  spare_.pop_back();
  blocks_[block] = Block{};
  return block;
}

void Allocator::link(BlockId id) {
  Block& block = blocks_[id];
  const Class c = class_of(block.bytes / kAlignment);
  BlockId& head = heads_[c.first * kSecond + c.second];
  block.used = false;
  block.previous = kNone;
  block.next = head;
  if (head != kNone) blocks_[head].previous = id;
  head = id;
  first_map_ |= std::uint64_t{1} << c.first;
  second_map_[c.first] |= std::uint32_t{1} << c.second;
  ++totals_.free_blocks;
}

void Allocator::unlink(BlockId id) {
  Block& block = blocks_[id];
  if (block.next != kNone) blocks_[block.next].previous = block.previous;
  --totals_.free_blocks;
  if (block.previous != kNone) {
    blocks_[block.previous].next = block.next;
    return;
  }
  const Class c = class_of(block.bytes / kAlignment);
  BlockId& head = heads_[c.first * kSecond + c.second];
  head = block.next;
  if (head != kNone) return;
  second_map_[c.first] &= ~(std::uint32_t{1} << c.second);
  if (second_map_[c.first] == 0) first_map_ &= ~(std::uint64_t{1} << c.first);
}

void Allocator::add_extent(std::uint32_t key, std::uint64_t bytes) {
  TROUPE_ASSERT(bytes > 0 && bytes % kAlignment == 0, "an extent is a positive multiple of 64");
  const BlockId id = new_block();
  blocks_[id].bytes = bytes;
  blocks_[id].extent = key;
  link(id);
  totals_.capacity += bytes;
}

Allocator::BlockId Allocator::look_in(Class c, std::uint64_t bytes) const noexcept {
  BlockId id = heads_[c.first * kSecond + c.second];
  for (int looks = 0; id != kNone && looks < kLooks; ++looks, id = blocks_[id].next)
    if (blocks_[id].bytes >= bytes) return id;
  return kNone;
}

// Returns the first block of the smallest class with blocks in which every block is large enough:
// the classes above the size's own.
Allocator::BlockId Allocator::look_above(std::uint64_t units) const noexcept {
  Class c = class_of(units);
  if (++c.second == kSecond) c = {c.first + 1, 0};
  if (c.first >= kFirst) return kNone;
  std::uint32_t second = second_map_[c.first] & (~std::uint32_t{0} << c.second);
  if (second == 0) {
    const std::uint64_t above = ~std::uint64_t{0} << (c.first + 1);
    const std::uint64_t first = first_map_ & above;
    if (first == 0) return kNone;
    c.first = std::countr_zero(first);
    second = second_map_[c.first];
  }
  return heads_[c.first * kSecond + std::countr_zero(second)];
}

Allocator::BlockId Allocator::allocate(std::uint64_t wanted) {
  const std::uint64_t units = units_of(wanted);
  const std::uint64_t bytes = units * kAlignment;
  BlockId id = look_in(class_of(units), bytes);
  if (id == kNone) id = look_above(units);
  if (id == kNone) return kNone;
  unlink(id);
  if (blocks_[id].bytes > bytes) {
    const BlockId rest = new_block();
    Block& block = blocks_[id];
    Block& right = blocks_[rest];
    right.offset = block.offset + bytes;
    right.bytes = block.bytes - bytes;
    right.extent = block.extent;
    right.before = id;
    right.after = block.after;
    if (right.after != kNone) blocks_[right.after].before = rest;
    block.after = rest;
    block.bytes = bytes;
    link(rest);
  }
  blocks_[id].used = true;
  totals_.used += bytes;
  ++totals_.used_blocks;
  return id;
}

// Joins two neighbours, neither of which is in a free list, into `left`.
Allocator::BlockId Allocator::join(BlockId left, BlockId right) {
  Block& kept = blocks_[left];
  kept.bytes += blocks_[right].bytes;
  kept.after = blocks_[right].after;
  if (kept.after != kNone) blocks_[kept.after].before = left;
  spare_.push_back(right);
  return left;
}

void Allocator::free(BlockId id) {
  TROUPE_ASSERT(id < blocks_.size() && blocks_[id].used, "a block is freed once");
  totals_.used -= blocks_[id].bytes;
  --totals_.used_blocks;
  blocks_[id].used = false;
  const BlockId after = blocks_[id].after;
  if (after != kNone && !blocks_[after].used) {
    unlink(after);
    id = join(id, after);
  }
  const BlockId before = blocks_[id].before;
  if (before != kNone && !blocks_[before].used) {
    unlink(before);
    id = join(before, id);
  }
  link(id);
}

bool Allocator::remove_extent(BlockId any) {
  const Block& block = blocks_[any];
  if (block.used || block.before != kNone || block.after != kNone) return false;
  unlink(any);
  totals_.capacity -= block.bytes;
  spare_.push_back(any);
  return true;
}

std::vector<Allocator::BlockId> Allocator::whole_extents() const {
  std::vector<BlockId> found;
  for (BlockId head : heads_)
    for (BlockId id = head; id != kNone; id = blocks_[id].next)
      if (blocks_[id].before == kNone && blocks_[id].after == kNone) found.push_back(id);
  return found;
}

std::uint64_t Allocator::largest_free() const noexcept {
  if (first_map_ == 0) return 0;
  const int first = std::bit_width(first_map_) - 1;
  const int second = std::bit_width(second_map_[first]) - 1;
  std::uint64_t largest = 0;
  for (BlockId id = heads_[first * kSecond + second]; id != kNone; id = blocks_[id].next)
    largest = std::max(largest, blocks_[id].bytes);
  return largest;
}

}  // namespace troupe::objectstore::internal
