/// Runs a task of this process on the thread that awaits it, inside the task that does.
///
///     InPlaceRuns in_place(engine);                        // on the worker's own thread
///     engine.runs_in_place(&in_place);
///     const InPlaceRuns::Permit permit(in_place, callable, attempt);   // around a thunk
///
/// A task whose first attempt took its worker along runs nothing in place in the next one: then it
/// shows which of the two it was.
#pragma once

#include "troupe/runtime/client/engine.hpp"

#include <pthread.h>
#include <optional>

namespace troupe::client {

class InPlaceRuns final : public InPlaceRunner {
 public:
  explicit InPlaceRuns(ClientEngine& engine) noexcept : engine_(engine) {}

  /// While it lives this thread runs that function.
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
  bool allowed_ = false;  ///< of the one thread
  std::optional<StackRoom> stack_;
};

/// The error with the place where it arose: this process, and the stack of the last throw.
Error located_here(const ClientEngine& engine, const Error& error, const char* function,
                   std::uint32_t attempt);

}  // namespace troupe::client
