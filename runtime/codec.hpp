/// How values cross between processes, for those who want to encode one themselves.
///
///     struct Point { int x; double y; };                         // an aggregate: nothing to write
///     class Polygon {                                            // a class: say its parts
///       friend auto fields(Polygon& p) { return std::tie(p.name_, p.corners_); }
///     };
///
/// What may cross: numbers, enums, the standard's containers, strings, pair, tuple, optional,
/// variant, unique_ptr (it owns), chrono, complex; Ref, Actor, Array and Tensor; aggregates of up
/// to 64 members, walked member by member; classes with a friend fields(); and other trivially
/// copyable types for which bytes_are_value is true. What may not (pointers, spans, string_views,
/// shared_ptr, std::function, unions, base classes and C arrays in aggregates) is refused with a
/// sentence, also when it hides inside a trivially copyable struct.
#pragma once

#include "troupe/runtime/array.hpp"
#include "troupe/runtime/detail/encode.hpp"
#include "troupe/runtime/detail/explain.hpp"
#include "troupe/runtime/tensor.hpp"

namespace troupe {

/// True when a T can be an argument, a result or an object.
template <class T>
inline constexpr bool can_cross = detail::shape_of<std::remove_cvref_t<T>>.why == detail::Why::ok;

/// A 64-bit hash of the structure of T: kinds, sizes and order of what it consists of, no names.
/// Equal for types that read each other's bytes.
template <class T>
inline constexpr std::uint64_t fingerprint = detail::shape_of<std::remove_cvref_t<T>>.hash;

/// Bytes of the encoding of `value`. O(size), O(1) for runs of trivial elements. Throws
/// InvalidArgument for a value nested deeper than 1000 levels or a variant without a value.
template <class T>
std::size_t encoded_size(const T& value) {
  static_assert(detail::MustCross<T>::value);
  return detail::measure(value).size();
}

/// The encoding of a value that holds no Ref and no Actor (those need a running cluster: put them
/// instead). Throws as encoded_size does, and InvalidArgument when there is a Ref in it after all.
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

/// The inverse. Throws InvalidArgument for any bytes that encode<T> cannot have made; never reads
/// outside `bytes`, and allocates no more than a constant times their number.
template <class T>
T decode(BlobView bytes) {
  static_assert(detail::MustCross<T>::value);
  return detail::decode_value<T>(bytes, {}, nullptr);
}

/// Whether a T can be a part. Unlike other values it is read into one that exists, so it needs no
/// default constructor.
template <class T>
consteval bool part_crosses() {
  if constexpr (detail::shape_of<T>.why == detail::Why::no_default)
    return true;
  else
    return detail::MustCross<T>::value;
}

/// Encodes values one after the other into memory that `room(size)` gives: a std::span<std::byte>
/// of exactly that size, asked for once. The parts need no struct around them, and nothing is
/// copied twice. Throws as encode does, then after the bytes are written.
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

/// The inverse of encode_parts: the same types in the same order. Reads, throws and allocates as
/// decode does; a part whose read() threw has an unspecified value.
class PartReader {
 public:
  /// `bytes` must live as long as the reader. `owner`, when it is given, owns them: an Array or
  /// Tensor in a part then shows them in place and keeps the owner alive, where its elements are
  /// aligned.
  explicit PartReader(BlobView bytes, std::shared_ptr<const void> owner = nullptr) noexcept
      : owner_(std::move(owner)), reader_(bytes, {}, &owner_) {}
  PartReader(const PartReader&) = delete;
  PartReader& operator=(const PartReader&) = delete;
  /// Replaces the value of `part` by the next one.
  template <class T>
  void read(T& part) {
    static_assert(part_crosses<T>());
    detail::read(reader_, part);
  }
  /// Throws InvalidArgument when bytes are left: others wrote more parts.
  void finish() const { reader_.finish(); }

 private:
  std::shared_ptr<const void> owner_;
  detail::Reader reader_;
};

}  // namespace troupe
