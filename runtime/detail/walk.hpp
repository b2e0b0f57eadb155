/// Visits the members of an aggregate that declares nothing for it, up to 64 members. Encoding,
/// decoding and fingerprints (shape.hpp, encode.hpp) rest on it. It counts the members by brace
/// initialization and binds them by structured bindings (the technique of Boost.PFR, Polukhin
/// 2016).
///
///     struct Point { int x; double y; };
///     static_assert(member_count<Point>() == 2);
///     with_members(point, [](const auto&... member) { (print(member), ...); });
///
/// The count. `T{x, x, x}` compiles only if T has at least three initializers. If every x converts
/// to any type, the longest list that compiles gives the number of initializers. One initializer is
/// one member, except for a C array: a list without inner braces fills an array element by element
/// (brace elision). A conversion function cannot return an array, so each element takes one x.
///
/// The compiler must accept a `requires` expression around `T{...}` as a silent test. Each test is
/// a substitution failure, not an error, because the braces stand in the immediate context.
///
/// Probes of the same kind recognise an aggregate that cannot be walked, so that explain.hpp can
/// say why: base classes, C arrays, unions, reference members, bit-fields. One case gets the
/// compiler's own message only: a bit-field that shares no storage (`int a : 31; int b;`).
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace troupe::detail {

/// An empty type that carries a list of types from template to template.
template <class... T>
struct List {
  static constexpr std::size_t size = sizeof...(T);
};

inline constexpr std::size_t kMaxMembers = 64;

/// A probe that converts to any type except the aggregate itself. Without the exception `Whole{x}`
/// would be a copy of a Whole and would compile for every aggregate.
template <class Whole>
struct Anything {
  template <class U>
    requires(!std::is_same_v<U, Whole>)
  operator U() const {
    __builtin_unreachable();  // only ever named, but clang wants a body
  }
};
/// Anything with an index, so that an index sequence expands to that many probes.
template <class Whole, std::size_t>
using AnythingAt = Anything<Whole>;
/// A probe that converts to base classes of Whole only. The bases of an aggregate take its first
/// initializers (C++17), so `Whole{AnyBase}` compiles if Whole has a base class.
template <class Whole>
struct AnyBase {
  template <class U>
    requires(std::is_base_of_v<U, Whole> && !std::is_same_v<U, Whole>)
  operator U() const {
    __builtin_unreachable();  // only ever named, but clang wants a body
  }
};
/// A probe that converts to unions only.
struct AnyUnion {
  template <class U>
    requires std::is_union_v<U>
  operator U() const {
    __builtin_unreachable();  // only ever named, but clang wants a body
  }
};
/// A probe that converts to no type. A member that takes it has a constructor that takes any class.
struct Nothing {};

/// Holds the pack expansion of braces_take; the index sequence gives one probe per index.
template <class T, class Sequence, class... Tail>
struct BraceProbe;
template <class T, std::size_t... I, class... Tail>
struct BraceProbe<T, std::index_sequence<I...>, Tail...> {
  static constexpr bool value = requires { T{AnythingAt<T, I>{}..., std::declval<Tail>()...}; };
};
/// True if `T{x, …, Tail…}` compiles with N probes x that convert to any type before the Tail.
template <class T, std::size_t N, class... Tail>
inline constexpr bool braces_take = BraceProbe<T, std::make_index_sequence<N>, Tail...>::value;

/// True if `T{x, …, {}, x, …}` compiles with as many x as each of the two sequences has indices.
/// False if the `{}` stands in a C array: it initializes the whole array and uses up one
/// initializer for several elements, so the list has more initializers than members. False also for
/// a member that `{}` does not initialize.
template <class T, class Before, class After>
struct NestedProbe;
template <class T, std::size_t... I, std::size_t... J>
struct NestedProbe<T, std::index_sequence<I...>, std::index_sequence<J...>> {
  static constexpr bool value = requires { T{AnythingAt<T, I>{}..., {}, AnythingAt<T, J>{}...}; };
};

/// Returns how many initializers an aggregate takes; C arrays count once per element. 65 means
/// "more than 64". Precondition: `T{}` compiles, so that every shorter list compiles too and the
/// first list that fails ends the count. Cost: one template instance per initializer.
template <class T, std::size_t N = 0>
consteval std::size_t initializer_count() {
  if constexpr (N > kMaxMembers) {
    return N;
  } else if constexpr (braces_take<T, N + 1>) {
    return initializer_count<T, N + 1>();
  } else {
    return N;
  }
}

/// Replaces each of the n initializers by `{}` in turn. True only if no member is a C array and
/// each member has a default initialization; then initializers and members are equal in number.
template <class T, std::size_t... I>
consteval bool takes_empty_braces_everywhere(std::index_sequence<I...>) {
  constexpr std::size_t n = sizeof...(I);
  return (NestedProbe<T, std::make_index_sequence<I>, std::make_index_sequence<n - 1 - I>>::value &&
          ...);
}
/// True if some member is a union. The second condition leaves out members that take any class,
/// such as one with an unconstrained constructor template.
template <class T, std::size_t... I>
consteval bool has_union_member(std::index_sequence<I...>) {
  return ((braces_take<T, I, AnyUnion> && !braces_take<T, I, Nothing>) || ...);
}

/// Returns the number of members of T. Precondition: obstacle_of<T>() is Obstacle::none.
template <class T>
consteval std::size_t member_count() {
  return initializer_count<std::remove_cv_t<T>>();
}

// The names of n bindings. C++20 has no structured binding with a pack of names (P1061 is C++26),
// so with_members has one branch for each count. Each name list extends the previous one.
#define TROUPE_NAMES_1 a1
#define TROUPE_NAMES_2 TROUPE_NAMES_1, a2
#define TROUPE_NAMES_3 TROUPE_NAMES_2, a3
#define TROUPE_NAMES_4 TROUPE_NAMES_3, a4
#define TROUPE_NAMES_5 TROUPE_NAMES_4, a5
#define TROUPE_NAMES_6 TROUPE_NAMES_5, a6
#define TROUPE_NAMES_7 TROUPE_NAMES_6, a7
#define TROUPE_NAMES_8 TROUPE_NAMES_7, a8
#define TROUPE_NAMES_9 TROUPE_NAMES_8, a9
#define TROUPE_NAMES_10 TROUPE_NAMES_9, a10
#define TROUPE_NAMES_11 TROUPE_NAMES_10, a11
#define TROUPE_NAMES_12 TROUPE_NAMES_11, a12
#define TROUPE_NAMES_13 TROUPE_NAMES_12, a13
#define TROUPE_NAMES_14 TROUPE_NAMES_13, a14
#define TROUPE_NAMES_15 TROUPE_NAMES_14, a15
#define TROUPE_NAMES_16 TROUPE_NAMES_15, a16
#define TROUPE_NAMES_17 TROUPE_NAMES_16, a17
#define TROUPE_NAMES_18 TROUPE_NAMES_17, a18
#define TROUPE_NAMES_19 TROUPE_NAMES_18, a19
#define TROUPE_NAMES_20 TROUPE_NAMES_19, a20
#define TROUPE_NAMES_21 TROUPE_NAMES_20, a21
#define TROUPE_NAMES_22 TROUPE_NAMES_21, a22
#define TROUPE_NAMES_23 TROUPE_NAMES_22, a23
#define TROUPE_NAMES_24 TROUPE_NAMES_23, a24
#define TROUPE_NAMES_25 TROUPE_NAMES_24, a25
#define TROUPE_NAMES_26 TROUPE_NAMES_25, a26
#define TROUPE_NAMES_27 TROUPE_NAMES_26, a27
#define TROUPE_NAMES_28 TROUPE_NAMES_27, a28
#define TROUPE_NAMES_29 TROUPE_NAMES_28, a29
#define TROUPE_NAMES_30 TROUPE_NAMES_29, a30
#define TROUPE_NAMES_31 TROUPE_NAMES_30, a31
#define TROUPE_NAMES_32 TROUPE_NAMES_31, a32
#define TROUPE_NAMES_33 TROUPE_NAMES_32, a33
#define TROUPE_NAMES_34 TROUPE_NAMES_33, a34
#define TROUPE_NAMES_35 TROUPE_NAMES_34, a35
#define TROUPE_NAMES_36 TROUPE_NAMES_35, a36
#define TROUPE_NAMES_37 TROUPE_NAMES_36, a37
#define TROUPE_NAMES_38 TROUPE_NAMES_37, a38
#define TROUPE_NAMES_39 TROUPE_NAMES_38, a39
#define TROUPE_NAMES_40 TROUPE_NAMES_39, a40
#define TROUPE_NAMES_41 TROUPE_NAMES_40, a41
#define TROUPE_NAMES_42 TROUPE_NAMES_41, a42
#define TROUPE_NAMES_43 TROUPE_NAMES_42, a43
#define TROUPE_NAMES_44 TROUPE_NAMES_43, a44
#define TROUPE_NAMES_45 TROUPE_NAMES_44, a45
#define TROUPE_NAMES_46 TROUPE_NAMES_45, a46
#define TROUPE_NAMES_47 TROUPE_NAMES_46, a47
#define TROUPE_NAMES_48 TROUPE_NAMES_47, a48
#define TROUPE_NAMES_49 TROUPE_NAMES_48, a49
#define TROUPE_NAMES_50 TROUPE_NAMES_49, a50
#define TROUPE_NAMES_51 TROUPE_NAMES_50, a51
#define TROUPE_NAMES_52 TROUPE_NAMES_51, a52
#define TROUPE_NAMES_53 TROUPE_NAMES_52, a53
#define TROUPE_NAMES_54 TROUPE_NAMES_53, a54
#define TROUPE_NAMES_55 TROUPE_NAMES_54, a55
#define TROUPE_NAMES_56 TROUPE_NAMES_55, a56
#define TROUPE_NAMES_57 TROUPE_NAMES_56, a57
#define TROUPE_NAMES_58 TROUPE_NAMES_57, a58
#define TROUPE_NAMES_59 TROUPE_NAMES_58, a59
#define TROUPE_NAMES_60 TROUPE_NAMES_59, a60
#define TROUPE_NAMES_61 TROUPE_NAMES_60, a61
#define TROUPE_NAMES_62 TROUPE_NAMES_61, a62
#define TROUPE_NAMES_63 TROUPE_NAMES_62, a63
#define TROUPE_NAMES_64 TROUPE_NAMES_63, a64
#define TROUPE_BIND(n)                \
  else if constexpr (N == n) {        \
    auto& [TROUPE_NAMES_##n] = value; \
    return visit(TROUPE_NAMES_##n);   \
  }

/// Calls visit(members...) with all members as lvalues, const when `value` is const, and returns
/// its result. The branch that `if constexpr` chooses has as many bindings as T has members.
/// Another number would be an error, not a failed substitution; hence the precondition of
/// member_count.
template <class T, class Visit>
constexpr decltype(auto) with_members(T& value, Visit&& visit) {
  constexpr std::size_t N = member_count<T>();
  if constexpr (N == 0) {
    return visit();
  }
  // clang-format off
  TROUPE_BIND(1) TROUPE_BIND(2) TROUPE_BIND(3) TROUPE_BIND(4)
  TROUPE_BIND(5) TROUPE_BIND(6) TROUPE_BIND(7) TROUPE_BIND(8)
  TROUPE_BIND(9) TROUPE_BIND(10) TROUPE_BIND(11) TROUPE_BIND(12)
  TROUPE_BIND(13) TROUPE_BIND(14) TROUPE_BIND(15) TROUPE_BIND(16)
  TROUPE_BIND(17) TROUPE_BIND(18) TROUPE_BIND(19) TROUPE_BIND(20)
  TROUPE_BIND(21) TROUPE_BIND(22) TROUPE_BIND(23) TROUPE_BIND(24)
  TROUPE_BIND(25) TROUPE_BIND(26) TROUPE_BIND(27) TROUPE_BIND(28)
  TROUPE_BIND(29) TROUPE_BIND(30) TROUPE_BIND(31) TROUPE_BIND(32)
  TROUPE_BIND(33) TROUPE_BIND(34) TROUPE_BIND(35) TROUPE_BIND(36)
  TROUPE_BIND(37) TROUPE_BIND(38) TROUPE_BIND(39) TROUPE_BIND(40)
  TROUPE_BIND(41) TROUPE_BIND(42) TROUPE_BIND(43) TROUPE_BIND(44)
  TROUPE_BIND(45) TROUPE_BIND(46) TROUPE_BIND(47) TROUPE_BIND(48)
  TROUPE_BIND(49) TROUPE_BIND(50) TROUPE_BIND(51) TROUPE_BIND(52)
  TROUPE_BIND(53) TROUPE_BIND(54) TROUPE_BIND(55) TROUPE_BIND(56)
  TROUPE_BIND(57) TROUPE_BIND(58) TROUPE_BIND(59) TROUPE_BIND(60)
  TROUPE_BIND(61) TROUPE_BIND(62) TROUPE_BIND(63) TROUPE_BIND(64)
  // clang-format on
}

#undef TROUPE_BIND
#undef TROUPE_NAMES_1
#undef TROUPE_NAMES_2
#undef TROUPE_NAMES_3
#undef TROUPE_NAMES_4
#undef TROUPE_NAMES_5
#undef TROUPE_NAMES_6
#undef TROUPE_NAMES_7
#undef TROUPE_NAMES_8
#undef TROUPE_NAMES_9
#undef TROUPE_NAMES_10
#undef TROUPE_NAMES_11
#undef TROUPE_NAMES_12
#undef TROUPE_NAMES_13
#undef TROUPE_NAMES_14
#undef TROUPE_NAMES_15
#undef TROUPE_NAMES_16
#undef TROUPE_NAMES_17
#undef TROUPE_NAMES_18
#undef TROUPE_NAMES_19
#undef TROUPE_NAMES_20
#undef TROUPE_NAMES_21
#undef TROUPE_NAMES_22
#undef TROUPE_NAMES_23
#undef TROUPE_NAMES_24
#undef TROUPE_NAMES_25
#undef TROUPE_NAMES_26
#undef TROUPE_NAMES_27
#undef TROUPE_NAMES_28
#undef TROUPE_NAMES_29
#undef TROUPE_NAMES_30
#undef TROUPE_NAMES_31
#undef TROUPE_NAMES_32
#undef TROUPE_NAMES_33
#undef TROUPE_NAMES_34
#undef TROUPE_NAMES_35
#undef TROUPE_NAMES_36
#undef TROUPE_NAMES_37
#undef TROUPE_NAMES_38
#undef TROUPE_NAMES_39
#undef TROUPE_NAMES_40
#undef TROUPE_NAMES_41
#undef TROUPE_NAMES_42
#undef TROUPE_NAMES_43
#undef TROUPE_NAMES_44
#undef TROUPE_NAMES_45
#undef TROUPE_NAMES_46
#undef TROUPE_NAMES_47
#undef TROUPE_NAMES_48
#undef TROUPE_NAMES_49
#undef TROUPE_NAMES_50
#undef TROUPE_NAMES_51
#undef TROUPE_NAMES_52
#undef TROUPE_NAMES_53
#undef TROUPE_NAMES_54
#undef TROUPE_NAMES_55
#undef TROUPE_NAMES_56
#undef TROUPE_NAMES_57
#undef TROUPE_NAMES_58
#undef TROUPE_NAMES_59
#undef TROUPE_NAMES_60
#undef TROUPE_NAMES_61
#undef TROUPE_NAMES_62
#undef TROUPE_NAMES_63
#undef TROUPE_NAMES_64

/// A visitor whose return type lists the members' types without const.
struct MemberTypes {
  template <class... M>
  constexpr List<M...> operator()(const M&...) const noexcept {  // const: binds to a bit-field too
    return {};
  }
};
/// A visitor whose return type lists the members' types with their const. A bit-field is an error
/// here, since no non-const reference binds to it.
struct QualifiedMemberTypes {
  template <class... M>
  constexpr List<M...> operator()(M&...) const noexcept {
    return {};
  }
};
/// List of the member types, without const.
template <class T>
using members_of = decltype(with_members(std::declval<T&>(), MemberTypes{}));

/// Returns the size of a struct of these members in this order, each in storage of its own. A T
/// that is smaller has members that share storage: bit-fields or [[no_unique_address]].
template <class... M>
consteval std::size_t natural_size(List<M...>) {
  std::size_t offset = 0, alignment = 1;
  ((offset = (offset + alignof(M) - 1) / alignof(M) * alignof(M) + sizeof(M),
    alignment = alignment < alignof(M) ? alignof(M) : alignment),
   ...);
  return (offset + alignment - 1) / alignment * alignment;
}

/// What keeps an aggregate from being walked.
enum class Obstacle {
  none,
  base_class,
  no_default,
  c_array,
  union_member,
  too_many,
  bit_field,
  const_member
};

/// Returns the first obstacle of an aggregate. The order of the tests matters: each one compiles
/// only for a type that passed those before it. `T{}` must compile before initializers are counted.
/// Bindings need a count of members, which C arrays make wrong. The test for const members binds
/// non-const references, which is an error for bit-fields.
template <class T>
consteval Obstacle obstacle_of() {
  if constexpr (braces_take<T, 0, AnyBase<T>>) {
    return Obstacle::base_class;
  } else if constexpr (!braces_take<T, 0>) {
    return Obstacle::no_default;
  } else {
    constexpr std::size_t n = initializer_count<T>();
    if constexpr (n > kMaxMembers) {
      return Obstacle::too_many;
    } else if constexpr (!takes_empty_braces_everywhere<T>(std::make_index_sequence<n>{})) {
      return Obstacle::c_array;
    } else if constexpr (has_union_member<T>(std::make_index_sequence<n>{})) {
      return Obstacle::union_member;
    } else if constexpr (n == 0) {
      return Obstacle::none;
    } else if constexpr (natural_size(members_of<T>{}) > sizeof(T)) {
      return Obstacle::bit_field;
    } else if constexpr (!std::is_same_v<members_of<T>,
                                         decltype(with_members(std::declval<T&>(),
                                                               QualifiedMemberTypes{}))>) {
      return Obstacle::const_member;
    } else {
      return Obstacle::none;
    }
  }
}

}  // namespace troupe::detail
