/// A thread beside the agent's event loop: it takes no signals, those are the loop's.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <thread>
#include <utility>

namespace troupe::agent {

/// `name`: at most 15 characters.
template <class F>
std::thread signal_masked_thread(const char* name, F&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<F>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace troupe::agent
