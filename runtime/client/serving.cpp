#include "troupe/runtime/client/serving.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>

namespace troupe::client {
namespace {

constexpr Duration kShortest = std::chrono::milliseconds(10);

// The handler's; set before the timer exists, null again when it is no more.
std::atomic<const std::atomic<std::int64_t>*> g_word{nullptr};
timer_t g_timer{};

timespec timespec_of(Duration time) noexcept {
  return {static_cast<std::time_t>(time.count() / 1'000'000'000),
          static_cast<long>(time.count() % 1'000'000'000)};
}

void set_alarm(Time at) noexcept {
  itimerspec when{};
  if (at != Time::max()) when.it_value = timespec_of(at.time_since_epoch());
  timer_settime(g_timer, TIMER_ABSTIME, &when, nullptr);
}

Serving serving_now(Time now) noexcept {
  const auto* word = g_word.load(std::memory_order_relaxed);
  return serving_at(word != nullptr ? word->load(std::memory_order_relaxed) : kServesAlways, now);
}

/// On the actor's thread, wherever it is: only what is allowed in a handler.
void stand_still(int) {
  const int before = errno;
  Serving serving = serving_now(steady_now());
  while (!serving.may) {
    const timespec wait = timespec_of(kShortest);
    nanosleep(&wait, nullptr);
    serving = serving_now(steady_now());
  }
  set_alarm(serving.alarm);
  errno = before;
}

/// One that nobody has a use for here; 0: there is none.
int take_signal() {
  for (int signal = SIGRTMAX - 1; signal > SIGRTMIN; --signal) {
    struct sigaction action{};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = stand_still;
    action.sa_flags = SA_RESTART;
    sigfillset(&action.sa_mask);
    if (sigaction(signal, &action, nullptr) == 0) return signal;
  }
  return 0;
}

bool make_timer(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = signal;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  return timer_create(CLOCK_MONOTONIC, &event, &g_timer) == 0;
}

}  // namespace

Serving serving_at(std::int64_t word, Time now) noexcept {
  if (word == kServesAlways) return {true, Time::max(), Time::max()};
  const Time until{Duration(word)};
  if (until <= now) return {false, now + kShortest, now + kShortest};
  return {true, until, now + std::max<Duration>((until - now) / 2, kShortest)};
}

void ServingWatch::begin(const std::atomic<std::int64_t>& word, Time now) {
  if (g_word != nullptr || word.load(std::memory_order_relaxed) == kServesAlways) return;
  g_word = &word;
  const int signal = take_signal();
  if (signal == 0 || !make_timer(signal)) {
    std::fprintf(stderr,
                 "troupe: no timer for an actor: it does not notice when its agent hangs\n");
    g_word = nullptr;
    return;
  }
  next_look_ = now;
  look(now);
}

ServingWatch::~ServingWatch() {
  if (next_look_ == Time::max()) return;
  g_word = nullptr;
  timer_delete(g_timer);
}

Time ServingWatch::look(Time now) noexcept {
  if (now < next_look_) return next_look_;
  const Serving serving = serving_now(now);
  set_alarm(serving.alarm);
  return next_look_ = serving.look;
}

}  // namespace troupe::client
