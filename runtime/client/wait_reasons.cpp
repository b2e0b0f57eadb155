#include "troupe/runtime/client/wait_reasons.hpp"

#include "troupe/runtime/base/back_off.hpp"
#include "troupe/runtime/client/wait_path.hpp"

#include <optional>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// How long a wait that is over waits for the agent's reason.
constexpr Duration kReasonComes = 200ms;

}  // namespace

Error WaitReasons::no_result_after(Duration timeout) {
  return Error(Code::timed_out, "no result after " + pause_text(timeout), Outcome::unknown);
}

Error WaitReasons::overdue(Guard& lock, const Entry& entry, Duration timeout) {
  Error plain = no_result_after(timeout);
  std::optional<ActorCalls::Delay> delay;
  if (timeout > Duration::zero())
    for (const Entry* at = &entry; at != nullptr && !delay; at = next_of(*at))
      delay = calls_.actors().delay_of(*at);
  ErrorInfo info = plain.info();
  if (!delay) {
    if (timeout <= Duration::zero()) return plain;
    if (const std::string reason = why(lock, entry); !reason.empty()) info.message += ": " + reason;
    return Error(std::move(info));
  }
  if (delay->silent) {
    info.code = Code::actor_unavailable;
    info.message +=
        ": the actor's node says nothing and is not known to be dead; the call may "
        "have run, and goes on when the node is back";
    return Error(std::move(info));
  }
  const Duration left = delay->retry_at - steady_now();
  info.message += ": " + delay->last_end->message +
                  (left > Duration::zero() ? "; next attempt in " + pause_text(left)
                                           : "; its next life is being made");
  info.cause = delay->last_end->cause;
  return Error(std::move(info));
}

std::string WaitReasons::why(Guard& lock, const Entry& entry) {
  const WaitPath path =
      wait_path(entry, calls_.tasks(), calls_.actors(), [this](ProcessIndex worker, const Task& t) {
        return calls_.may_come_back(worker, t.sequence);
      });
  if (!path.question) return path.text;
  wire::Explain question = *path.question;
  const std::uint64_t request = question.request = questions_.ask<wire::Explained>();
  out_.tell(question, {});
  try {
    waits_.block_until(
        lock, [&] { return questions_.is_answered(request); }, steady_now() + kReasonComes);
  } catch (const Error&) {  // the agent is gone, or the job was stopped: the next call says so
  }
  const auto answer = questions_.take<wire::Explained>(request);
  return path.text + " " + (answer && !answer->why.empty() ? answer->why : path.otherwise);
}

}  // namespace troupe::client
