/// Error: the one error type of troupe. It is a value inside troupe and on the wire, and an
/// exception for users.
///
///     try { ctx.get(ref); }
///     catch (const troupe::TaskFailed& e) { std::cerr << e.where().node << ": " << e.what() <<
///     '\n'; }
///
/// An Error is cheap to copy (one shared pointer) and immutable. Inside troupe errors are values;
/// raise() turns one into the exception class of its code.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>

namespace troupe {

/// A code exists only if some caller could react to it differently. Numbers are wire format:
/// append, never renumber.
enum class Code : std::uint16_t {
  internal = 0,           ///< a bug in troupe
  task_failed = 1,        ///< an exception left user code; if it was an Error, that is the cause
  actor_died = 2,         ///< the actor is gone for good
  actor_unavailable = 3,  ///< the actor cannot be reached now; it may come back
  object_lost = 4,        ///< no copy is left and it cannot be rebuilt
  cancelled = 5,
  timed_out = 6,
  overloaded = 7,   ///< a bounded queue is full
  unavailable = 8,  ///< a part of the cluster cannot be reached now
  invalid_argument = 9,
  infeasible = 10,  ///< no node could ever satisfy the request
  out_of_memory = 11,
  out_of_disk = 12,
  no_space = 13,     ///< control refuses writes below its low-water mark
  poison_task = 14,  ///< the task killed three workers and is quarantined
  worker_died = 15,  ///< the process that ran the work died
};

/// Returns the snake-case name of a code, as printed and in JSON.
TROUPE_API std::string_view name_of(Code code) noexcept;
/// Returns one sentence of advice for the caller.
TROUPE_API std::string_view advice_for(Code code) noexcept;

/// Whether the work that failed took place.
enum class Outcome : std::uint8_t { not_executed = 0, executed = 1, unknown = 2 };
TROUPE_API std::string_view name_of(Outcome outcome) noexcept;

/// Where an error arose. Empty fields are unknown.
struct Origin {
  std::string node;
  int pid = 0;
  std::string function;
  int attempt = 0;
};

class Error;

/// The contents of an Error; filled once, then shared.
struct ErrorInfo {
  Code code = Code::internal;
  Outcome outcome = Outcome::unknown;
  std::string message;  ///< what went wrong, and why
  Origin origin;
  std::string type;          ///< typeid name of the user's exception, if there was one
  std::string remote_stack;  ///< frames of the throwing or crashed thread, one a line; may be empty
  std::shared_ptr<const ErrorInfo> cause;
  std::string last_lines;  ///< that a dead process wrote, each with its newline; may be empty
};

class TROUPE_API Error : public std::exception {
 public:
  explicit Error(ErrorInfo info);
  Error(Code code, std::string message, Outcome outcome = Outcome::not_executed);
  ~Error() override;

  Code code() const noexcept { return info_->code; }
  /// The message with its place: `message [function, node, pid]`.
  const char* what() const noexcept override;
  const std::string& message() const noexcept { return info_->message; }
  const Origin& where() const noexcept { return info_->origin; }
  Outcome outcome() const noexcept { return info_->outcome; }
  bool maybe_executed() const noexcept { return info_->outcome != Outcome::not_executed; }
  /// The error that caused this one, or nullptr.
  std::shared_ptr<const Error> cause() const;
  /// The frames of the thread that threw or crashed, innermost first, one a line; those of the first
  /// cause that has some, if this error has none. Empty: there are none. A frame of a crash reads
  /// `#0 mix(int) at mix.cpp:12 (libmix.so+0x1234)`, or `#0 libmix.so+0x1234` where this host has
  /// not the module with its debug information. The first call for a place of a crash blocks for at
  /// most 4 s. Thread-safe. The text lives as long as the error.
  const std::string& remote_stack() const noexcept;
  /// The last lines, at most 20 and 4 KiB, that the dead process wrote to its output and error
  /// output in a cluster of several nodes, those of the first cause that has some. They may have
  /// control characters.
  const std::string& last_lines() const noexcept;
  /// True when the user's exception was exactly a T (the type is compared by name across
  /// processes).
  template <class T>
  bool is() const noexcept {
    return info_->type == typeid(T).name();
  }
  const ErrorInfo& info() const noexcept { return *info_; }
  const std::shared_ptr<const ErrorInfo>& shared_info() const noexcept { return info_; }

 private:
  struct Texts;
  std::shared_ptr<const ErrorInfo> info_;
  std::shared_ptr<const Texts> texts_;
};

#define TROUPE_ERROR_CLASS(Name)         \
  class TROUPE_API Name : public Error { \
   public:                               \
    using Error::Error;                  \
    ~Name() override;                    \
  }
TROUPE_ERROR_CLASS(TaskFailed);
TROUPE_ERROR_CLASS(ActorDied);
TROUPE_ERROR_CLASS(ActorUnavailable);
TROUPE_ERROR_CLASS(ObjectLost);
TROUPE_ERROR_CLASS(Cancelled);
TROUPE_ERROR_CLASS(TimedOut);
TROUPE_ERROR_CLASS(Overloaded);
TROUPE_ERROR_CLASS(Unavailable);
TROUPE_ERROR_CLASS(InvalidArgument);
TROUPE_ERROR_CLASS(Infeasible);
TROUPE_ERROR_CLASS(OutOfMemory);
TROUPE_ERROR_CLASS(OutOfDisk);
TROUPE_ERROR_CLASS(NoSpace);
TROUPE_ERROR_CLASS(PoisonTask);
TROUPE_ERROR_CLASS(WorkerDied);
#undef TROUPE_ERROR_CLASS

/// Throws the error as the class of its code.
[[noreturn]] TROUPE_API void raise(const Error& error);

/// Returns a text for people: the error and its causes, one line each, and the advice of the
/// outermost code.
TROUPE_API std::string explain(const Error& error);

/// Returns a demangled type name, for messages.
TROUPE_API std::string readable_type(const char* mangled);

}  // namespace troupe
