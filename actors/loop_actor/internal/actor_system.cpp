#include "troupe/actors/loop_actor/internal/actor_system.hpp"

#include "troupe/runtime/base/error.hpp"

#include <caf/actor_system_config.hpp>

#include <pthread.h>
#include <signal.h>

#include <system_error>

namespace troupe::loops {
namespace {

/// Blocks all signals while it lives. Threads that are made meanwhile inherit that, so signals go
/// to the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

/// Returns CAF's configuration. parse() is never called, so CAF reads no file and no environment
/// variable.
caf::actor_system_config& config() {
  static auto& made = *new caf::actor_system_config;   // never destroyed, as the system
  made.set("scheduler.policy", caf::atom("sharing"));  // the default policy polls
  made.set("scheduler.max-threads", 1);
  return made;
}

caf::actor_system& make_system() {
  const SignalsBlocked blocked;
  try {
    return *new caf::actor_system(config());
  } catch (const std::system_error& e) {
    throw Unavailable(Code::unavailable,
                      std::string("a loop needs three threads that the system does not give: ") +
                          e.what() + ": raise the limit of processes (ulimit -u)",
                      Outcome::not_executed);
  }
}

}  // namespace

caf::actor_system& actor_system() {
  // Never destroyed: its destructor at exit would wait for actors that other static objects own.
  static caf::actor_system& system = make_system();
  return system;
}

}  // namespace troupe::loops
