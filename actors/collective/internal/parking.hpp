/// Waiting on a 32-bit word that threads or processes share: a short spin, then a futex.
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace troupe::collective::internal {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "words are shared by processes");
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

/// Rounds of a spin, about 10 µs. That is long enough to catch a rank that is about to arrive, and
/// short enough not to delay it when both share a core.
constexpr int kSpins = 200;
/// The longest sleep between two checks of the clock and of the other ranks' processes.
constexpr Duration kSlice = std::chrono::milliseconds(50);

inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Sleeps while word == seen, at most `limit`. May return early without a reason. The kernel
/// compares the word and sleeps in one step, so a change between the caller's read and this call is
/// not missed.
inline void park(std::atomic<std::uint32_t>& word, std::uint32_t seen, Duration limit) noexcept {
  timespec time{};
  time.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
  time.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

inline void unpark_all(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace troupe::collective::internal
