/// Free lists for the small records that come and go with every call: freed memory is kept for
/// the next record of its size instead of going back to the heap. Serves Task, ActorCall, Entry
/// and Stored.
///
///     struct Task : FromFreeList<Task> {…};                    // new and delete
///     auto bytes = std::allocate_shared<Stored>(FreeListAllocator<Stored>());
///
/// Each thread keeps up to two batches of freed records of a size. Further batches go to a list
/// that all threads share, at most kShared bytes of a size; what exceeds that goes back to the
/// heap, from which every record came. A thread takes from its own records, then from the shared
/// list, then from the heap. So a record may be freed on another thread than made it. Recycled
/// memory has been touched before: new pages from the heap cost page faults, which are expensive
/// on a virtual machine.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

namespace troupe::client {

/// The blocks of one size. Each thread has its own state; only Shared is used by several.
template <std::size_t size>
class FreeList {
 public:
#if defined(__SANITIZE_ADDRESS__)
  // With reuse ASan could not see a use of a freed record.
  static constexpr std::size_t kBatch = 0;
#else
  static constexpr std::size_t kBatch = 512;
#endif
  static constexpr std::size_t kShared = std::size_t{16} << 20;  ///< bytes

  static void* take() {
    State& mine = state();
    if (mine.first == nullptr) return take_batch(mine);
    Block* block = mine.first;
    mine.first = block->next;
    if (mine.first != nullptr) fetch_ahead(mine.first->next);
    --mine.count;
    return block;
  }
  /// Makes sure that the next take() of this thread does not throw. Throws bad_alloc.
  static void ensure() {
    if (state().first == nullptr) add_one();
  }
  static void give(void* at) noexcept {
    State& mine = state();
    if (mine.count >= mine.limit && !make_room(mine)) return ::operator delete(at);
    auto* block = static_cast<Block*>(at);
    block->next = mine.first;
    mine.first = block;
    ++mine.count;
  }

 private:
  struct Block {
    Block* next;
    Block* next_batch;  ///< in the first block of a shared batch
  };
  static_assert(size >= sizeof(Block));
  /// Fetches a whole block for writing: a block that was freed long ago has left the caches, and
  /// all of a record is written at once.
  static void fetch_ahead(const Block* block) noexcept {
    const auto* at = reinterpret_cast<const std::byte*>(block);
    for (std::size_t i = 0; i < size; i += 64) __builtin_prefetch(at + i, 1);
  }
  /// The lists of one thread. Trivial, so that no access needs the compiler's check whether it is
  /// constructed: in a library that check calls into the loader.
  struct State {
    Block* first;
    std::size_t count;
    std::size_t limit;
    Block* batch;  ///< a whole batch, or nullptr
    bool known;
  };
  /// Its destructor frees what the thread has kept, at the thread's end.
  struct Last {
    ~Last() {
      State& mine = state();
      mine.limit = 0;  // what is freed later in the thread's end goes to the heap
      free_all(std::exchange(mine.first, nullptr));
      free_all(std::exchange(mine.batch, nullptr));
      mine.count = 0;
    }
    static void free_all(Block* block) noexcept {
      while (block != nullptr) ::operator delete(std::exchange(block, block->next));
    }
  };
  /// Batches that any thread may take. Only try_lock: after a fork the thread that held the mutex
  /// may not exist, and the heap serves as well.
  class Shared {
   public:
    bool give(Block* batch) noexcept {
      constexpr std::size_t kMost = kShared / (size * std::max<std::size_t>(kBatch, 1));
      if (count_.load(std::memory_order_relaxed) >= kMost) return false;
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock) return false;
      batch->next_batch = std::exchange(first_, batch);
      count_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    Block* take() noexcept {
      if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock || first_ == nullptr) return nullptr;
      count_.fetch_sub(1, std::memory_order_relaxed);
      return std::exchange(first_, first_->next_batch);
    }

   private:
    std::mutex mutex_;
    Block* first_ = nullptr;
    std::atomic<std::size_t> count_{0};
  };
  [[gnu::noinline]] static void add_one() {
    State& mine = state();
    auto* block = static_cast<Block*>(take_batch(mine));
    block->next = mine.first;
    mine.first = block;
    ++mine.count;
  }
  /// Returns whether this thread keeps blocks; sets its state up on first use. False when the
  /// thread ends, or kBatch is 0.
  static bool keeps(State& mine) noexcept {
    if (std::exchange(mine.known, true)) return mine.limit != 0;
    static thread_local const Last last;
    (void)&last;
    mine.limit = kBatch;
    return kBatch != 0;
  }
  [[gnu::noinline]] static bool make_room(State& mine) noexcept {
    if (!keeps(mine)) return false;
    if (mine.count < mine.limit) return true;
    if (mine.batch != nullptr && !shared_.give(mine.batch)) return false;
    mine.batch = std::exchange(mine.first, nullptr);
    mine.count = 0;
    return true;
  }
  [[gnu::noinline]] static void* take_batch(State& mine) {
    if (!keeps(mine)) return ::operator new(size);
    Block* batch = std::exchange(mine.batch, nullptr);
    if (batch == nullptr) batch = shared_.take();
    if (batch == nullptr) return ::operator new(size);
    mine.first = batch->next;
    mine.count = kBatch - 1;
    return batch;
  }
  static State& state() noexcept {
    // Initial-exec: the address is found without a call into the loader, unlike a library's
    // default thread_local.
    [[gnu::tls_model("initial-exec")]] static thread_local constinit State mine{};
    return mine;
  }
  static inline constinit Shared shared_{};
};

/// Rounds a size up to what the heap would give anyway: its blocks lie 16 bytes apart, and 8 of
/// those are the heap's own. Types of similar size then share one list.
constexpr std::size_t spare_size(std::size_t size) noexcept {
  return ((size + 8 + 15) & ~std::size_t{15}) - 8;
}

/// Gives T an operator new and delete that use a free list. Precondition: T is final, or no class
/// derived from it is larger.
template <class T>
struct FromFreeList {
  static void* operator new(std::size_t size) {
    return size == sizeof(T) ? FreeList<spare_size(sizeof(T))>::take() : ::operator new(size);
  }
  /// Fetches the whole record into the caches before it is read.
  void fetch_ahead() const noexcept {
    const auto* at = reinterpret_cast<const std::byte*>(static_cast<const T*>(this));
    for (std::size_t i = 0; i < sizeof(T); i += 64) __builtin_prefetch(at + i, 1);
  }
  /// Makes sure that the next `new T` of this thread does not throw. Throws bad_alloc.
  static void ensure_spare() { FreeList<spare_size(sizeof(T))>::ensure(); }
  static void operator delete(void* at, std::size_t size) noexcept {
    if (size == sizeof(T))
      FreeList<spare_size(sizeof(T))>::give(at);
    else
      ::operator delete(at);
  }
};

/// An allocator for std::allocate_shared, which makes one record of object and counts.
template <class T>
struct FreeListAllocator {
  using value_type = T;
  FreeListAllocator() noexcept = default;
  template <class U>
  FreeListAllocator(const FreeListAllocator<U>&) noexcept {}
  T* allocate(std::size_t n) {
    if (n == 1) return static_cast<T*>(FreeList<spare_size(sizeof(T))>::take());
    return static_cast<T*>(::operator new(n * sizeof(T)));
  }
  void deallocate(T* at, std::size_t n) noexcept {
    if (n == 1)
      FreeList<spare_size(sizeof(T))>::give(at);
    else
      ::operator delete(at);
  }
  template <class U>
  bool operator==(const FreeListAllocator<U>&) const noexcept {
    return true;
  }
};

}  // namespace troupe::client
