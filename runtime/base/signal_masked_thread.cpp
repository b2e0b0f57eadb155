#include "troupe/runtime/base/signal_masked_thread.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/process_limits.hpp"

#include <pthread.h>
#include <csignal>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

/// Blocks signals for the calling thread, and so for threads that it starts meanwhile. Signals of
/// faults stay unblocked: the kernel ends a process that blocks such a signal, without calling its
/// handler.
class Masked {
 public:
  Masked() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
      sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~Masked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Masked(const Masked&) = delete;
  Masked& operator=(const Masked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

SignalMaskedThread::SignalMaskedThread(const char* name, std::function<void()> body) {
  TROUPE_ASSERT(std::strlen(name) <= 15, "the name of a thread is too long for the kernel");
  const Masked masked;
  try {
    thread_ = std::thread([name = std::string(name), body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    raise(Error(Code::out_of_memory,
                "cannot start a thread: " + why_no_process(error.code().value())));
  }
}

}  // namespace troupe
