#include "troupe/runtime/client/io_loop.hpp"

#include "troupe/runtime/base/machine.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// How long the I/O thread leaves the doorbell to a thread that has just waited.
constexpr Duration kHandOver = 1ms;
/// How long a leader spins. Must exceed a wake-up across virtual CPUs. With a shorter spin both
/// sides of a conversation would sleep each time, each waiting out the other's wake-up.
constexpr Duration kSpin = 75us;

/// The number of sleeps after which worth_spinning() is asked again.
constexpr std::uint32_t kLookAtCpus = 16;

/// A busy leader reads the clock once in so many turns.
constexpr std::uint32_t kTurnsPerClock = 16;

/// What woke a thread.
enum : std::uint32_t { kBell, kSocket, kKick };

/// Waits for events and returns their number, or 0 at the time `until`.
int wait_for(int set, std::span<epoll_event> events, Time until) {
  const int room = static_cast<int>(events.size());
  // Without a timeout the kernel sets no timer.
  if (until == Time::max()) return epoll_wait(set, events.data(), room, -1);
  const Duration left = std::clamp<Duration>(until - steady_now(), Duration(0), Duration(1h));
#if defined(SYS_epoll_pwait2)
  static std::atomic<bool> missing{false};
  if (!missing.load(std::memory_order_relaxed)) {
    const std::int64_t limit[2] = {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    const long n = syscall(SYS_epoll_pwait2, set, events.data(), room, limit, nullptr, 0);
    if (n >= 0 || errno == EINTR) return static_cast<int>(n);
    missing.store(true, std::memory_order_relaxed);  // an old kernel, or a filter
  }
#endif
  return epoll_wait(set, events.data(), room,
                    static_cast<int>((left.count() + 999'999) / 1'000'000));
}

}  // namespace

IoLoop::IoLoop(Host& host, ring::Doorbell& bell, EngineLock& lock)
    : host_(host),
      bell_(bell),
      lock_(lock),
      spin_(worth_spinning() ? kSpin : Duration(0)),
      kick_(make_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      leader_wait_set_(make_wait_set()),
      io_wait_set_(make_wait_set()) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = kKick;
  epoll_ctl(io_wait_set_.set.get(), EPOLL_CTL_ADD, kick_.get(), &event);
}

IoLoop::~IoLoop() {
  TROUPE_ASSERT(!io_.joinable(), "an I/O loop is stopped before it is destroyed");
}

void IoLoop::start() {
  io_ = SignalMaskedThread("troupe-io", [this] { io_loop(); });
}

void IoLoop::stop() {
  {
    const std::lock_guard guard(lock_);
    stopping_ = true;
    changed_.notify_all();
  }
  hand_to_io();
  bell_.wake_sleeper();
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(kick_.get(), &one, sizeof one);
  bell_.wake();
  if (io_.joinable()) io_.join();
}

IoLoop::WaitSet IoLoop::make_wait_set() const {
  WaitSet wait_set;
  wait_set.set = make_fd(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u32 = kBell;
  if (!wait_set.set || epoll_ctl(wait_set.set.get(), EPOLL_CTL_ADD, bell_.event_fd(), &event) != 0)
    raise(Error(Code::out_of_memory,
                "this process has no descriptors left to wait with: raise the limit of open files "
                "(ulimit -n)"));
  watch_socket(wait_set, EPOLL_CTL_ADD, true, false);
  return wait_set;
}

void IoLoop::watch_socket(WaitSet& wait_set, int operation, bool reads, bool writes) const {
  epoll_event event{};
  if (reads) event.events |= EPOLLIN;
  if (writes) event.events |= EPOLLOUT;
  event.data.u32 = kSocket;
  epoll_ctl(wait_set.set.get(), operation, host_.socket_fd(), &event);  // fails once that is closed
  wait_set.reads = reads;
  wait_set.writes = writes;
}

void IoLoop::forget_socket() noexcept {
  // A closed socket stays readable: a thread that sleeps on it would never sleep again.
  for (const WaitSet* wait_set : {&leader_wait_set_, &io_wait_set_})
    epoll_ctl(wait_set->set.get(), EPOLL_CTL_DEL, host_.socket_fd(), nullptr);
}

/// Sleeps until an event or the time. Returns whether the doorbell's event was written. If so,
/// the writer takes back our announcement that we sleep (or the next writer does, if that event
/// was a late one). Otherwise the announcement still stands.
bool IoLoop::sleep_until(WaitSet& wait_set, Time until) {
  const bool reads = host_.wants_read(), writes = host_.wants_write();
  if (reads != wait_set.reads || writes != wait_set.writes)
    watch_socket(wait_set, EPOLL_CTL_MOD, reads, writes);
  std::array<epoll_event, 3> events;
  bool rung = false;
  for (int i = wait_for(wait_set.set.get(), events, until); i > 0; --i) {
    const std::uint32_t what = events[static_cast<std::size_t>(i - 1)].data.u32;
    if (what == kBell) rung = true;
    if (what == kSocket) host_.socket_ready();
  }
  return rung;
}

/// Ends the I/O thread's sleep on the doorbell, so that the calling thread can lead. Under the
/// lock. The thread that clears io_on_bell_ ends the sleep; otherwise one thread could take back
/// the other's announcement.
void IoLoop::take_over_from_io() {
  if (!io_on_bell_) return;
  io_on_bell_ = false;
  bell_.finish_sleep();
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(kick_.get(), &one, sizeof one);
}

/// Returns whether a leader should spin. With one CPU for both sides, spinning only holds up the
/// peer. Two processes that are each pinned to a CPU of their own also see one CPU each, so the
/// peer's CPU counts, too.
bool IoLoop::worth_spinning() const {
  return affine_cpus() > 1 || host_.peer_elsewhere();
}

void IoLoop::hand_to_io() {
  if (!io_idle_.load(std::memory_order_relaxed)) return;  // mostly; set under the lock
  if (!io_idle_.exchange(false, std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(kick_.get(), &one, sizeof one);
}

void IoLoop::assist() {
  ++assists_;
  if (leading_ || !bell_.pending() || stopping_.load(std::memory_order_relaxed)) return;
  take_over_from_io();
  const Time now = steady_now();
  host_.drain(now);
  last_led_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  if (followers_ > 0) changed_.notify_all();
}

/// The lock of a follower while it waits.
struct IoLoop::Following {
  IoLoop& loop;
  Guard& guard;

  void lock() { guard.lock(); }
  void unlock() {
    guard.unlock();
    loop.wake_for_leftovers();
  }
};

bool IoLoop::wait(Guard& guard, const std::function<bool()>& done, Time deadline, Time now) {
  for (;;) {
    if (done()) return true;
    if (stopping_.load(std::memory_order_relaxed)) return false;
    if (now == Time{}) now = steady_now();
    if (!leading_) return lead(guard, done, deadline, now);
    if (now >= deadline) return false;
    ++followers_;
    Following following{*this, guard};
    changed_.wait_for(following, std::min<Duration>(deadline - now, 1h));
    --followers_;
    now = waited_until_ = steady_now();
  }
}

bool IoLoop::lead(Guard& guard, const std::function<bool()>& done, Time deadline, Time now) {
  leading_ = true;
  take_over_from_io();
  bool result = false;
  led_since_ = now;
  bool spun_once = false;  // spun without success: only look once more before sleeping
  for (std::uint32_t turn = 1;; ++turn) {
    if (stopping_.load(std::memory_order_relaxed)) {  // nothing is handled any more
      result = done();
      break;
    }
    const Time timer = host_.drain(now);
    if ((result = done()) || now >= deadline) break;
    if (spin_ > Duration(0) && host_.watch_peer()) spun_once = false;
    away_ = true;
    sleeps_until_ = std::min(timer, deadline);
    guard.unlock();
    const Time spin_end = spun_once ? now : now + spin_;
    bool pending = bell_.pending() || host_.has_leftovers();
    while (!pending && spin_ > Duration(0) && (now = steady_now()) < spin_end) {
      for (int i = 0; i < 32 && !pending; ++i) {
        __builtin_ia32_pause();
        pending = bell_.pending() || called_.load(std::memory_order_relaxed);
      }
    }
    const bool sleeps = !pending && bell_.prepare_sleep();
    spun_once = !pending && !sleeps;
    // The flags are checked after the announcement. A thread that sets one then wakes the
    // doorbell, so either this thread sees the flag or that one sees the announcement. The same
    // holds for work that other threads left (wake_for_leftovers()).
    const bool rung = sleeps && !stopping_.load(std::memory_order_seq_cst) &&
                      !called_.load(std::memory_order_seq_cst) && !host_.has_leftovers() &&
                      sleep_until(leader_wait_set_, std::min(timer, deadline));
    // Without a ring nobody took our announcement back.
    if (sleeps && !rung) bell_.finish_sleep();
    if (!pending || turn % kTurnsPerClock == 0) now = steady_now();
    guard.lock();
    // The program or the peer may have been pinned meanwhile.
    if (!pending && ++sleeps_ % kLookAtCpus == 0) spin_ = worth_spinning() ? kSpin : Duration(0);
    away_ = false;
    called_.store(false, std::memory_order_relaxed);
    // Mostly the watched peer's reply ends the wait. Other work is done when this thread waits
    // next, while the peer works.
    if (pending && host_.drain_watched(now) && (result = done())) break;
  }
  leading_ = false;
  waited_until_ = now;
  last_led_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  hand_to_io();
  if (followers_ > 0) changed_.notify_all();
  return result;
}

bool IoLoop::left_to_others(bool leads, bool assisted, Duration since_led,
                            Duration overdue) noexcept {
  return leads || since_led < kHandOver || (assisted && overdue < kHandOver);
}

void IoLoop::io_loop() {
  std::uint32_t assists = 0;
  while (!stopping_.load(std::memory_order_seq_cst)) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto n = ::read(kick_.get(), &count, sizeof count);
    Guard guard(lock_);
    const Time now = steady_now();
    const Time last(Duration(last_led_.load(std::memory_order_relaxed)));
    const bool assisted = std::exchange(assists, assists_) != assists_;
    if (left_to_others(leading_, assisted, now - last, now - host_.next_timer())) {
      // Only a long wait is worth a kick at its end. If each of many short waits kicked this
      // thread, it would take part in every call.
      const bool deep = leading_ && now - led_since_ >= kHandOver;
      io_idle_.store(deep, std::memory_order_seq_cst);
      guard.unlock();
      if (deep) wake_for_leftovers();  // in other cases this thread looks again in 1 ms
      pollfd entry{kick_.get(), POLLIN, 0};
      const timespec tick{0, 1'000'000};
      // A leader kicks this thread when it leaves wait() and io_idle_ is set.
      ppoll(&entry, 1, deep ? nullptr : &tick, nullptr);
      continue;
    }
    const Time timer = std::min(host_.drain(now), host_.aside(now));
    if (followers_ > 0) changed_.notify_all();
    if (stopping_.load(std::memory_order_seq_cst) || !bell_.prepare_sleep()) continue;
    io_on_bell_ = true;
    sleeps_until_ = timer;
    guard.unlock();
    const bool rung = !host_.has_leftovers() && sleep_until(io_wait_set_, timer);
    guard.lock();
    if (io_on_bell_) {
      io_on_bell_ = false;
      if (!rung) bell_.finish_sleep();
    }
  }
}

}  // namespace troupe::client
