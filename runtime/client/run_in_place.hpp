/// Runs a task of this process on the thread that awaits it, inside the waiting task.
///
///     InPlaceRuns in_place(engine);                        // on the worker's own thread
///     engine.runs_in_place(&in_place);
///     const InPlaceRuns::Permit permit(in_place, callable, attempt);   // around a thunk
///
/// A second attempt of a task runs no other task in place. If its first attempt killed its
/// worker, the next death shows which of the two tasks did it.
#pragma once

#include "troupe/runtime/client/engine.hpp"

#include <pthread.h>
#include <optional>

namespace troupe::client {

class InPlaceRuns final : public InPlaceRunner {
 public:
  explicit InPlaceRuns(ClientEngine& engine) noexcept : engine_(engine) {}

  /// Lives while this thread runs that function.
  class Permit {
   public:
    Permit(InPlaceRuns& runs, const detail::Callable& callable, std::uint32_t attempt) noexcept
        : runs_(runs) {
      runs_.allowed_ =
          attempt == 1 && callable.kind == detail::CallableKind::function && !callable.is_coroutine;
    }
    ~Permit() { runs_.allowed_ = false; }
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;

   private:
    InPlaceRuns& runs_;
  };

  bool is_allowed() noexcept override;
  void run(Task& task) noexcept override;

 private:
  ClientEngine& engine_;
  const pthread_t thread_ = pthread_self();
  bool allowed_ = false;  ///< only used on thread_
  std::optional<StackRoom> stack_;
};

/// Returns the error with the place where it arose: this process, and the stack of the last
/// throw.
Error located_here(const ClientEngine& engine, const Error& error, const char* function,
                   std::uint32_t attempt);

}  // namespace troupe::client
