#include "troupe/runtime/os/early_output.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cstdio>
#include <iostream>
#include <utility>

namespace troupe::os {
namespace {

int g_own = -1;   // standard output of the process
int g_sink = -1;  // what stands at its number meanwhile

/// Returns whether both descriptors come from one open(): they share their status flags.
bool is_same_opening(int one, int other) noexcept {
  const int flags = fcntl(one, F_GETFL);
  const int before = fcntl(other, F_GETFL);
  if (flags < 0 || before < 0 || fcntl(one, F_SETFL, flags ^ O_APPEND) != 0) return false;
  const int after = fcntl(other, F_GETFL);
  fcntl(one, F_SETFL, flags);
  return after != before;
}

template <class Stream>
void flush(Stream& stream) noexcept {
  try {
    stream.flush();
  } catch (...) {  // the program asked its stream to throw
  }
}

}  // namespace

void drop_early_output() noexcept {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Fd own(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  Fd sink = make_fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!own || !sink || ::dup2(sink.get(), STDOUT_FILENO) < 0) return;
  g_own = own.release();
  g_sink = sink.release();
}

void end_early_output() noexcept {
  if (g_sink < 0) return;
  flush(std::cout);
  flush(std::wcout);
  flush(std::clog);
  flush(std::wclog);
  std::fflush(
      stdout);  // not all streams: another thread may wait for input, with its stream locked
  const Fd own(std::exchange(g_own, -1));
  const Fd sink(std::exchange(g_sink, -1));
  if (is_same_opening(sink.get(), STDOUT_FILENO)) ::dup2(own.get(), STDOUT_FILENO);
}

}  // namespace troupe::os
