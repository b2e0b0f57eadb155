/// Finds the name of a data member at compile time, from the compiler's spelling of a pointer to
/// it. Space (space.hpp) uses it to name parameters.
///
///     member_name<Hp>(&Hp::lr)    // "lr"; empty when Hp is no aggregate of up to 16 members
///                             // (an array counts each element) or has a base class
///
/// How: a pointer into an object that is declared but never defined is a valid template argument,
/// and __PRETTY_FUNCTION__ of g++ and clang prints it with the member's name. Boost.PFR and
/// reflect-cpp find field names in the same way.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace troupe::tune::detail {

template <class T>
struct Wrap {
  const T value;
};
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif
template <class T>
extern const Wrap<T> ghost;  // never defined: only addresses inside it are used

template <class P>
struct Box {
  P pointer;
};
template <class P>
Box(P) -> Box<P>;

/// Returns the compiler's spelling of V, copied into an array that a constexpr variable can hold.
template <auto V>
consteval auto spelled() {
  constexpr std::string_view text = __PRETTY_FUNCTION__;
  std::array<char, text.size()> out{};
  for (std::size_t i = 0; i < text.size(); ++i) out[i] = text[i];
  return out;
}

/// Returns the last identifier of a compiler's spelling.
constexpr std::string_view last_identifier(std::string_view text) {
  auto word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  std::size_t end = text.size();
  while (end > 0 && !word(text[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && word(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

/// Converts to any type: stands for an initialiser whose type is unknown.
struct AnyMember {
  template <class T>
  operator T() const;  // only ever named in unevaluated operands
};

/// Whether the aggregate T can be initialised with so many initialisers.
template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{((void)I, AnyMember{})...}; };
}

/// Converts to base classes of T only.
template <class T>
struct AnyBase {
  template <class B>
    requires(std::is_base_of_v<B, T> && !std::is_same_v<B, T>)
  operator B() const;
};

/// Whether the first initialiser of the aggregate T initialises a base class.
template <class T>
constexpr bool has_base() {
  return requires { T{AnyBase<T>{}}; };
}

/// Whether T can be initialised with A initialisers, then K of them in braces of their own, then R.
template <class T, std::size_t... A, std::size_t... K, std::size_t... R>
constexpr bool takes_nested(std::index_sequence<A...>, std::index_sequence<K...>,
                            std::index_sequence<R...>) {
  return requires {
    T{((void)A, AnyMember{})..., {((void)K, AnyMember{})...}, ((void)R, AnyMember{})...};
  };
}

/// Counts how many of the N initialisers belong to the member at place I. A member array takes one
/// for each element, since brace elision lets its elements stand without braces of their own. The
/// count is the largest K that T accepts in nested braces there, such that one more initialiser
/// after the braces does not fit.
template <class T, std::size_t N, std::size_t I, std::size_t K>
constexpr std::size_t extent_at() {
  if constexpr (K < 2) {
    return 1;
  } else if constexpr (takes_nested<T>(std::make_index_sequence<I>{}, std::make_index_sequence<K>{},
                                       std::make_index_sequence<N - I - K>{}) &&
                       !takes_nested<T>(std::make_index_sequence<I>{},
                                        std::make_index_sequence<K>{},
                                        std::make_index_sequence<N - I - K + 1>{})) {
    return K;
  } else {
    return extent_at<T, N, I, K - 1>();
  }
}

/// Counts the members that the initialisers from place I to N belong to.
template <class T, std::size_t N, std::size_t I = 0>
constexpr std::size_t members_from() {
  if constexpr (I >= N) {
    return 0;
  } else {
    return 1 + members_from<T, N, I + extent_at<T, N, I, N - I>()>();
  }
}

/// Counts the initialisers that the aggregate T takes, at most 16; 0 when T is no aggregate or
/// takes more.
template <class T, std::size_t N = 16>
constexpr std::size_t initialiser_count() {
  if constexpr (!std::is_aggregate_v<T>) {
    return 0;
  } else if constexpr (N == 16 && takes<T>(std::make_index_sequence<17>{})) {
    return 0;
  } else if constexpr (N == 0 || takes<T>(std::make_index_sequence<N>{})) {
    return N;
  } else {
    return initialiser_count<T, N - 1>();
  }
}

/// Counts the members of an aggregate; 0 when T is no aggregate, has a base class or takes more
/// than 16 initialisers.
template <class T>
constexpr std::size_t member_count() {
  if constexpr (!std::is_aggregate_v<T>) {
    return 0;
  } else if constexpr (has_base<T>()) {
    return 0;
  } else {
    return members_from<T, initialiser_count<T>()>();
  }
}

/// Returns the addresses of all members of v. A structured binding must name each member, hence one
/// line for each count.
template <class T>
constexpr auto pointers(T& v) {
  constexpr std::size_t n = member_count<std::remove_const_t<T>>();
  // clang-format off
  if constexpr (n == 1) { auto& [a] = v; return std::tuple{&a}; }
  else if constexpr (n == 2) { auto& [a, b] = v; return std::tuple{&a, &b}; }
  else if constexpr (n == 3) { auto& [a, b, c] = v; return std::tuple{&a, &b, &c}; }
  else if constexpr (n == 4) { auto& [a, b, c, d] = v; return std::tuple{&a, &b, &c, &d}; }
  else if constexpr (n == 5) { auto& [a, b, c, d, e] = v; return std::tuple{&a, &b, &c, &d, &e}; }
  else if constexpr (n == 6) { auto& [a, b, c, d, e, f] = v; return std::tuple{&a, &b, &c, &d, &e, &f}; }
  else if constexpr (n == 7) { auto& [a, b, c, d, e, f, g] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g}; }
  else if constexpr (n == 8) { auto& [a, b, c, d, e, f, g, h] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g, &h}; }
  else if constexpr (n == 9) { auto& [a, b, c, d, e, f, g, h, i] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g, &h, &i}; }
  else if constexpr (n == 10) { auto& [a, b, c, d, e, f, g, h, i, j] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g, &h, &i, &j}; }
  else if constexpr (n == 11) { auto& [a, b, c, d, e, f, g, h, i, j, k] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k}; }
  else if constexpr (n == 12) { auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l}; }
  else if constexpr (n == 13) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m}; }
  else if constexpr (n == 14) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m, &o}; }
  else if constexpr (n == 15) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m, &o, &p}; }
  else if constexpr (n == 16) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q] = v; return std::tuple{&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m, &o, &p, &q}; }
  else return std::tuple{};
  // clang-format on
}

template <class T, std::size_t I>
inline constexpr auto spelled_member = spelled<Box{std::get<I>(pointers(ghost<T>.value))}>();

/// Returns the name of the member of `probe` that lies at the address `wanted`.
template <class T, class M, std::size_t... I>
std::string find_member([[maybe_unused]] const T& probe, [[maybe_unused]] const M* wanted,
                        std::index_sequence<I...>) {
  std::string name;
  [[maybe_unused]] const auto at = pointers(probe);
  ((static_cast<const void*>(std::get<I>(at)) == static_cast<const void*>(wanted)
        ? void(name = std::string(last_identifier(
                   std::string_view(spelled_member<T, I>.data(), spelled_member<T, I>.size()))))
        : void()),
   ...);
  return name;
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

/// Returns the member's name, or an empty text when it cannot be found: T must have a default
/// constructor and be an aggregate that member_count() can count.
template <class T, class M>
std::string member_name(M T::* member) {
  if constexpr (member_count<T>() > 0 && std::is_default_constructible_v<T>) {
    const T probe{};
    return find_member(probe, std::addressof(probe.*member),
                       std::make_index_sequence<member_count<T>()>{});
  } else {
    return {};
  }
}

/// Returns the name of a member given as a template argument; works for every class.
template <auto Member>
std::string member_name() {
  static constexpr auto text = spelled<Member>();
  return std::string(last_identifier(std::string_view(text.data(), text.size())));
}

}  // namespace troupe::tune::detail
