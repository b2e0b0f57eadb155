// Tests that freed records serve later allocations in any thread, up to a bound.
#include "troupe/runtime/client/free_list.hpp"
#include "tests/eventually.hpp"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

namespace troupe::client {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

template <std::size_t size>
std::vector<void*> taken(std::size_t n) {
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < n; ++i) blocks.push_back(FreeList<size>::take());
  return blocks;
}
template <std::size_t size>
void given(const std::vector<void*>& blocks) {
  for (void* block : blocks) FreeList<size>::give(block);
}

/// Returns the bytes that malloc has handed out.
std::size_t in_use() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(FreeListTest, WhatOneThreadFreedServesAnother) {
  if (!kKeeps) GTEST_SKIP() << "nothing is kept under this sanitizer";
  constexpr std::size_t kSize = 1000, kBatches = 8, kMany = kBatches * FreeList<kSize>::kBatch;
  const auto first = taken<kSize>(kMany);
  given<kSize>(first);
  std::size_t again = 0;
  std::thread other([&] {
    const std::set<void*> known(first.begin(), first.end());
    const auto second = taken<kSize>(kMany);
    for (void* block : second) again += known.count(block);
    given<kSize>(second);
  });
  other.join();
  EXPECT_EQ(again, kMany - 2 * FreeList<kSize>::kBatch) << "all but what the first thread keeps";
}

TEST(FreeListTest, WhatIsBeyondTheBoundGoesBackToTheHeap) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's heap says nothing";
#endif
  constexpr std::size_t kSize = 2000, kMany = 20'000;
  std::vector<void*> blocks = taken<kSize>(kMany);
  const std::size_t most = in_use();
  given<kSize>(blocks);
  // Two batches stay with this thread. A block of the heap is 16 bytes larger than its record.
  constexpr std::size_t kStays = FreeList<kSize>::kShared + 2 * FreeList<kSize>::kBatch * kSize;
  EXPECT_GE(most - in_use(), kMany * kSize - kStays * 102 / 100);
  EXPECT_LE(most - in_use(), kMany * kSize - kStays * 9 / 10);
}

TEST(FreeListTest, AThreadThatEndsKeepsNothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's heap says nothing";
#endif
  constexpr std::size_t kSize = 3000, kMany = 2 * FreeList<kSize>::kBatch;
  const std::size_t before = in_use();
  std::thread([] { given<kSize>(taken<kSize>(kMany)); }).join();  // all stay with that thread
  EXPECT_LT(in_use(), before + kMany * kSize / 10);
}

/// A thread that is held up while it writes to the first block of a batch that it shares. The
/// second word of that block lies on a page that cannot be written to.
class HeldUpInside {
 public:
  static constexpr std::size_t kSize = 1200, kPage = 4096;
  HeldUpInside() {
    inside_ = go_on_ = false;
    pages_ = static_cast<std::byte*>(
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(pages_ + kPage, kPage, PROT_NONE);
    struct sigaction action{};
    action.sa_handler = [](int) {
      inside_ = true;
      for (int i = 0; !go_on_ && i < 300'000; ++i) usleep(100);  // half a minute at most
      mprotect(pages_ + kPage, kPage, PROT_READ | PROT_WRITE);
    };
    sigaction(SIGSEGV, &action, &before_);
    thread_ = std::thread([] {
      constexpr std::size_t kBatch = FreeList<kSize>::kBatch;
      void* const block = pages_ + kPage - sizeof(void*);
      auto blocks = taken<kSize>(2 * kBatch);
      blocks.insert(blocks.begin() + kBatch - 1, block);  // the last of a batch becomes its first
      given<kSize>(blocks);
      for (void* again : taken<kSize>(blocks.size()))
        if (again != block) ::operator delete(again);
    });
    held_ = eventually([] { return inside_.load(); });
  }
  ~HeldUpInside() {
    go_on_ = true;
    thread_.join();
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(pages_, 2 * kPage);
  }
  bool held() const { return held_; }

 private:
  static inline std::byte* pages_ = nullptr;
  static inline std::atomic<bool> inside_{false}, go_on_{false};
  struct sigaction before_{};
  bool held_ = false;
  std::thread thread_;
};

TEST(FreeListTest, AProcessForkedWhileAThreadSharesABatchGoesOn) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer wants to hear of a fault first";
#endif
  const HeldUpInside other;
  ASSERT_TRUE(other.held());
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    constexpr std::size_t kSize = HeldUpInside::kSize;
    given<kSize>(taken<kSize>(4 * FreeList<kSize>::kBatch));
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "it waited for a thread that it does not have";
}

}  // namespace
}  // namespace troupe::client
