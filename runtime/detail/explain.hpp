/// The messages for types that cannot cross to another process, as static_asserts. They come first
/// in a compiler's output, with the type in the note below. One assert exists for each value of Why
/// (shape.hpp).
#pragma once

#include "troupe/runtime/detail/shape.hpp"

namespace troupe::detail {

/// Fails to compile, with a message, if T cannot cross; `value` says whether it can.
template <class T>
struct MustCross {
  static constexpr Why why = shape_of<T>.why;
  static_assert(why != Why::pointer,
                "troupe: a pointer cannot cross to another process: pass the value, a "
                "std::unique_ptr that owns it, or "
                "a Ref");
  static_assert(why != Why::view,
                "troupe: a span or string_view cannot be stored in a value or returned: it names "
                "memory of this "
                "process; use a vector, a string or a troupe::Array");
  static_assert(
      why != Why::shared,
      "troupe: a shared_ptr cannot cross, since sharing ends at the process: pass the value, a "
      "std::unique_ptr, or a Ref");
  static_assert(why != Why::unique_array,
                "troupe: a unique_ptr crosses only as unique_ptr<T> with the default deleter: an "
                "array does not know "
                "its size, a deleter is code; use a vector");
  static_assert(why != Why::reference,
                "troupe: a type with reference members cannot cross: a reference names a thing of "
                "this process");
  static_assert(why != Why::function,
                "troupe: a std::function cannot cross: it may hold anything; pass the code in "
                "angle brackets and the "
                "data as arguments");
  static_assert(why != Why::task,
                "troupe: a Task cannot cross: return it from the function, and its value crosses");
  static_assert(why != Why::context,
                "troupe: a Context cannot cross: take Context& as the first parameter instead");
  static_assert(why != Why::c_array,
                "troupe: an aggregate with a C array (or a member that has no default constructor) "
                "cannot be walked: "
                "use std::array, or give the type a friend fields()");
  static_assert(why != Why::base_class,
                "troupe: an aggregate with a base class cannot be walked: make the base a member, "
                "or give the type a "
                "friend fields()");
  static_assert(why != Why::no_default,
                "troupe: this type cannot be made with {}: it has reference members or no default "
                "constructor, and "
                "decoding begins with an empty value");
  static_assert(
      why != Why::union_type,
      "troupe: a union cannot cross, since it does not say what it holds: use std::variant");
  static_assert(why != Why::too_many,
                "troupe: an aggregate with more than 64 members cannot be walked: group them, or "
                "give the type a "
                "friend fields()");
  static_assert(why != Why::bit_field,
                "troupe: an aggregate with bit-fields or [[no_unique_address]] members cannot be "
                "walked: use whole "
                "members, or give the type a friend fields()");
  static_assert(why != Why::const_member,
                "troupe: const members cannot be decoded into: make them non-const, "
                "or give the type a "
                "friend fields()");
  static_assert(
      why != Why::not_trivial,
      "troupe: bytes_are_value is for trivially copyable types with an alignment up to 64");
  static_assert(
      why != Why::array_of_what,
      "troupe: a troupe::Array holds trivially copyable values only (no bool): use a vector");
  static_assert(why != Why::opaque,
                "troupe: this type cannot cross: it is no standard container and no aggregate; "
                "give it a friend "
                "fields(), e.g. friend auto fields(Point& p) { return std::tie(p.x_, p.y_); }");
  static constexpr bool value = why == Why::ok;
};

}  // namespace troupe::detail
