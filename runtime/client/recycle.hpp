/// Memory for the small records that come and go with every call: what is freed is kept for the
/// next of its kind, instead of being sorted back into the heap.
///
///     struct Task : Recycled<Task> {…};                    // new and delete
///     auto bytes = std::allocate_shared<Stored>(RecyclingAllocator<Stored>());
///
/// Each thread keeps what it freed, at most kKept records of a size; the rest goes to the heap,
/// from which every record came. So a record may be freed by another thread than made it.
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <utility>

namespace troupe::client {

/// Blocks of one size. Not for two threads.
template <std::size_t size>
class Spare {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kKept = 0;  // or it could not see that a freed record is used
#else
  static constexpr std::size_t kKept = 1024;
#endif
  static void* take() {
    State& mine = state();
    if (mine.first == nullptr) return ::operator new(size);
    Block* block = mine.first;
    mine.first = block->next;
    --mine.count;
    return block;
  }
  static void give(void* at) noexcept {
    State& mine = state();
    if (mine.count >= mine.limit && !first_of_thread(mine)) return ::operator delete(at);
    auto* block = static_cast<Block*>(at);
    block->next = mine.first;
    mine.first = block;
    ++mine.count;
  }

 private:
  static_assert(size >= sizeof(void*));
  struct Block {
    Block* next;
  };
  /// Neither constructed nor destroyed: then no use of it asks whether it is, which takes a call
  /// into the loader for a flag of the compiler's.
  struct State {
    Block* first;
    std::size_t count;
    std::size_t limit;
    bool known;
  };
  /// Frees what its thread has kept.
  struct Last {
    ~Last() {
      State& mine = state();
      mine.limit = 0;  // what is freed later in the thread's end goes to the heap
      while (mine.first != nullptr) {
        Block* block = mine.first;
        mine.first = block->next;
        ::operator delete(block);
      }
    }
  };
  /// True: from now on the thread keeps records.
  [[gnu::noinline]] static bool first_of_thread(State& mine) noexcept {
    if (std::exchange(mine.known, true)) return false;
    static thread_local const Last last;
    (void)&last;
    mine.limit = kKept;
    return kKept != 0;
  }
  static State& state() noexcept {
    // Found without a call into the loader, unlike what a library's thread_local is by default.
    [[gnu::tls_model("initial-exec")]] static thread_local constinit State mine{};
    return mine;
  }
};

/// What the heap would give for it anyway: blocks lie 16 bytes apart, and eight of those are the
/// heap's.
constexpr std::size_t spare_size(std::size_t size) noexcept {
  return ((size + 8 + 15) & ~std::size_t{15}) - 8;
}

/// Gives T an operator new and delete of this kind. Precondition: T is final or has no larger
/// heirs.
template <class T>
struct Recycled {
  static void* operator new(std::size_t size) {
    return size == sizeof(T) ? Spare<spare_size(sizeof(T))>::take() : ::operator new(size);
  }
  static void operator delete(void* at, std::size_t size) noexcept {
    if (size == sizeof(T))
      Spare<spare_size(sizeof(T))>::give(at);
    else
      ::operator delete(at);
  }
};

/// For std::allocate_shared: one record with its counts.
template <class T>
struct RecyclingAllocator {
  using value_type = T;
  RecyclingAllocator() noexcept = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) noexcept {}
  T* allocate(std::size_t n) {
    if (n == 1) return static_cast<T*>(Spare<spare_size(sizeof(T))>::take());
    return static_cast<T*>(::operator new(n * sizeof(T)));
  }
  void deallocate(T* at, std::size_t n) noexcept {
    if (n == 1)
      Spare<spare_size(sizeof(T))>::give(at);
    else
      ::operator delete(at);
  }
  template <class U>
  bool operator==(const RecyclingAllocator<U>&) const noexcept {
    return true;
  }
};

}  // namespace troupe::client
