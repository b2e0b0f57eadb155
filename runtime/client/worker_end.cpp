#include "troupe/runtime/client/worker_end.hpp"

#include "troupe/runtime/base/log.hpp"

#include <stdio_ext.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <iostream>

namespace troupe::client {
namespace {

/// Gives access to the put area of a buffer.
struct PutArea : std::streambuf {
  static bool has_bytes(const std::streambuf& buffer) {
    return (buffer.*(&PutArea::pptr))() != (buffer.*(&PutArea::pbase))();
  }
};

[[noreturn]] void kill_this_process() noexcept {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

/// Stops a thread of user code for which there is nothing left to do. Such a thread gets
/// Unavailable from each call of troupe, and seldom catches it.
[[noreturn]] void stop_thread() noexcept {
  if (::gettid() == ::getpid()) kill_this_process();
  for (;;) ::pause();
}

}  // namespace

WorkerOutput::WorkerOutput() noexcept : at_start_(std::cout.rdbuf()) {}

void WorkerOutput::pass_on() const noexcept {
  const std::streambuf* buffer = std::cout.rdbuf();
  if (buffer != nullptr && buffer == at_start_ && PutArea::has_bytes(*buffer)) {
    try {
      std::cout.flush();
    } catch (...) {  // the program asked its stream to throw
    }
  }
  if (__fpending(stdout) != 0 && __flbf(stdout) != 0) std::fflush(stdout);
}

void abandon_worker(bool busy) noexcept {
  std::set_terminate(stop_thread);
  if (!busy) return;
  // The call may hold the stream. The rest of a line is then lost, as in a crash.
  if (ftrylockfile(stdout) == 0) fflush_unlocked(stdout);
  kill_this_process();
}

void end_worker_in_order() {
  // This thread runs the handlers and one of them may hang, so the kernel keeps the bound.
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  itimerspec bound{};
  bound.it_value.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(kExitHandlers).count();
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
    timer_settime(timer, 0, &bound, nullptr);  // else the agent or the zygote ends this process
  std::exit(0);
}

void end_worker(int code) {
  std::fflush(nullptr);
  flush_log();
  _exit(code);
}

}  // namespace troupe::client
