#include "troupe/train/internal/gang_verdict.hpp"

#include <algorithm>
#include <typeinfo>

namespace troupe::train::internal {
namespace {

std::string at(int rank, long step) {
  return "worker " + std::to_string(rank) + " at step " + std::to_string(step);
}

/// Returns the name of the class that an error of this code is thrown as.
std::string type_of(const Error& error) {
  try {
    raise(error);
  } catch (const Error& thrown) {
    return typeid(thrown).name();
  }
}

/// Returns an error with message `why` and with `error` as its cause. Keeps the type of a user's
/// exception, so that is<E>() recognises it.
Error wrapped(Code code, std::string why, const Error& error) {
  ErrorInfo info;
  info.code = code;
  info.outcome = Outcome::executed;
  info.message = "train: " + std::move(why);
  info.origin = error.where();
  info.remote_stack = error.info().remote_stack;
  info.last_lines = error.info().last_lines;
  const bool plain = error.code() == Code::task_failed && !error.info().type.empty();
  info.type = plain ? error.info().type : type_of(error);
  // The new error stands for the user's exception itself, so only the exception's cause follows.
  info.cause = plain ? error.info().cause : error.shared_info();
  return Error(std::move(info));
}

/// Returns what an actor's constructor threw when the actor ended by it, else the error itself.
Error innermost_of_actor(const Error& error) {
  const std::shared_ptr<const Error> cause = error.cause();
  return error.code() == Code::actor_died && cause ? *cause : error;
}

}  // namespace

bool is_failure_of_cluster(Code code) noexcept {
  switch (code) {
    case Code::actor_died:
    case Code::actor_unavailable:
    case Code::object_lost:
    case Code::timed_out:
    case Code::overloaded:
    case Code::unavailable:
    case Code::out_of_memory:
    case Code::out_of_disk:
    case Code::no_space:
    case Code::worker_died: return true;
    case Code::internal:
    case Code::task_failed:
    case Code::cancelled:
    case Code::invalid_argument:
    case Code::infeasible:
    case Code::poison_task: return false;
  }
  return false;
}

void GangVerdict::returned(int rank, long step) {
  ranks_.at(static_cast<std::size_t>(rank)) = {true, true, step};
}

void GangVerdict::failed(int rank, const LoopFailure& failure) {
  ranks_.at(static_cast<std::size_t>(rank)) = {true, false, failure.step};
  troubled_ = true;
  const Error& error = failure.error;
  if (failure.missed_others) {
    missed_.push_back({rank, failure});
  } else if (is_failure_of_cluster(error.code())) {
    if (!cluster_)
      cluster_ = wrapped(Code::worker_died,
                         at(rank, failure.step) + " could not go on: " +
                             std::string(name_of(error.code())) + ": " + error.message(),
                         error);
  } else if (!users_) {
    users_ = wrapped(Code::task_failed,
                     "the loop of worker " + std::to_string(rank) + " threw at step " +
                         std::to_string(failure.step) + ": " + error.message(),
                     error);
  }
}

void GangVerdict::died(int rank, long step, const Error& error) {
  ranks_.at(static_cast<std::size_t>(rank)) = {true, false, step};
  troubled_ = true;
  const Error inner = innermost_of_actor(error);
  if (inner.code() == Code::infeasible) {
    if (!users_)
      users_ =
          wrapped(Code::infeasible,
                  "worker " + std::to_string(rank) + " fits nowhere: " + inner.message(), inner);
  } else if (inner.code() == Code::task_failed || inner.code() == Code::invalid_argument) {
    if (!users_)
      users_ = wrapped(Code::task_failed,
                       "worker " + std::to_string(rank) + " could not be made: " + inner.message(),
                       inner);
  } else if (!cluster_) {
    cluster_ = wrapped(Code::worker_died, at(rank, step) + " died: " + error.message(), error);
  }
}

const GangVerdict::Missed* GangVerdict::left_behind() const {
  for (const Missed& missed : missed_) {
    const int left = missed.failure.missed_rank;
    if (left >= 0 && ranks_.at(static_cast<std::size_t>(left)).returned) return &missed;
  }
  return nullptr;
}

bool GangVerdict::all_over() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.over; });
}

GangVerdict::End GangVerdict::end() const {
  if (users_) return End::error;
  const bool heard = all_over() || !waits_;
  if (cluster_) return heard ? End::restart : End::open;
  if (left_behind() != nullptr) return End::error;
  if (!heard) return End::open;
  return troubled_ || !all_over() ? End::restart : End::done;
}

Error GangVerdict::error() const {
  if (users_) return *users_;
  if (cluster_) return *cluster_;
  if (const Missed* missed = left_behind()) {
    const int left = missed->failure.missed_rank;
    return wrapped(Code::task_failed,
                   "worker " + std::to_string(left) + " returned from the loop at step " +
                       std::to_string(ranks_.at(static_cast<std::size_t>(left)).step) +
                       ", and worker " + std::to_string(missed->rank) +
                       " waits for it: every rank must make the same calls in the same order: " +
                       missed->failure.error.message(),
                   missed->failure.error);
  }
  if (!missed_.empty()) {
    // A rank that gives up takes its links along, so that others report its end, and may do so first.
    const auto cause = std::find_if(missed_.begin(), missed_.end(), [](const Missed& missed) {
      return missed.failure.error.code() != Code::worker_died;
    });
    const Missed& first = cause != missed_.end() ? *cause : missed_.front();
    return wrapped(
        Code::worker_died,
        at(first.rank, first.failure.step) + " lost the others: " + first.failure.error.message(),
        first.failure.error);
  }
  return Error(Code::worker_died, "train: a worker did not end", Outcome::unknown);
}

}  // namespace troupe::train::internal
