/// Tests that signals go to the program's threads: a thread of the library blocks them.
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <csignal>

namespace troupe {
namespace {

sigset_t mask_of_this_thread() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return mask;
}

bool same(const sigset_t& a, const sigset_t& b) {
  for (int signal = 1; signal < SIGRTMIN; ++signal)
    if (sigismember(&a, signal) != sigismember(&b, signal)) return false;
  return true;
}

TEST(SignalMaskedThread, takes_no_signal_but_those_of_its_own_faults) {
  sigset_t inside;
  SignalMaskedThread thread("quiet", [&] { inside = mask_of_this_thread(); });
  thread.join();
  for (const int others : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGALRM, SIGUSR1, SIGPROF})
    EXPECT_EQ(sigismember(&inside, others), 1) << others;
  for (const int faults : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    EXPECT_EQ(sigismember(&inside, faults), 0) << faults;
}

TEST(SignalMaskedThread, has_the_name_that_it_was_given) {
  char name[32] = "";
  SignalMaskedThread thread;
  EXPECT_FALSE(thread.joinable());
  thread =
      SignalMaskedThread("fifteen-letters", [&] { pthread_getname_np(pthread_self(), name, 32); });
  EXPECT_TRUE(thread.joinable());
  thread.join();
  EXPECT_STREQ(name, "fifteen-letters");
  EXPECT_FALSE(thread.joinable());
}

TEST(SignalMaskedThread, leaves_the_mask_of_its_starter) {
  const sigset_t before = mask_of_this_thread();
  ASSERT_EQ(sigismember(&before, SIGTERM), 0);
  SignalMaskedThread thread("quiet", [] {});
  EXPECT_TRUE(same(before, mask_of_this_thread()));
  thread.join();
}

TEST(SignalMaskedThread, leaves_the_mask_of_its_starter_also_when_no_thread_can_be_started) {
  const sigset_t before = mask_of_this_thread();
  pthread_attr_t usual, huge;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, std::size_t{1} << 50);  // more than the address space
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(SignalMaskedThread("quiet", [] {}), OutOfMemory);
  pthread_setattr_default_np(&usual);
  EXPECT_TRUE(same(before, mask_of_this_thread()));
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

}  // namespace
}  // namespace troupe
