/// Describes a type's encoding, computed once per type at compile time: whether a value of the type
/// may cross to another process, whether its memory is its encoding, the fewest bytes that it
/// takes, and a fingerprint of its structure. encode.hpp chooses its code by these answers;
/// explain.hpp turns a refusal into a message.
///
///     static_assert(shape_of<std::vector<int>>.why == Why::ok);
///
/// A container is recognised by the interface of the standard ones (begin, end, size, clear,
/// push_back or emplace_hint). So this file needs no container's header, and containers of other
/// libraries cross as well.
#pragma once

#include "troupe/runtime/detail/walk.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

namespace troupe {

template <class T>
class Ref;
class AnyRef;
template <class A>
class Actor;
template <class T>
class Array;
class Context;
class ActorContext;
template <class T>
class Task;

/// Specialize to true for a trivially copyable type whose bytes are its whole value: no pointers,
/// no file descriptors, nothing else that only this process understands. Such a type crosses by
/// memcpy, and its members are not examined.
template <class T>
inline constexpr bool bytes_are_value = false;

}  // namespace troupe

namespace troupe::detail {

/// An empty type that carries T as an argument, to choose an overload.
template <class T>
struct Tag {
  using type = T;
};
/// Returns the compiler's text for T, which differs between types. It serves as the identity of T
/// in constant expressions, where typeid is of no use. (Addresses of variable templates would do,
/// but g++ with sanitizers does not compare them in constant expressions.)
template <class T>
constexpr std::string_view type_text() {
  return __PRETTY_FUNCTION__;
}

// --- kinds of types
//
// Each is_x<T> is true for the specializations of the class template x. is_tuple includes
// std::pair. is_unique is true only with the default deleter, and not for arrays.

template <class T>
inline constexpr bool is_ref = false;
template <class T>
inline constexpr bool is_ref<Ref<T>> = true;
template <class T>
inline constexpr bool is_actor = false;
template <class A>
inline constexpr bool is_actor<Actor<A>> = true;
template <class T>
inline constexpr bool is_array = false;
template <class T>
inline constexpr bool is_array<Array<T>> = true;
template <class T>
inline constexpr bool is_task = false;
template <class T>
inline constexpr bool is_task<Task<T>> = true;
template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_variant = false;
template <class... T>
inline constexpr bool is_variant<std::variant<T...>> = true;
template <class T>
inline constexpr bool is_unique = false;
template <class T>
inline constexpr bool is_unique<std::unique_ptr<T>> = !std::is_array_v<T>;
template <class T>
inline constexpr bool is_tuple = false;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class T>
inline constexpr bool is_duration = false;
template <class R, class P>
inline constexpr bool is_duration<std::chrono::duration<R, P>> = true;
template <class T>
inline constexpr bool is_time_point = false;
template <class C, class D>
inline constexpr bool is_time_point<std::chrono::time_point<C, D>> = true;
template <class T>
inline constexpr bool is_bit_vector = false;
template <class A>
inline constexpr bool is_bit_vector<std::vector<bool, A>> = true;
template <class T>
inline constexpr bool is_span = false;
template <class T, std::size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;
template <class T>
inline constexpr bool is_string_view = false;
template <class C, class T>
inline constexpr bool is_string_view<std::basic_string_view<C, T>> = true;

/// std::complex and types like it, recognised by their members so that <complex> is not included.
template <class T>
concept complex_like = std::is_trivially_copyable_v<T> && requires(T& t) {
  typename T::value_type;
  requires std::is_floating_point_v<typename T::value_type>;
  requires sizeof(T) == 2 * sizeof(typename T::value_type);
  t.real(typename T::value_type{});
  t.imag(typename T::value_type{});
};
/// A type with the members that all standard containers have.
template <class T>
concept container_like = requires(T& t, const T& c) {
  typename T::value_type;
  c.begin();
  c.end();
  c.size();
  t.clear();
};
template <class T>
concept sequence_like =
    container_like<T> && requires(T& t) { t.push_back(std::declval<typename T::value_type>()); };
template <class T>
concept map_like = container_like<T> && requires(T& t) {
  typename T::mapped_type;
  t.emplace_hint(t.end(), std::declval<typename T::key_type>(),
                 std::declval<typename T::mapped_type>());
};
template <class T>
concept set_like = container_like<T> && requires(T& t) {
  typename T::key_type;
  t.emplace_hint(t.end(), std::declval<typename T::key_type>());
};
/// A sequence whose elements lie in one piece of memory and whose size can be set before it is
/// filled.
template <class T>
concept contiguous_like = sequence_like<T> && requires(T& t) {
  t.resize(std::size_t{});
  requires std::is_pointer_v<decltype(t.data())>;
};
/// A class with a friend `fields(T&)`, found by argument-dependent lookup. It returns std::tie of
/// the members that make up the value.
template <class T>
concept has_fields = requires(T& t) { fields(t); };

template <class T>
using fields_of = decltype(fields(std::declval<T&>()));

/// Why a type may not cross; each reason has its sentence in explain.hpp.
enum class Why : std::uint8_t {
  ok,
  pointer,
  view,
  shared,
  unique_array,
  reference,
  function,
  task,
  context,
  c_array,
  base_class,
  no_default,
  union_type,
  too_many,
  bit_field,
  const_member,
  not_trivial,
  array_of_what,
  opaque,
};

/// The description of a type. Two programs whose types have equal hashes read each other's values.
struct Shape {
  Why why = Why::ok;
  bool bytes = false;       ///< the memory is the encoding, and any bytes are a value
  bool recursive = false;   ///< the type, or a type inside it, contains itself
  std::uint32_t least = 1;  ///< the fewest bytes of an encoding, at least 1
  std::uint64_t hash = 0;   ///< the fingerprint of the structure
};

/// The classes whose description is under way, innermost first: a list on the stack of the constant
/// evaluation. describe() ends at a class that is in it, so a recursive type has a finite
/// description.
struct Seen {
  std::string_view type;
  const Seen* up;
};

/// Returns a hash of two hashes; their order matters. The first line is boost::hash_combine for 64
/// bits, the second is a round of the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t z = a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2));
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  return z ^ (z >> 27);
}

/// Folds the shapes of the parts of a value into the shape of the whole. The first part that may
/// not cross gives the reason.
struct Fold {
  Shape shape{.bytes = true, .least = 0};
  constexpr void add(const Shape& part) noexcept {
    if (shape.why == Why::ok) shape.why = part.why;
    shape.bytes = shape.bytes && part.bytes;
    shape.recursive = shape.recursive || part.recursive;
    shape.least += part.least;
    shape.hash = mix(shape.hash, part.hash);
  }
  constexpr Shape done(std::uint64_t kind, bool bytes) noexcept {
    shape.hash = mix(shape.hash, kind);
    shape.bytes = shape.bytes && bytes;
    if (shape.least == 0)
      shape.least = 1;  // an empty value takes a byte, so that Reader::count bounds counts
    return shape;
  }
};

/// Describes T. `up` lists the classes around T whose description is under way.
template <class T>
constexpr Shape describe(const Seen* up);

// In what follows `kind` is a number that stands for the kind of type in the hash. Hashes are
// compared between builds, and named objects keep them on disk, so a kind's number never changes.

/// Describes values that consist of all these parts, in this order.
template <class... T>
constexpr Shape describe_all(List<T...>, std::uint64_t kind, bool bytes,
                             [[maybe_unused]] const Seen* up) {
  Fold fold;
  (fold.add(describe<T>(up)), ...);
  return fold.done(mix(kind, sizeof...(T)), bytes);
}
template <class... T>
constexpr Shape describe_all(Tag<std::tuple<T...>>, std::uint64_t kind, const Seen* up) {
  return describe_all(List<std::remove_cvref_t<T>...>{}, kind, false, up);
}
template <class A, class B>
constexpr Shape describe_all(Tag<std::pair<A, B>>, std::uint64_t kind, const Seen* up) {
  return describe_all(List<A, B>{}, kind, false, up);
}
template <class... T>
constexpr Shape describe_all(Tag<std::variant<T...>>, std::uint64_t kind, const Seen* up) {
  Shape shape = describe_all(List<T...>{}, kind, false, up);
  shape.least = 1;
  return shape;
}

/// Describes any number of elements behind their count.
constexpr Shape describe_many(Shape element, std::uint64_t kind) {
  return {.why = element.why,
          .recursive = element.recursive,
          .least = 1,
          .hash = mix(kind, element.hash)};
}
constexpr Shape refused(Why why) {
  return {.why = why, .hash = static_cast<std::uint64_t>(why)};
}

constexpr Why why_of(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::none: return Why::ok;
    case Obstacle::base_class: return Why::base_class;
    case Obstacle::no_default: return Why::no_default;
    case Obstacle::c_array: return Why::c_array;
    case Obstacle::union_member: return Why::union_type;
    case Obstacle::too_many: return Why::too_many;
    case Obstacle::bit_field: return Why::bit_field;
    case Obstacle::const_member: return Why::const_member;
  }
  return Why::opaque;
}

template <class T>
constexpr Shape describe_aggregate(const Seen* up) {
  constexpr Obstacle obstacle = obstacle_of<T>();
  if constexpr (obstacle != Obstacle::none) {
    return refused(why_of(obstacle));
  } else if constexpr (member_count<T>() == 0) {
    return {.least = 1, .hash = mix(16, 0)};
  } else {
    return describe_all(members_of<T>{}, 16, std::is_trivially_copyable_v<T> && alignof(T) <= 64,
                        up);
  }
}

/// Describes a type for which is_known is true: numbers, enums, vocabulary types of the standard
/// library, and troupe's handles. A bool is no run of bytes, since only 0 and 1 are values of it.
template <class T>
constexpr Shape describe_known(const Seen* up) {
  if constexpr (std::is_same_v<T, bool>) {
    return {.least = 1, .hash = mix(1, 1)};
  } else if constexpr (std::is_arithmetic_v<T>) {
    return {.bytes = true,
            .least = sizeof(T),
            .hash = mix(std::is_floating_point_v<T> ? 2
                        : std::is_signed_v<T>       ? 3
                                                    : 4,
                        sizeof(T))};
  } else if constexpr (std::is_enum_v<T>) {
    return {.bytes = !std::is_same_v<std::underlying_type_t<T>, bool>,
            .least = sizeof(T),
            .hash = mix(5, sizeof(T))};
  } else if constexpr (is_duration<T>) {
    return {.bytes = describe<typename T::rep>(up).bytes,
            .least = sizeof(T),
            .hash = mix(mix(7, T::period::den), mix(T::period::num, sizeof(T)))};
  } else if constexpr (is_time_point<T>) {
    return describe<typename T::duration>(up);
  } else if constexpr (is_ref<T> || std::is_same_v<T, AnyRef>) {
    return {.least = 1, .hash = mix(8, 0)};
  } else if constexpr (is_actor<T>) {
    return {.least = 17, .hash = mix(9, 0)};  // 16 bytes of ActorId, then the handle's index
  } else if constexpr (is_optional<T>) {
    return describe_many(describe<typename T::value_type>(up), 10);
  } else if constexpr (is_unique<T>) {
    return describe_many(describe<std::remove_const_t<typename T::element_type>>(up), 11);
  } else if constexpr (is_variant<T>) {
    return describe_all(Tag<T>{}, 12, up);
  } else if constexpr (is_tuple<T>) {
    return describe_all(Tag<T>{}, 13, up);
  } else if constexpr (is_std_array<T>) {
    Shape element = describe<std::remove_const_t<typename T::value_type>>(up);
    element.hash = mix(mix(14, std::tuple_size_v<T>), element.hash);
    element.least = std::tuple_size_v<T> == 0
                        ? 1
                        : element.least * static_cast<std::uint32_t>(std::tuple_size_v<T>);
    element.bytes = element.bytes && std::tuple_size_v<T> != 0;
    return element;
  } else if constexpr (is_array<T>) {
    const Shape element = describe<typename T::value_type>(up);
    return element.bytes || element.why != Why::ok ? describe_many(element, 15)
                                                   : refused(Why::array_of_what);
  } else if constexpr (complex_like<T>) {
    return {.bytes = true, .least = sizeof(T), .hash = mix(6, sizeof(T))};
  } else {
    return describe_many(describe<bool>(up), 15);  // vector<bool>
  }
}

/// True for the types that describe_known, write_known and read_known handle.
template <class T>
consteval bool known() {
  if constexpr (is_ref<T> || std::is_same_v<T, AnyRef> || is_actor<T> || is_array<T>) {
    return true;  // perhaps incomplete here, so ask it nothing that needs a complete type
  } else {
    return std::is_arithmetic_v<T> || std::is_enum_v<T> || is_duration<T> || is_time_point<T> ||
           is_optional<T> || is_unique<T> || is_variant<T> || is_tuple<T> || is_std_array<T> ||
           is_bit_vector<T> || complex_like<T>;
  }
}
template <class T>
inline constexpr bool is_known = known<T>();

/// Returns why T never crosses, or Why::ok. std::unique_ptr with another deleter, std::shared_ptr
/// and std::function are recognised by their members. unique_ptr<T> itself is known and does not
/// come here.
template <class T>
consteval Why refusal_of() {
  if constexpr (std::is_reference_v<T>) {
    return Why::reference;
  } else if constexpr (std::is_array_v<T>) {
    return Why::c_array;
  } else if constexpr (std::is_pointer_v<T> || std::is_member_pointer_v<T> ||
                       std::is_null_pointer_v<T>) {
    return Why::pointer;
  } else if constexpr (is_span<T> || is_string_view<T>) {
    return Why::view;
  } else if constexpr (std::is_union_v<T>) {
    return Why::union_type;
  } else if constexpr (is_task<T>) {
    return Why::task;
  } else if constexpr (std::is_same_v<T, Context> || std::is_same_v<T, ActorContext>) {
    return Why::context;
  } else if constexpr (std::is_class_v<T> && requires {
                         typename T::element_type;
                         typename T::deleter_type;
                       }) {
    return Why::unique_array;
  } else if constexpr (std::is_class_v<T> && requires(T t) {
                         typename T::element_type;
                         t.use_count();
                       }) {
    return Why::shared;
  } else if constexpr (std::is_class_v<T> && requires(T t) {
                         typename T::result_type;
                         t.target_type();
                       }) {
    return Why::function;
  } else {
    return Why::ok;
  }
}

/// Describes a class that is neither known nor refused. What the user declares comes first:
/// bytes_are_value, then fields(). Containers come before aggregates, since an aggregate may have a
/// container's interface.
template <class T>
constexpr Shape describe_class(const Seen* up) {
  if constexpr (bytes_are_value<T>) {
    return std::is_trivially_copyable_v<T> && alignof(T) <= 64
               ? Shape{.bytes = true, .least = sizeof(T), .hash = mix(17, sizeof(T))}
               : refused(Why::not_trivial);
  } else if constexpr (has_fields<T>) {
    if constexpr (!requires { T{}; })
      return refused(Why::no_default);
    else
      return describe_all(Tag<fields_of<T>>{}, 18, up);
  } else if constexpr (map_like<T>) {
    const Shape key = describe<typename T::key_type>(up);
    const Shape mapped = describe<typename T::mapped_type>(up);
    Fold fold;
    fold.add(key);
    fold.add(mapped);
    return describe_many(fold.done(19, false), 19);
  } else if constexpr (set_like<T>) {
    return describe_many(describe<typename T::key_type>(up), 20);
  } else if constexpr (sequence_like<T>) {
    return describe_many(describe<typename T::value_type>(up), 15);
  } else if constexpr (std::is_aggregate_v<T>) {
    return describe_aggregate<T>(up);
  } else if constexpr (std::is_same_v<T, std::monostate>) {
    return {.least = 1, .hash = mix(16, 0)};
  } else {
    return refused(Why::opaque);
  }
}

template <class T>
constexpr Shape describe(const Seen* up) {
  if constexpr (std::is_const_v<T>) {
    return refused(Why::const_member);
  } else if constexpr (is_known<T>) {
    return describe_known<T>(up);
  } else if constexpr (refusal_of<T>() != Why::ok) {
    return refused(refusal_of<T>());
  } else if constexpr (std::is_class_v<T>) {
    // The distance to the enclosing T stands for it in the hash, like a De Bruijn index. The hash
    // then says which level recurs, without the names of types.
    std::uint64_t distance = 0;
    for (const Seen* seen = up; seen != nullptr; seen = seen->up, ++distance)
      if (seen->type == type_text<T>()) return {.recursive = true, .hash = mix(21, distance)};
    const Seen here{type_text<T>(), up};
    return describe_class<T>(&here);
  } else {
    return refused(Why::opaque);
  }
}

/// The description of T, computed once per type.
template <class T>
inline constexpr Shape shape_of = describe<T>(nullptr);

}  // namespace troupe::detail
