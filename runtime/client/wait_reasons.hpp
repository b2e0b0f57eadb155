/// Says why a wait takes so long, as far as this process and its agent know. Serves ClientEngine.
///
///     WaitReasons reasons(out, calls, questions, waits);
///     Error late = reasons.overdue(lock, entry, timeout);   // the error of a get that timed out
///     std::string why = reasons.why(lock, entry);           // one sentence, or nothing
///
/// Invariants: REASON-1 A timeout of zero is a look, not a wait: it gets no reason, and nobody is
/// asked. REASON-2 The agent is asked once, and its answer is waited for 200 ms at most. The loss of
/// the agent is no error here: the next call says so. REASON-3 The outcome is unknown, because the
/// call goes on.
#pragma once

#include "troupe/runtime/client/calls.hpp"
#include "troupe/runtime/client/questions.hpp"
#include "troupe/runtime/client/waits.hpp"

#include <string>

namespace troupe::client {

class WaitReasons {
 public:
  WaitReasons(Calls::Out& out, Calls& calls, Questions& questions, Waits& waits)
      : out_(out), calls_(calls), questions_(questions), waits_(waits) {}

  /// Returns the error of a wait whose timeout has passed, with the reason for the delay where that
  /// is known. Under the lock. Precondition: a handle keeps the entry.
  Error overdue(Guard& lock, const Entry& entry, Duration timeout);
  /// Returns why the entry has no value yet, in one sentence; empty: unknown. Under the lock.
  std::string why(Guard& lock, const Entry& entry);
  static Error no_result_after(Duration timeout);

 private:
  Calls::Out& out_;
  Calls& calls_;
  Questions& questions_;
  Waits& waits_;
};

}  // namespace troupe::client
