/// Takes the types of functions, methods and lambdas apart: parameters, result, and whether a
/// context is the first parameter. Serves check.hpp (is this call right?) and callable.hpp (how is
/// it made?).
#pragma once

#include "troupe/runtime/detail/shape.hpp"

namespace troupe::detail {

/// The parts of a callable's type F. `valid` is false if F is no function pointer, method pointer
/// or class with exactly one call operator. Partial specializations match each form of pointer,
/// since `noexcept`, `const` and reference qualifiers are parts of the type and cannot be deduced.
template <class F>
struct Signature {
  static constexpr bool valid = false;
  static constexpr bool is_method = false;
  using Result = void;
  using Parameters = List<>;
  using Class = void;
};
template <class R, class... P>
struct FunctionSignature {
  static constexpr bool valid = true;
  static constexpr bool is_method = false;
  static constexpr bool on_rvalue = false;
  using Result = R;
  using Parameters = List<P...>;
  using Class = void;
};
template <class R, class... P>
struct Signature<R (*)(P...)> : FunctionSignature<R, P...> {};
template <class R, class... P>
struct Signature<R (*)(P...) noexcept> : FunctionSignature<R, P...> {};

/// Rvalue: the method has the qualifier `&&`, so it is called on std::move(object).
template <class R, class C, bool Rvalue, class... P>
struct MethodSignature {
  static constexpr bool valid = true;
  static constexpr bool is_method = true;
  static constexpr bool on_rvalue = Rvalue;
  using Result = R;
  using Parameters = List<P...>;
  using Class = C;
};
#define TROUPE_METHOD(qualifiers, rvalue)                                               \
  template <class R, class C, class... P>                                               \
  struct Signature<R (C::*)(P...) qualifiers> : MethodSignature<R, C, rvalue, P...> {}; \
  template <class R, class C, class... P>                                               \
  struct Signature<R (C::*)(P...) qualifiers noexcept> : MethodSignature<R, C, rvalue, P...> {};
TROUPE_METHOD(, false)
TROUPE_METHOD(const, false)
TROUPE_METHOD(&, false)
TROUPE_METHOD(const&, false)
TROUPE_METHOD(&&, true)
TROUPE_METHOD(const&&, true)
#undef TROUPE_METHOD

/// A class with one call operator that is no template, such as a lambda. The address of an
/// overloaded or templated operator has no type, so `&L::operator()` does not compile for a generic
/// lambda.
template <class L>
concept functor = std::is_class_v<L> && requires { &L::operator(); };
/// A functor that holds no data. C++20 gives a lambda a default constructor if it captures nothing,
/// so the worker makes an object of its own.
template <class L>
concept code_only = functor<L> && std::is_empty_v<L> && requires { L{}; };

template <class L>
  requires functor<L>
struct Signature<L> {
 private:
  using Call = Signature<decltype(&L::operator())>;

 public:
  static constexpr bool valid = Call::valid;
  static constexpr bool is_method = false;
  static constexpr bool on_rvalue = false;
  using Result = typename Call::Result;
  using Parameters = typename Call::Parameters;
  using Class = void;
};

/// The first parameter of a function, if the runtime supplies it and not the caller.
enum class Lead { none, context, actor_context };

/// Splits a list of parameters into the Lead and those that the caller's arguments fill.
template <class Parameters>
struct Split {
  static constexpr Lead lead = Lead::none;
  using Rest = Parameters;
};
template <class First, class... Rest_>
  requires std::is_same_v<std::remove_cvref_t<First>, Context>
struct Split<List<First, Rest_...>> {
  static constexpr Lead lead = Lead::context;
  using Rest = List<Rest_...>;
};
template <class First, class... Rest_>
  requires std::is_same_v<std::remove_cvref_t<First>, ActorContext>
struct Split<List<First, Rest_...>> {
  static constexpr Lead lead = Lead::actor_context;
  using Rest = List<Rest_...>;
};

// --- results

/// The T of the Ref<T> that a call of a function with result R returns. One level of Ref is
/// removed: a function that returns Ref<int> gives Ref<int>, not Ref<Ref<int>>. A Task<T> counts as
/// its T.
template <class R>
struct ResultValue {
  using type = R;
};
template <class T>
struct ResultValue<Ref<T>> {
  using type = T;
};
template <class T>
struct ResultValue<Task<T>> : ResultValue<std::remove_cvref_t<T>> {};
template <class R>
using result_value = typename ResultValue<std::remove_cvref_t<R>>::type;

}  // namespace troupe::detail
