/// Describes functions and lambdas that are template arguments, for libraries whose users write
/// code in angle brackets: the parameters of a callable, its name, how to call it, and the error
/// that a failure becomes.
///
///     template <auto body, class Parameters = typename troupe::CallableTraits<body>::Parameters>
///     struct Job;                                     // no function that begins with Step&
///     template <auto body, class... P>
///     struct Job<body, troupe::TypeList<Step&, P...>> {
///       void run(Step& step, std::decay_t<P>... arguments) {
///         troupe::CallableTraits<body>::call(step, std::move(arguments)...);
///       }
///     };
///
/// Code of such a library that runs inside an actor gets a Context from Context::current().
#pragma once

#include "troupe/runtime/detail/callable.hpp"

namespace troupe {

/// A list of types. A partial specialization takes it apart, as in the example above.
template <class... T>
using TypeList = detail::List<T...>;

/// A lambda without captures, or another empty class with exactly one call operator that is no
/// template. L{} can be a template argument.
template <class L>
concept CodeOnly = detail::code_only<L>;

/// The properties of F, which is a function or a value of a CodeOnly class.
template <auto F>
class CallableTraits {
  using Type = std::remove_const_t<decltype(F)>;
  using Signature = detail::Signature<Type>;

 public:
  /// False if F is no function: a method, a generic lambda, a number. Such an F has no parameters,
  /// and call() does not compile.
  static constexpr bool valid = Signature::valid && !Signature::is_method;
  /// The parameters as the function declares them, with references and Context&.
  using Parameters = std::conditional_t<valid, typename Signature::Parameters, TypeList<>>;
  using Result = std::conditional_t<valid, typename Signature::Result, void>;

  /// Returns the name as a person would write it, without parameters: "area" or "(lambda at
  /// f.cpp:7)". It lives as long as the process and is computed once.
  static const char* name() {
    static const char* const text = detail::readable_name(detail::target_of<F>::text());
    return text;
  }
  /// Calls F on the calling thread and returns its result. All calls of a lambda in the process use
  /// one object, so a coroutine may refer to it until it ends.
  template <class... A>
    requires valid
  static Result call(A&&... arguments) {
    return detail::target_of<F>::call(nullptr, static_cast<A&&>(arguments)...);
  }
};

/// Returns the Error in which a task would end that lets the present exception out: TaskFailed that
/// names `function`, with a troupe::Error as its cause. Call it inside a catch block. It copies the
/// exception's text.
inline Error failure_of_current_exception(const char* function) noexcept {
  return detail::error_from_current_exception(function, detail::Phase::running);
}

}  // namespace troupe
