/// Checks calls at compile time for the public templates (verbs.hpp, actor.hpp). Each usual mistake
/// has a static_assert that comes before any other error.
///
/// Two kinds of functions. call_ok() answers silently, also in a requires clause. The Must…
/// templates and check_… functions explain: a static_assert fires when they are instantiated, and
/// their value is false. The caller then returns a dummy instead of the real code, so that the
/// compiler adds no errors from deep inside.
#pragma once

#include "troupe/runtime/detail/callable.hpp"

namespace troupe::detail {

/// Explains why P may not be a parameter of a function that is called remotely.
template <class P>
struct MustBeParameter {
  static constexpr ParameterFault fault = parameter_fault<P>();
  static_assert(fault != ParameterFault::pointer,
                "troupe: a function with a pointer parameter cannot be called in another process: "
                "take the value, a "
                "std::string, a std::span<const T> or a Ref");
  static_assert(fault != ParameterFault::mutable_reference,
                "troupe: a function with a mutable reference parameter cannot be called in another "
                "process: it would "
                "change a copy; take a value or const T& and return the result");
  static_assert(fault != ParameterFault::mutable_span,
                "troupe: a span parameter must be a std::span<const T> of trivially copyable T: it "
                "shows shared memory "
                "that nobody may change");
  static_assert(fault != ParameterFault::lead,
                "troupe: Context& and ActorContext& stand before all other parameters");
  static constexpr bool value = [] {
    if constexpr (fault == ParameterFault::type)
      return MustCross<std::remove_cvref_t<P>>::value;
    else
      return fault == ParameterFault::none;
  }();
};

/// Explains that an argument of type A does not fit a parameter P.
template <class A, class P>
struct MustConvert {
  static_assert(Passing<A, P>::ok,
                "troupe: an argument does not convert to the function's parameter (both types are "
                "named below; a "
                "Ref<U> fits where a const U& would)");
  static constexpr bool value = Passing<A, P>::ok;
};

/// Explains why a function that returns R has no result that may cross.
template <class R>
struct MustBeResult {
  using T = result_value<R>;
  static_assert(!std::is_pointer_v<T>,
                "troupe: a function that returns a pointer cannot be called in another process: "
                "return the value");
  static constexpr bool value = [] {
    if constexpr (std::is_void_v<T> || std::is_pointer_v<T>)
      return std::is_void_v<T>;
    else
      return MustCross<T>::value;
  }();
};

template <class R>
consteval bool result_ok() {
  using T = result_value<R>;
  if constexpr (std::is_void_v<T>)
    return true;
  else
    return shape_of<T>.why == Why::ok;
}
template <class... P>
consteval bool parameters_ok(List<P...>) {
  return ((parameter_fault<P>() == ParameterFault::none) && ...);
}
template <class... A, class... P>
consteval bool arguments_ok(List<A...>, List<P...>) {
  if constexpr (sizeof...(A) != sizeof...(P))
    return false;
  else
    return (Passing<A, P>::ok && ...);
}
template <class Sig>
using rest_of = typename Split<typename Sig::Parameters>::Rest;

/// Returns whether a call compiles, without a message. `forbidden` is the context that this kind of
/// callable may not take: a method no Context, a function no ActorContext.
template <class Sig, Lead forbidden, class... A>
consteval bool call_ok() {
  if constexpr (!Sig::valid) {
    return false;
  } else if constexpr (Split<typename Sig::Parameters>::lead == forbidden ||
                       !parameters_ok(rest_of<Sig>{})) {
    return false;
  } else {
    return arguments_ok(List<A...>{}, rest_of<Sig>{}) && result_ok<typename Sig::Result>();
  }
}

template <class... P>
consteval bool explain_parameters(List<P...>) {
  return (MustBeParameter<P>::value && ...);
}
template <class... A, class... P>
consteval bool explain_arguments(List<A...>, List<P...>) {
  static_assert(sizeof...(A) == sizeof...(P),
                "troupe: wrong number of arguments for this function (default arguments must be "
                "written out; Context& "
                "is not counted)");
  if constexpr (sizeof...(A) == sizeof...(P))
    return (MustConvert<A, P>::value && ...);
  else
    return false;
}
/// Returns what call_ok returns, and explains a false by a static_assert. The tests are nested, so
/// that the first mistake alone is reported.
template <class Sig, Lead forbidden, class... A>
consteval bool check_call() {
  if constexpr (call_ok<Sig, forbidden, A...>()) {
    return true;
  } else if constexpr (Sig::valid) {
    constexpr Lead lead = Split<typename Sig::Parameters>::lead;
    static_assert(
        lead != forbidden || lead != Lead::context,
        "troupe: an actor method may not take Context&, since it must not block its actor: take "
        "ActorContext& and co_await");
    static_assert(lead != forbidden || lead != Lead::actor_context,
                  "troupe: ActorContext& is for actor methods: a function takes Context&");
    if constexpr (explain_parameters(rest_of<Sig>{}))
      if constexpr (explain_arguments(List<A...>{}, rest_of<Sig>{}))
        return MustBeResult<typename Sig::Result>::value;
    return false;
  } else {
    return false;
  }
}

/// Checks submit<F>(arguments…): a function or lambda in angle brackets.
template <auto F, class... A>
consteval bool check_function() {
  using Type = std::remove_const_t<decltype(F)>;
  static_assert(!std::is_member_function_pointer_v<Type>,
                "troupe: a method is called on an actor: actor.call<&A::m>(...)");
  static_assert(std::is_member_function_pointer_v<Type> || Signature<Type>::valid,
                "troupe: what stands in the angle brackets is no function (a generic lambda has no "
                "one signature: write "
                "its parameter types)");
  if constexpr (Signature<Type>::valid && !std::is_member_function_pointer_v<Type>)
    return check_call<Signature<Type>, Lead::actor_context, A...>();
  else
    return false;
}
/// Checks submit(lambda, arguments…): a lambda in parentheses, of which the type alone crosses.
template <class L, class... A>
consteval bool check_lambda() {
  static_assert(!std::is_pointer_v<L> && !std::is_member_pointer_v<L>,
                "troupe: a function stands in angle brackets, submit<f>(arguments...): an address "
                "means nothing in "
                "another process");
  if constexpr (!std::is_pointer_v<L> && !std::is_member_pointer_v<L>) {
    static_assert(!functor<L> || code_only<L>,
                  "troupe: a lambda that captures cannot cross to another process: pass what it "
                  "captures as arguments");
    static_assert(functor<L>,
                  "troupe: submit takes a function in angle brackets or a lambda without captures "
                  "and with written "
                  "parameter types first");
    if constexpr (code_only<L>) return check_call<Signature<L>, Lead::actor_context, A...>();
  }
  return false;
}
/// Checks call<M>(arguments…) and tell<M>(arguments…) on an Actor<A>.
template <class A, auto M, class... Arguments>
consteval bool check_method() {
  using Sig = Signature<std::remove_const_t<decltype(M)>>;
  static_assert(Sig::is_method,
                "troupe: call and tell take a method of the actor's class: call<&A::m>(...)");
  if constexpr (Sig::is_method) {
    static_assert(std::is_base_of_v<typename Sig::Class, A>,
                  "troupe: this is a method of another class than the actor's");
    if constexpr (std::is_base_of_v<typename Sig::Class, A>)
      return check_call<Sig, Lead::context, Arguments...>();
  }
  return false;
}

}  // namespace troupe::detail
