#include "troupe/runtime/client/actor_lease_timer.hpp"

#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/sleep_clock.hpp"
#include "troupe/runtime/base/wait.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>

namespace troupe::client {
namespace {

// Globals, because a signal handler reads them. Set before the timer exists; null when there is
// none.
std::atomic<const std::atomic<std::int64_t>*> g_word{nullptr};
std::atomic<timer_t> g_timer{};
int g_signal = 0;      // the timer's signal
pid_t g_actor_thread;  // the thread that it interrupts

timespec timespec_of(Duration time) noexcept {
  return {static_cast<std::time_t>(time.count() / 1'000'000'000),
          static_cast<long>(time.count() % 1'000'000'000)};
}

void set_alarm(Time at) noexcept {
  itimerspec when{};
  if (at != Time::max()) when.it_value = timespec_of(at.time_since_epoch());
  timer_settime(g_timer, TIMER_ABSTIME, &when, nullptr);
}

ActorLease actor_lease_now() noexcept {
  const auto* word = g_word.load(std::memory_order_relaxed);
  return actor_lease_at(word != nullptr ? word->load(std::memory_order_relaxed) : kServesAlways,
                        Time(up_time()));
}

/// The signal handler: holds the actor's thread until the lease is good. It may interrupt the
/// thread anywhere, so it calls only async-signal-safe functions.
void stand_still(int /*signal*/) {
  const int before = errno;
  ActorLease lease = actor_lease_now();
  while (!lease.may) {
    sleep_for(ActorLease::kShortest);
    lease = actor_lease_now();
  }
  set_alarm(lease.alarm);
  errno = before;
}

/// Takes a real-time signal that nothing in this process uses; 0: there is none. A thread that
/// blocks a signal may wait for it with sigwait, so unblocked signals come first. Blocked ones
/// come second, since a driver may have blocked all.
int take_signal() {
  sigset_t blocked;
  sigemptyset(&blocked);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (const int also_blocked : {0, 1})
    for (int signal = SIGRTMAX - 1; signal > SIGRTMIN; --signal) {
      if (sigismember(&blocked, signal) != also_blocked) continue;
      struct sigaction action{};
      if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
      action.sa_handler = stand_still;
      action.sa_flags = SA_RESTART;
      sigfillset(&action.sa_mask);
      if (sigaction(signal, &action, nullptr) == 0) return signal;
    }
  return 0;
}

bool is_still_ours(int signal) {
  struct sigaction action{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == stand_still;
}

bool make_timer() {
  g_signal = take_signal();
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = g_signal;
  event._sigev_un._tid = g_actor_thread;
  timer_t made{};
  if (g_signal == 0 || timer_create(CLOCK_BOOTTIME, &event, &made) != 0) {
    log_line("no timer for an actor: it does not notice when its agent hangs");
    g_word = nullptr;
    return false;
  }
  g_timer = made;
  return true;
}

}  // namespace

void ActorLeaseTimer::begin(const std::atomic<std::int64_t>& word, Time now) {
  if (g_word != nullptr || word.load(std::memory_order_relaxed) == kServesAlways) return;
  g_word = &word;
  g_actor_thread = static_cast<pid_t>(syscall(SYS_gettid));
  if (!make_timer()) return;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, g_signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  next_look_ = now;
  look(now);
}

ActorLeaseTimer::~ActorLeaseTimer() {
  if (g_word.exchange(nullptr) != nullptr) timer_delete(g_timer);
}

Time ActorLeaseTimer::look(Time now) noexcept {
  if (now < next_look_) return next_look_;
  // The program handles that signal now: take another.
  if (g_word != nullptr && !is_still_ours(g_signal)) {
    timer_delete(g_timer);
    make_timer();
  }
  const ActorLease lease = actor_lease_now();
  set_alarm(lease.alarm);
  if (lease.look == Time::max()) return next_look_ = Time::max();
  return next_look_ = now + (lease.look - Time(up_time()));
}

}  // namespace troupe::client
