/// Functions and lambdas as template arguments, for libraries whose users write code in angle
/// brackets: what a callable takes, what it is called, how it is called, and what it ends in.
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
/// An actor that such a library makes gets its Context by Context::current().
#pragma once

#include "troupe/runtime/detail/callable.hpp"

namespace troupe {

/// Types in their order. A partial specialization takes it apart.
template <class... T>
using TypeList = detail::List<T...>;

/// A lambda, or another class with one call operator that is no template, without captures: it can
/// be a template argument as L{}.
template <class L>
concept CodeOnly = detail::code_only<L>;

/// What is known of F: a function, or a value of a CodeOnly class.
template <auto F>
class CallableTraits {
  using Type = std::remove_const_t<decltype(F)>;
  using Signature = detail::Signature<Type>;

 public:
  /// False for what is no function: a method, a generic lambda, a number. Such an F has no
  /// parameters, and call() does not compile.
  static constexpr bool valid = Signature::valid && !Signature::is_method;
  /// As the function is written, references and Context& included.
  using Parameters = std::conditional_t<valid, typename Signature::Parameters, TypeList<>>;
  using Result = std::conditional_t<valid, typename Signature::Result, void>;

  /// "area" or "(lambda at f.cpp:7)": as a person would write it, without parameters. Lives as long
  /// as the process. Computed once.
  static const char* name() {
    static const char* const text = detail::readable_name(detail::target_of<F>::text());
    return text;
  }
  /// Calls F on the calling thread; a lambda is one object for all calls in the process, so that a
  /// coroutine may refer to it.
  template <class... A>
    requires valid
  static Result call(A&&... arguments) {
    return detail::target_of<F>::call(nullptr, static_cast<A&&>(arguments)...);
  }
};

/// What is being thrown, inside a catch block, as a task that lets it out would end: TaskFailed
/// that names `function`, with a troupe::Error as its cause. Copies the text of the exception.
inline Error failure_of_current_exception(const char* function) noexcept {
  return detail::error_from_current_exception(function, detail::Phase::running);
}

}  // namespace troupe
