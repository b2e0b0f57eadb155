#include "troupe/runtime/client/pump.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <algorithm>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// How long the I/O thread leaves the doorbell to a thread that has just waited.
constexpr Duration kHandOver = 1ms;
/// Longer than a wake-up across virtual CPUs (about 32 us): a shorter spin would make both sides of
/// a conversation park for ever, each waiting out the wake-up of the other.
constexpr Duration kSpin = 75us;

/// The CPUs that we may use are counted again once in so many sleeps.
constexpr std::uint32_t kLookAtCpus = 16;

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace

Pump::Pump(Host& host, ring::Doorbell& bell, EngineLock& lock)
    : host_(host),
      bell_(bell),
      lock_(lock),
      spin_(usable_cpus() > 1 ? kSpin : Duration(0)),
      kick_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Pump::~Pump() {
  TROUPE_ASSERT(!io_.joinable(), "a pump is stopped before it is destroyed");
}

void Pump::start() {
  io_ = std::thread([this] { io_loop(); });
  pthread_setname_np(io_.native_handle(), "troupe-io");
}

void Pump::stop() {
  {
    const std::lock_guard guard(lock_);
    stopping_ = true;
    changed_.notify_all();
  }
  hand_to_io();
  bell_.nudge();
  const std::uint64_t one = 1;
  [[maybe_unused]] auto n = ::write(kick_.get(), &one, sizeof one);
  n = ::write(bell_.event_fd(), &one, sizeof one);
  if (io_.joinable()) io_.join();
}

void Pump::poll_until(Time until, bool io) {
  pollfd set[3] = {
      {bell_.event_fd(), POLLIN, 0},
      {host_.socket_fd(), static_cast<short>(host_.wants_write() ? POLLIN | POLLOUT : POLLIN), 0},
      {kick_.get(), POLLIN, 0}};
  // Without a timeout the kernel sets no timer, which costs as much as the sleep itself.
  const bool bounded = until != Time::max();
  const Duration left =
      bounded ? std::clamp<Duration>(until - steady_now(), Duration(0), Duration(1h)) : Duration(0);
  const timespec limit{static_cast<time_t>(left.count() / 1'000'000'000),
                       static_cast<long>(left.count() % 1'000'000'000)};
  if (ppoll(set, io ? 3 : 2, bounded ? &limit : nullptr, nullptr) > 0 && set[1].revents != 0)
    host_.socket_ready();
}

/// Under the lock: whoever clears io_on_bell_ ends the sleep, so that the announcement of one
/// thread is never taken back by the other.
void Pump::take_over_from_io() {
  if (!io_on_bell_) return;
  io_on_bell_ = false;
  bell_.finish_sleep();
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(kick_.get(), &one, sizeof one);
}

void Pump::hand_to_io() {
  if (!io_idle_.exchange(false, std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(kick_.get(), &one, sizeof one);
}

void Pump::assist() {
  if (leading_ || !bell_.pending()) return;
  take_over_from_io();
  const Time now = steady_now();
  host_.drain(now);
  last_led_.store(now.time_since_epoch().count(), std::memory_order_seq_cst);
  if (followers_ > 0) changed_.notify_all();
}

bool Pump::wait(Guard& guard, const std::function<bool()>& done, Time deadline) {
  for (;;) {
    if (done()) return true;
    if (stopping_.load(std::memory_order_relaxed)) return false;
    if (!leading_) return lead(guard, done, deadline);
    if (steady_now() >= deadline) return false;
    ++followers_;
    const Duration left = std::min<Duration>(deadline - steady_now(), 1h);
    changed_.wait_for(guard, left);
    --followers_;
  }
}

bool Pump::lead(Guard& guard, const std::function<bool()>& done, Time deadline) {
  leading_ = true;
  take_over_from_io();
  bool result = false;
  Time now = led_since_ = steady_now();
  for (;; now = steady_now()) {
    const Time timer = host_.drain(now);
    if ((result = done()) || stopping_.load(std::memory_order_relaxed) || now >= deadline) break;
    guard.unlock();
    const Time spin_end = now + spin_;
    bool pending = bell_.pending() || host_.has_leftovers();
    while (!pending && spin_ > Duration(0) && (now = steady_now()) < spin_end) {
      for (int i = 0; i < 32 && !pending; ++i) {
        __builtin_ia32_pause();
        pending = bell_.pending();
      }
    }
    // The program may have been pinned meanwhile: spinning on the peer's CPU only holds it up.
    if (!pending && ++sleeps_ % kLookAtCpus == 0) spin_ = usable_cpus() > 1 ? kSpin : Duration(0);
    if (!pending && bell_.prepare_sleep()) {
      if (!stopping_.load(std::memory_order_seq_cst)) poll_until(std::min(timer, deadline), false);
      bell_.finish_sleep();
    }
    guard.lock();
  }
  leading_ = false;
  last_led_.store(now.time_since_epoch().count(), std::memory_order_seq_cst);
  hand_to_io();
  if (followers_ > 0) changed_.notify_all();
  return result;
}

void Pump::io_loop() {
  while (!stopping_.load(std::memory_order_seq_cst)) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto n = ::read(kick_.get(), &count, sizeof count);
    Guard guard(lock_);
    const Time now = steady_now();
    const Time last(Duration(last_led_.load(std::memory_order_seq_cst)));
    if (leading_ || now - last < kHandOver) {
      // Somebody else looks at the doorbell, or did a moment ago.
      // Only a long wait is worth a kick at its end: kicked after each of many short ones, this
      // thread would take part in every call (on one CPU that tripled its time).
      const bool deep = leading_ && now - led_since_ >= kHandOver;
      io_idle_.store(deep, std::memory_order_seq_cst);
      guard.unlock();
      pollfd entry{kick_.get(), POLLIN, 0};
      const timespec tick{0, 1'000'000};
      // A leader kicks us when it leaves wait(), if we said that we are idle.
      ppoll(&entry, 1, deep ? nullptr : &tick, nullptr);
      continue;
    }
    const Time timer = host_.drain(now);
    if (followers_ > 0) changed_.notify_all();
    if (stopping_.load(std::memory_order_seq_cst) || !bell_.prepare_sleep()) continue;
    io_on_bell_ = true;
    guard.unlock();
    if (!host_.has_leftovers()) poll_until(timer, true);
    guard.lock();
    if (io_on_bell_) {
      io_on_bell_ = false;
      bell_.finish_sleep();
    }
  }
}

}  // namespace troupe::client
