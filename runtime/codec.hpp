/// Which values may cross between processes, and functions for programs that encode values
/// themselves.
///
///     struct Point { int x; double y; };                         // an aggregate: nothing to write
///     class Polygon {                                            // a class: say its parts
///       friend auto fields(Polygon& p) { return std::tie(p.name_, p.corners_); }
///     };
///
/// Types that may cross:
///  * numbers, enums, standard containers, strings, pair, tuple, optional, variant, chrono,
///    complex, and unique_ptr, which owns its value;
///  * Ref, Actor, Array and Tensor;
///  * aggregates of up to 64 members, which are visited member by member;
///  * classes with a friend fields();
///  * other trivially copyable types for which bytes_are_value is true.
/// Types that may not: pointers, spans, string_views, shared_ptr, std::function, unions, and
/// aggregates with base classes or C arrays. A static_assert says why, also when such a type is a
/// member of a trivially copyable struct.
#pragma once

#include "troupe/runtime/array.hpp"
#include "troupe/runtime/detail/encode.hpp"
#include "troupe/runtime/detail/explain.hpp"
#include "troupe/runtime/tensor.hpp"

namespace troupe {

/// True when a T can be an argument, a result or an object.
template <class T>
inline constexpr bool can_cross = detail::shape_of<std::remove_cvref_t<T>>.why == detail::Why::ok;

/// A 64-bit hash of the structure of T: the kinds, sizes and order of its parts, without names.
/// Equal for types that can read each other's encodings.
template <class T>
inline constexpr std::uint64_t fingerprint = detail::shape_of<std::remove_cvref_t<T>>.hash;

/// Returns the number of bytes of the encoding of `value`. Cost: linear in the number of elements,
/// constant for a run of trivial elements.
/// Errors: throws InvalidArgument for a value nested deeper than 1000 levels, or a variant without
/// a value.
template <class T>
std::size_t encoded_size(const T& value) {
  static_assert(detail::MustCross<T>::value);
  return detail::measure(value).size();
}

/// Returns the encoding of a value without Refs and Actors; a value with them needs a running
/// cluster, so put() it instead.
/// Errors: throws as encoded_size does, and InvalidArgument for a value with a Ref in it.
template <class T>
Blob encode(const T& value) {
  static_assert(detail::MustCross<T>::value);
  Blob bytes(encoded_size(value));
  std::vector<detail::ObjectHandle> handles;
  detail::encode_into(bytes, handles, value);
  if (!handles.empty())
    detail::throw_not_encodable("a value with a Ref in it cannot be encoded by itself");
  return bytes;
}

/// Returns the value whose encoding `bytes` is: the inverse of encode. Never reads outside `bytes`,
/// and allocates no more than a constant times their number. Throws InvalidArgument for bytes that
/// encode<T> cannot have made.
template <class T>
T decode(BlobView bytes) {
  static_assert(detail::MustCross<T>::value);
  return detail::decode_value<T>(bytes, {}, nullptr);
}

/// Returns whether a T can be a part of encode_parts. PartReader reads into a value that exists, so
/// unlike other values a part needs no default constructor.
template <class T>
consteval bool part_crosses() {
  if constexpr (detail::shape_of<T>.why == detail::Why::no_default)
    return true;
  else
    return detail::MustCross<T>::value;
}

/// Encodes values one after the other, without a struct around them. `room(size)` returns the
/// memory, a std::span<std::byte> of exactly that size; it is called once. Each part is copied
/// once. Throws as encode does; the error for a Ref in a part comes after the bytes are written.
template <class Room, class... T>
void encode_parts(Room&& room, const T&... parts) {
  static_assert((part_crosses<T>() && ...));
  detail::Sizer sizer;
  (detail::write(sizer, parts), ...);
  std::vector<detail::ObjectHandle> handles;
  detail::Writer writer(room(sizer.size()), handles);
  (detail::write(writer, parts), ...);
  if (!handles.empty())
    detail::throw_not_encodable("a value with a Ref in it cannot be encoded by itself");
}

/// Reads what encode_parts wrote: the same types in the same order. Reads, throws and allocates as
/// decode does. A part whose read() threw has an unspecified value.
class PartReader {
 public:
  /// `bytes` must live as long as the reader. `owner`, if given, owns them. An Array or Tensor in a
  /// part then shows its elements in place and keeps the owner alive, if they are aligned.
  explicit PartReader(BlobView bytes, std::shared_ptr<const void> owner = nullptr) noexcept
      : owner_(std::move(owner)), reader_(bytes, {}, &owner_) {}
  PartReader(const PartReader&) = delete;
  PartReader& operator=(const PartReader&) = delete;
  /// Replaces the value of `part` by the next part.
  template <class T>
  void read(T& part) {
    static_assert(part_crosses<T>());
    detail::read(reader_, part);
  }
  /// Throws InvalidArgument if bytes are left, which means that the writer wrote more parts.
  void finish() const { reader_.finish(); }

 private:
  std::shared_ptr<const void> owner_;
  detail::Reader reader_;
};

}  // namespace troupe
