/// Encodes and decodes values by the shape of their types (shape.hpp). The same write() serves the
/// sink that counts and the sink that writes (wire.hpp), so the two passes cannot disagree.
///
/// write() and read() choose by type, at compile time and in the same order: raw bytes, known
/// types, then classes by fields(), container interface or members. An overload set would need a
/// declaration for each type before its first use inside another type; `if constexpr` does not.
#pragma once

#include "troupe/runtime/detail/shape.hpp"
#include "troupe/runtime/detail/wire.hpp"
#include "troupe/runtime/ref.hpp"

namespace troupe::detail {

/// Returns the handle of an actor that was found inside a value. Throws Unavailable outside run()
/// and Session.
TROUPE_API ActorHandle adopt_actor(ActorId id, ObjectHandle lifetime);

template <class T, class Sink>
void write(Sink& sink, const T& value);
template <class T>
void read(Reader& reader, T& out);

/// A container whose elements are copied as one run of bytes, since they lie in one piece and the
/// memory of each one is its encoding.
template <class T>
concept byte_run = contiguous_like<T> && shape_of<typename T::value_type>.bytes;

template <class T, class Sink>
void write_run(Sink& sink, const T* data, std::size_t n) {
  sink.varint(n);
  sink.align(run_alignment(n * sizeof(T), alignof(T)));
  sink.raw(data, n * sizeof(T));
}

/// Writes a vector<bool> as its count and eight elements to a byte, the first in the lowest bit.
template <class T, class Sink>
void write_bits(Sink& sink, const T& bits) {
  sink.varint(bits.size());
  std::uint8_t byte = 0;
  std::size_t i = 0;
  for (const bool bit : bits) {
    byte = static_cast<std::uint8_t>(byte | (static_cast<unsigned>(bit) << (i & 7)));
    if ((++i & 7) == 0) {
      sink.byte(byte);
      byte = 0;
    }
  }
  if ((i & 7) != 0) sink.byte(byte);
}

/// Writes a value of a type that describe_known describes.
template <class T, class Sink>
void write_known(Sink& sink, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    sink.byte(value ? 1 : 0);
  } else if constexpr (std::is_enum_v<T>) {
    write(sink, static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (is_duration<T>) {
    write(sink, value.count());
  } else if constexpr (is_time_point<T>) {
    write(sink, value.time_since_epoch());
  } else if constexpr (is_ref<T> || std::is_same_v<T, AnyRef>) {
    sink.handle(Access::handle(value));
  } else if constexpr (is_actor<T>) {
    const ActorHandle& actor = Access::actor(value);
    sink.raw(&actor.id, sizeof actor.id);
    sink.handle(actor.lifetime);
  } else if constexpr (is_optional<T> || is_unique<T>) {
    sink.byte(value ? 1 : 0);
    if (value) write(sink, *value);
  } else if constexpr (is_variant<T>) {
    if (value.valueless_by_exception())
      throw_not_encodable("a variant lost its value to an exception");
    sink.varint(value.index());
    std::visit([&](const auto& alternative) { write(sink, alternative); }, value);
  } else if constexpr (is_tuple<T>) {
    if constexpr (std::tuple_size_v<T> == 0) sink.byte(0);
    std::apply([&](const auto&... part) { (write(sink, part), ...); }, value);
  } else if constexpr (is_std_array<T>) {
    if constexpr (std::tuple_size_v<T> == 0) sink.byte(0);
    for (const auto& element : value) write(sink, element);
  } else if constexpr (is_array<T>) {
    write_run(sink, value.data(), value.size());
  } else {
    write_bits(sink, value);
  }
}

/// Writes a value of a class that describe_class describes. A class without members takes one byte.
template <class T, class Sink>
void write_class(Sink& sink, const T& value) {
  if constexpr (has_fields<T>) {
    // fields() takes a T& because decoding fills the members. It forms references and changes
    // nothing, so the cast is safe for a value that was const.
    const auto parts = fields(const_cast<T&>(value));
    if constexpr (std::tuple_size_v<std::remove_cvref_t<decltype(parts)>> == 0) sink.byte(0);
    std::apply([&](const auto&... part) { (write(sink, part), ...); }, parts);
  } else if constexpr (byte_run<T>) {
    write_run(sink, value.data(), value.size());
  } else if constexpr (container_like<T>) {
    sink.varint(value.size());
    for (const auto& element : value) {
      if constexpr (map_like<T>) {
        write(sink, element.first);
        write(sink, element.second);
      } else {
        write(sink, element);
      }
    }
  } else if constexpr (member_count<T>() == 0) {
    sink.byte(0);
  } else {
    with_members(value, [&](const auto&... member) { (write(sink, member), ...); });
  }
}

/// Writes a value. A recursive type counts its depth; a container does not, since its elements do.
template <class T, class Sink>
void write(Sink& sink, const T& value) {
  if constexpr (is_span<T>) {
    write_run(sink, value.data(), value.size());
  } else if constexpr (is_string_view<T>) {
    write_run(sink, value.data(), value.size());
  } else if constexpr (shape_of<T>.bytes) {
    sink.raw(std::addressof(value), sizeof(T));
  } else if constexpr (is_known<T>) {
    write_known(sink, value);
  } else if constexpr (shape_of<T>.recursive && !container_like<T>) {
    sink.enter();
    write_class(sink, value);
    sink.leave();
  } else {
    write_class(sink, value);
  }
}

// --- decoding

template <class T>
bool is_aligned(const std::byte* data) noexcept {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(T) == 0;
}

/// Reads a run of elements as an Array. The Array uses the bytes in place if they are aligned and
/// the reader has a `keep` that owns them; else it owns a copy.
template <class T>
Array<T> read_array(Reader& reader) {
  const std::size_t n = reader.count(sizeof(T));
  const std::byte* data = reader.run(n, sizeof(T), alignof(T));
  if (n == 0) return {};
  if (reader.keep() != nullptr && *reader.keep() != nullptr && is_aligned<T>(data))
    return Access::make_array<Array<T>>(*reader.keep(), reinterpret_cast<const T*>(data), n);
  std::shared_ptr<T[]> copy(new T[n]);
  std::memcpy(static_cast<void*>(copy.get()), data, n * sizeof(T));
  const T* first = copy.get();
  return Access::make_array<Array<T>>(std::move(copy), first, n);
}

/// Reads alternative `index` of a variant. The fold compares the index with each I and stops at the
/// one that is equal, which turns a number of run time into a template argument.
template <class T, std::size_t... I>
void read_alternative(Reader& reader, T& out, std::uint64_t index, std::index_sequence<I...>) {
  const bool found = ((index == I && (read(reader, out.template emplace<I>()), true)) || ...);
  if (!found) throw_malformed("a variant names an alternative that it does not have");
}

template <class T>
void read_bits(Reader& reader, T& out) {
  const std::uint64_t n = reader.varint();
  if (n / 8 > reader.left()) throw_malformed("it names more elements than it has bytes for");
  const std::byte* data = reader.take(static_cast<std::size_t>((n + 7) / 8));
  out.resize(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = ((static_cast<unsigned>(data[i / 8]) >> (i & 7)) & 1) != 0;
}

template <class T>
void read_nothing(Reader& reader, T&) {
  if (reader.byte() != 0) throw_malformed("an empty value is not empty");
}

template <class T>
void read_known(Reader& reader, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    out = reader.flag();
  } else if constexpr (std::is_enum_v<T>) {
    std::underlying_type_t<T> raw{};
    read(reader, raw);
    out = static_cast<T>(raw);
  } else if constexpr (is_duration<T>) {
    typename T::rep raw{};
    read(reader, raw);
    out = T(raw);
  } else if constexpr (is_time_point<T>) {
    typename T::duration raw{};
    read(reader, raw);
    out = T(raw);
  } else if constexpr (is_ref<T> || std::is_same_v<T, AnyRef>) {
    out = Access::make_ref<T>(reader.handle());
  } else if constexpr (is_actor<T>) {
    ActorId id;
    reader.raw(&id, sizeof id);
    ObjectHandle lifetime = reader.handle();
    out = id ? Access::make_actor<T>(adopt_actor(id, std::move(lifetime))) : T{};
  } else if constexpr (is_optional<T>) {
    out.reset();
    if (reader.flag()) read(reader, out.emplace());
  } else if constexpr (is_unique<T>) {
    out.reset();
    if (reader.flag()) {
      auto made = std::make_unique<std::remove_const_t<typename T::element_type>>();
      read(reader, *made);
      out = std::move(made);
    }
  } else if constexpr (is_variant<T>) {
    read_alternative(reader, out, reader.varint(),
                     std::make_index_sequence<std::variant_size_v<T>>{});
  } else if constexpr (is_tuple<T>) {
    if constexpr (std::tuple_size_v<T> == 0) read_nothing(reader, out);
    std::apply([&](auto&... part) { (read(reader, part), ...); }, out);
  } else if constexpr (is_std_array<T>) {
    if constexpr (std::tuple_size_v<T> == 0) read_nothing(reader, out);
    for (auto& element : out) read(reader, element);
  } else if constexpr (is_array<T>) {
    out = read_array<typename T::value_type>(reader);
  } else {
    read_bits(reader, out);
  }
}

template <class T>
void read_container(Reader& reader, T& out) {
  out.clear();
  if constexpr (byte_run<T>) {
    using E = typename T::value_type;
    const std::size_t n = reader.count(sizeof(E));
    const std::byte* data = reader.run(n, sizeof(E), alignof(E));
    if (n == 0) return;
    if (is_aligned<E>(data)) {
      out.assign(reinterpret_cast<const E*>(data), reinterpret_cast<const E*>(data) + n);
    } else {
      out.resize(n);
      std::memcpy(static_cast<void*>(out.data()), data, n * sizeof(E));
    }
  } else if constexpr (map_like<T>) {
    const std::size_t n = reader.count(shape_of<typename T::key_type>.least +
                                       shape_of<typename T::mapped_type>.least);
    for (std::size_t i = 0; i < n; ++i) {
      typename T::key_type key{};
      typename T::mapped_type mapped{};
      read(reader, key);
      read(reader, mapped);
      out.emplace_hint(out.end(), std::move(key), std::move(mapped));
    }
  } else {
    constexpr bool is_set = set_like<T>;
    using E = typename T::value_type;
    const std::size_t n = reader.count(shape_of<E>.least);
    // A wrong n reserves no more memory than the bytes that are present, and a few elements.
    const std::size_t likely = reader.left() / sizeof(E) + 16;
    if constexpr (requires { out.reserve(n); }) out.reserve(n < likely ? n : likely);
    for (std::size_t i = 0; i < n; ++i) {
      E element{};
      read(reader, element);
      if constexpr (is_set)
        out.emplace_hint(out.end(), std::move(element));
      else
        out.push_back(std::move(element));
    }
  }
}

template <class T>
void read_class(Reader& reader, T& out) {
  if constexpr (has_fields<T>) {
    auto parts = fields(out);
    if constexpr (std::tuple_size_v<decltype(parts)> == 0) read_nothing(reader, out);
    std::apply([&](auto&... part) { (read(reader, part), ...); }, parts);
  } else if constexpr (container_like<T>) {
    read_container(reader, out);
  } else if constexpr (member_count<T>() == 0) {
    read_nothing(reader, out);
  } else {
    with_members(out, [&](auto&... member) { (read(reader, member), ...); });
  }
}

/// Reads a value into `out`, whose old content is replaced. Mirrors write().
template <class T>
void read(Reader& reader, T& out) {
  if constexpr (shape_of<T>.bytes) {
    reader.raw(std::addressof(out), sizeof(T));
  } else if constexpr (is_known<T>) {
    read_known(reader, out);
  } else if constexpr (shape_of<T>.recursive && !container_like<T>) {
    reader.enter();
    read_class(reader, out);
    reader.leave();
  } else {
    read_class(reader, out);
  }
}

// --- whole values

/// Returns a Sizer that has counted the bytes and handles of `value`. Throws InvalidArgument if the
/// value is nested too deep.
template <class T>
Sizer measure(const T& value) {
  Sizer sizer;
  write(sizer, value);
  return sizer;
}
/// Writes the value into `out`, which has exactly the size that measure() counted, and appends its
/// handles. Throws InvalidArgument if the value has changed since measure().
template <class T>
void encode_into(std::span<std::byte> out, std::vector<ObjectHandle>& handles, const T& value) {
  Writer writer(out, handles);
  write(writer, value);
  if (!writer.full()) throw_not_encodable("a value changed while it was being encoded");
}
/// Returns the value that all of `bytes` encode. Throws InvalidArgument if they encode no T. Arrays
/// in the value share `keep`, which may be null.
template <class T>
T decode_value(BlobView bytes, std::span<const ObjectHandle> handles,
               const std::shared_ptr<const void>* keep) {
  Reader reader(bytes, handles, keep);
  T value{};
  read(reader, value);
  reader.finish();
  return value;
}
template <class T>
T decode_value(const Value& value) {
  return decode_value<T>(value.bytes, value.refs, &value.keep);
}

}  // namespace troupe::detail
