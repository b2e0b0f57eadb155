#include "troupe/runtime/base/process_mark.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <mutex>
#include <new>
#include <string>

namespace troupe {
namespace {

/// The word to wipe in a fork handler, for a kernel without MADV_WIPEONFORK (before 4.14, or an
/// emulated one).
std::atomic<std::uint32_t>* g_wiped_by_handler = nullptr;

void wipe() noexcept {
  g_wiped_by_handler->store(0, std::memory_order_relaxed);
}

}  // namespace

ProcessMark::Word* ProcessMark::page_ = nullptr;

/// Makes the page, which stays for the life of the process and its forks.
ProcessMark::Word* ProcessMark::make_page() {
  const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    throw OutOfMemory(Code::out_of_memory, "this process has no memory left for one page");
  auto* word = new (at) Word(0);
  if (madvise(at, size, MADV_WIPEONFORK) != 0) {
    g_wiped_by_handler = word;
    pthread_atfork(nullptr, nullptr, &wipe);
  }
  return word;
}

ProcessMark::ProcessMark() {
  static std::mutex mutex;
  static std::uint32_t last = 0;  // a fork continues its parent's count, so generations differ
  const std::lock_guard lock(mutex);
  if (page_ == nullptr) page_ = make_page();
  generation_ = page_->load(std::memory_order_relaxed);
  if (generation_ != 0) return;
  generation_ = ++last;
  page_->store(generation_, std::memory_order_relaxed);
}

Error ProcessMark::error_in_fork() {
  return Error(Code::invalid_argument,
               "this process (" + std::to_string(getpid()) +
                   ") was forked while its parent had a session. The session stays the parent's "
                   "alone, and nothing of troupe works here: call exec or _exit in such a child, "
                   "or fork before troupe::run",
               Outcome::not_executed);
}

}  // namespace troupe
