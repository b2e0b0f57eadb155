/// Allocates space inside the extents of one Client: two-level segregated fit (TLSF; Masmano,
/// Ripoll, Crespo, Real 2004). Its records lie outside the memory that it manages, which it never
/// touches.
///
///     allocator.add_extent(0, 64 << 20);
///     auto block = allocator.allocate(100'000);      // kNone: add an extent
///     allocator.free(block);                         // joins free neighbours at once
///
/// Allocate and free are O(1). Sizes are multiples of 64 bytes, and blocks never cross an extent. A
/// freed block is the first candidate for its size, so memory in the cache is reused. Not
/// thread-safe.
///
/// Free blocks are in lists by size class. A class is a power of two (first level), cut into 32
/// equal ranges (second level). A bit map per level says which lists have blocks, so a bit scan
/// finds the smallest class that fits.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace troupe::objectstore::internal {

class Allocator {
 public:
  using BlockId = std::uint32_t;
  static constexpr BlockId kNone = ~BlockId{0};
  static constexpr std::uint64_t kAlignment = 64;

  struct Block {
    std::uint64_t offset = 0;  ///< bytes from the start of its extent
    std::uint64_t bytes = 0;
    std::uint32_t extent = 0;  ///< the caller's key
    bool used = false;

   private:
    friend class Allocator;
    BlockId before = kNone, after = kNone;   // neighbours in the extent
    BlockId previous = kNone, next = kNone;  // in the free list of its class
  };

  struct Totals {
    std::uint64_t capacity = 0;
    std::uint64_t used = 0;
    std::uint32_t used_blocks = 0;
    std::uint32_t free_blocks = 0;
  };

  /// Adds one free block of `bytes` (a multiple of 64).
  void add_extent(std::uint32_t key, std::uint64_t bytes);
  /// Returns a block of at least `bytes`, or kNone. Precondition: 0 < bytes <= 2^46.
  BlockId allocate(std::uint64_t bytes);
  /// Frees a block and joins it with free neighbours. Precondition: allocate() returned it, and it
  /// was not freed since.
  void free(BlockId block);
  /// Removes the extent of block `any`. Returns false, and does nothing, if the extent has a used
  /// block.
  bool remove_extent(BlockId any);
  /// Returns the free blocks that are whole extents.
  std::vector<BlockId> whole_extents() const;

  const Block& at(BlockId block) const { return blocks_[block]; }
  const Totals& totals() const noexcept { return totals_; }
  std::uint64_t largest_free() const noexcept;

 private:
  static constexpr int kSecondBits = 5;
  static constexpr int kSecond = 1 << kSecondBits;
  static constexpr int kFirst = 40;
  static constexpr int kLooks = 8;  // tries in the size's own class, where some are too small
  struct Class {
    int first, second;
  };
  static Class class_of(std::uint64_t units) noexcept;
  BlockId look_in(Class c, std::uint64_t bytes) const noexcept;
  BlockId look_above(std::uint64_t units) const noexcept;
  BlockId new_block();
  void link(BlockId block);
  void unlink(BlockId block);
  BlockId join(BlockId left, BlockId right);

  std::vector<Block> blocks_;
  std::vector<BlockId> spare_;  // unused entries of blocks_
  std::uint64_t first_map_ = 0;
  std::array<std::uint32_t, kFirst> second_map_{};
  std::vector<BlockId> heads_ = std::vector<BlockId>(kFirst * kSecond, kNone);
  Totals totals_;
};

}  // namespace troupe::objectstore::internal
