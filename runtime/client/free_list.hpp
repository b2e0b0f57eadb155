/// Memory for the small records that come and go with every call: what is freed is kept for the
/// next of its kind, instead of being sorted back into the heap.
///
///     struct Task : FromFreeList<Task> {…};                    // new and delete
///     auto bytes = std::allocate_shared<Stored>(FreeListAllocator<Stored>());
///
/// Each thread keeps what it freed, up to two batches of records of a size. More goes, a batch at a
/// time, to where every thread looks before it asks the heap: at most kShared bytes of a size,
/// which the program had in use at once. What is beyond that goes back to the heap, from which
/// every record came. So a record may be freed by another thread than made it, and who makes many
/// again finds memory that has been touched: on a virtual machine that is half of what a small
/// object costs.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

namespace troupe::client {

/// Blocks of one size. Not for two threads.
template <std::size_t size>
class FreeList {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kBatch = 0;  // or it could not see that a freed record is used
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
  /// The next take() of this thread finds one. Throws bad_alloc.
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
    Block* next_batch;  ///< of the first of a batch that all threads share
  };
  static_assert(size >= sizeof(Block));
  /// Those that were freed long ago have left the caches, and all of a record is written at once.
  static void fetch_ahead(const Block* block) noexcept {
    const auto* at = reinterpret_cast<const std::byte*>(block);
    for (std::size_t i = 0; i < size; i += 64) __builtin_prefetch(at + i, 1);
  }
  /// Neither constructed nor destroyed: then no use of it asks whether it is, which takes a call
  /// into the loader for a flag of the compiler's.
  struct State {
    Block* first;
    std::size_t count;
    std::size_t limit;
    Block* batch;  ///< a whole one, or nullptr
    bool known;
  };
  /// Frees what its thread has kept.
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
  /// Batches that any thread may take. Nobody waits here, for whoever is inside may never come out:
  /// a forked process has none of the other threads. The heap does as well.
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
  /// False: the thread ends, or nothing is kept.
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
    // Found without a call into the loader, unlike what a library's thread_local is by default.
    [[gnu::tls_model("initial-exec")]] static thread_local constinit State mine{};
    return mine;
  }
  static inline constinit Shared shared_{};
};

/// What the heap would give for it anyway: blocks lie 16 bytes apart, and eight of those are the
/// heap's.
constexpr std::size_t spare_size(std::size_t size) noexcept {
  return ((size + 8 + 15) & ~std::size_t{15}) - 8;
}

/// Gives T an operator new and delete of this kind. Precondition: T is final or has no larger
/// class derived from it.
template <class T>
struct FromFreeList {
  static void* operator new(std::size_t size) {
    return size == sizeof(T) ? FreeList<spare_size(sizeof(T))>::take() : ::operator new(size);
  }
  /// All of it is read soon.
  void fetch_ahead() const noexcept {
    const auto* at = reinterpret_cast<const std::byte*>(static_cast<const T*>(this));
    for (std::size_t i = 0; i < sizeof(T); i += 64) __builtin_prefetch(at + i, 1);
  }
  /// The next `new T` of this thread does not throw.
  static void ensure_spare() { FreeList<spare_size(sizeof(T))>::ensure(); }
  static void operator delete(void* at, std::size_t size) noexcept {
    if (size == sizeof(T))
      FreeList<spare_size(sizeof(T))>::give(at);
    else
      ::operator delete(at);
  }
};

/// For std::allocate_shared: one record with its counts.
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
