/// The slow half of EngineLock: threads that sleep until it is free. A program that simulates
/// machines defines these two functions itself.
#include "troupe/runtime/client/lock.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe::client {
namespace {

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) noexcept {
  syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

}  // namespace

void EngineLock::wait() noexcept {
  while (state_.exchange(kWaitedFor, std::memory_order_acquire) != kFree)
    futex(state_, FUTEX_WAIT_PRIVATE, kWaitedFor);
}

void EngineLock::wake_one() noexcept {
  futex(state_, FUTEX_WAKE_PRIVATE, 1);
}

}  // namespace troupe::client
