/// A fast heap for the programs that simulate. A schedule makes and frees tens of thousands of
/// small objects. They come from free lists here, one list per size and thread, which is cheaper
/// than malloc. No memory returns to the system, since a child of the harness ends after some
/// tens of seeds. Builds with a sanitizer keep the sanitizer's heap.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <sys/mman.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

constexpr std::size_t kStep = 16, kLargest = 512, kClasses = kLargest / kStep + 1;
constexpr std::size_t kPage = 64 << 10, kPages = 1 << 16;

struct Block {
  Block* next;
};

/// The address range of all pages. It is reserved for the first page, and the kernel provides
/// memory at the first touch.
struct Area {
  char* begin = nullptr;
  std::atomic<std::size_t> taken{0};
  std::array<std::uint8_t, kPages> size_class{};  ///< by page: the size of its blocks
};
constinit Area area;

/// Returns the number of a new page, or kPages when none is left.
std::size_t take_page() {
  static char* const begin = [] {
    void* const at = mmap(nullptr, kPage * kPages, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    area.begin = at == MAP_FAILED ? nullptr : static_cast<char*>(at);
    return area.begin;
  }();
  return begin == nullptr ? kPages : std::min(area.taken.fetch_add(1), kPages);
}

struct Heap {
  std::array<Block*, kClasses> free{};
  std::array<char*, kClasses> at{}, end{};  ///< by size: the untouched rest of the newest page
};
constinit thread_local Heap heap;

void* from_system(std::size_t size) {
  if (void* const at = std::malloc(size)) return at;
  throw std::bad_alloc();
}

void* from_page(std::size_t size_class) {
  const std::size_t size = size_class * kStep;
  if (heap.end[size_class] - heap.at[size_class] < static_cast<std::ptrdiff_t>(size)) {
    const std::size_t page = take_page();
    if (page == kPages) return from_system(size);
    area.size_class[page] = static_cast<std::uint8_t>(size_class);
    heap.at[size_class] = area.begin + page * kPage;
    heap.end[size_class] = heap.at[size_class] + kPage;
  }
  return std::exchange(heap.at[size_class], heap.at[size_class] + size);
}

}  // namespace

void* operator new(std::size_t size) {
  if (size > kLargest) return from_system(size);
  const std::size_t size_class = size == 0 ? 1 : (size + kStep - 1) / kStep;
  Block*& first = heap.free[size_class];
  if (first == nullptr) return from_page(size_class);
  return std::exchange(first, first->next);
}

void operator delete(void* at) noexcept {
  const auto offset = static_cast<std::size_t>(static_cast<char*>(at) - area.begin);
  if (area.begin == nullptr || offset >= kPage * kPages) return std::free(at);
  Block*& first = heap.free[area.size_class[offset / kPage]];
  first = new (at) Block{first};
}
void operator delete(void* at, std::size_t) noexcept {
  operator delete(at);
}

#endif
