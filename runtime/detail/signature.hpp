/// Taking functions apart: parameters, result, and what stands first.
#pragma once

#include "troupe/runtime/detail/shape.hpp"

namespace troupe::detail {

/// What a callable looks like. `valid` is false for what is no function, method or lambda with one
/// signature.
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

/// A class with one call operator that is no template: a lambda or the like.
template <class L>
concept functor = std::is_class_v<L> && requires { &L::operator(); };
/// A functor that is nothing but code: it captures nothing.
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

/// What a function may take before its arguments.
enum class Lead { none, context, actor_context };

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

/// The T of the Ref<T> that a call with result R gives. A Ref is flattened once.
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

template <class T>
inline constexpr bool result_may_cross = std::is_void_v<T> || shape_of<T>.why == Why::ok;

}  // namespace troupe::detail
