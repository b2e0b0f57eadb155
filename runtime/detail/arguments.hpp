/// Carries one argument from the caller to the parameter of a function in another process: Leaving
/// converts and encodes it, Arriving decodes it. check.hpp asks Passing whether the types fit.
///
/// The caller converts an argument to the parameter's own type, as in a plain call, and the
/// converted value crosses. A Ref<U> given for a parameter that takes no Ref crosses as a
/// dependency: the process that runs the function converts the Ref's value, a U. Parameters of type
/// span<const T> and string_view are read in place.
#pragma once

#include "troupe/runtime/array.hpp"
#include "troupe/runtime/detail/encode.hpp"
#include "troupe/runtime/detail/explain.hpp"
#include "troupe/runtime/detail/signature.hpp"

namespace troupe::detail {

/// The most bytes of arguments, and of one argument, that travel inside the message of a call. An
/// argument that does not fit becomes an object of its own.
inline constexpr std::size_t kInlineBytes = 8192;
inline constexpr std::size_t kInlineArgument = 4096;

/// Why a type may not be a parameter of a function that other processes call.
enum class ParameterFault { none, pointer, mutable_reference, mutable_span, lead, type };

template <class T>
inline constexpr bool is_const_span = false;
template <class T, std::size_t N>
inline constexpr bool is_const_span<std::span<const T, N>> = shape_of<T>.bytes;
/// The types that show memory which they do not own, and that are read in place: span<const T> of
/// elements whose memory is their encoding, and string_view.
template <class T>
inline constexpr bool is_view = is_const_span<T> || is_string_view<T>;

template <class P>
consteval ParameterFault parameter_fault() {
  using Wanted = std::remove_cvref_t<P>;
  if constexpr (std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>) {
    return std::is_same_v<Wanted, Context> || std::is_same_v<Wanted, ActorContext>
               ? ParameterFault::lead
               : ParameterFault::mutable_reference;
  } else if constexpr (std::is_pointer_v<Wanted>) {
    return ParameterFault::pointer;
  } else if constexpr (is_span<Wanted> && !is_const_span<Wanted>) {
    return ParameterFault::mutable_span;
  } else if constexpr (!is_view<Wanted>) {
    return shape_of<Wanted>.why == Why::ok ? ParameterFault::none : ParameterFault::type;
  } else {
    return ParameterFault::none;
  }
}

/// Returns shape_of<T>, or for a view the shape of the vector or string whose encoding it reads.
template <class T>
constexpr Shape wire_shape() {
  if constexpr (is_span<T>) {
    return describe_many(shape_of<std::remove_const_t<typename T::element_type>>, 15);
  } else if constexpr (is_string_view<T>) {
    return describe_many(shape_of<typename T::value_type>, 15);
  } else {
    return shape_of<T>;
  }
}

/// True if an argument of type A converts to a parameter P without a dependency. A parameter U&&
/// takes lvalues too: it binds to the value that is decoded in the other process, not to the
/// caller's.
template <class A, class P>
inline constexpr bool plainly_converts =
    std::is_convertible_v<A, P> ||
    (std::is_rvalue_reference_v<P> && std::is_convertible_v<A, std::remove_cvref_t<P>>);

/// True if A is a Ref<U> and the parameter P takes not the Ref but its value.
template <class A, class P>
consteval bool is_dependency() {
  using Given = std::remove_cvref_t<A>;
  using Wanted = std::remove_cvref_t<P>;
  if constexpr (!is_ref<Given>) {
    return false;
  } else if constexpr (plainly_converts<A, P> || std::is_void_v<typename Given::value_type>) {
    return false;
  } else {
    using U = typename Given::value_type;
    return (std::is_same_v<U, Wanted> || std::is_convertible_v<const U&, Wanted>) &&
           shape_of<U>.why == Why::ok;
  }
}

template <class Given, class Wanted, bool dependency>
struct WireOf {
  using type = Wanted;
};
template <class Given, class Wanted>
struct WireOf<Given, Wanted, true> {
  using type = typename Given::value_type;
};

/// How an argument of type A&& becomes a parameter P. `ok` is false if it does not.
template <class A, class P>
struct Passing {
  using Given = std::remove_cvref_t<A>;
  using Wanted = std::remove_cvref_t<P>;
  static constexpr bool dependency = is_dependency<A, P>();
  static constexpr bool ok = dependency || plainly_converts<A, P>;
  /// The type whose encoding arrives.
  using Wire = typename WireOf<Given, Wanted, dependency>::type;
};

// --- leaving

/// Holds the converted argument until the call is encoded. An argument that has the parameter's
/// type already is held by pointer: a Leaving is a temporary inside the user's full expression, so
/// the argument outlives it.
template <class A, class P>
class Leaving {
  using Pass = Passing<A, P>;
  using Wanted = typename Pass::Wanted;
  static constexpr bool as_is = std::is_same_v<typename Pass::Given, Wanted>;
  static auto prepare(std::remove_reference_t<A>& given) {
    if constexpr (Pass::dependency) {
      if (!given) throw_empty_handle("an argument is an empty Ref");
      return Access::handle(given);
    } else if constexpr (as_is) {
      return std::addressof(std::as_const(given));
    } else if constexpr (std::is_arithmetic_v<Wanted>) {
      return static_cast<Wanted>(static_cast<A&&>(given));
    } else if constexpr (std::is_convertible_v<A, Wanted>) {
      Wanted value = static_cast<A&&>(given);
      return value;
    } else {
      return Wanted(given.begin(),
                    given.end());  // a span or string_view of a constructor crosses as its elements
    }
  }

 public:
  explicit Leaving(std::remove_reference_t<A>& given) : held_(prepare(given)) {
    if constexpr (!Pass::dependency) size_ = measure(value()).size();
  }
  /// Bytes of the encoding. 0 for a dependency, which is an object already; any other value takes
  /// at least one byte.
  std::size_t size() const noexcept { return size_; }
  /// Fills `argument`, for which lay_out() has chosen a place in call.bytes or size 0.
  void write(Engine& engine, Call& call, Argument& argument) const {
    if constexpr (Pass::dependency) {
      argument.object = held_;
    } else if (argument.size == 0) {
      std::vector<ObjectHandle> handles;
      const std::unique_ptr<Building> building = engine.create(size_, {call.callable->name});
      encode_into(building->bytes(), handles, value());
      argument.object = building->seal(handles);
    } else {
      argument.first_ref = static_cast<std::uint32_t>(call.refs.size());
      encode_into(std::span(call.bytes).subspan(argument.offset, argument.size), call.refs,
                  value());
      argument.ref_count = static_cast<std::uint32_t>(call.refs.size()) - argument.first_ref;
    }
  }

 private:
  const Wanted& value() const noexcept {
    if constexpr (as_is)
      return *held_;
    else
      return held_;
  }
  decltype(prepare(std::declval<std::remove_reference_t<A>&>())) held_;
  std::size_t size_ = 0;
};

/// Gives each argument its place in call.bytes. An Argument that it leaves with size 0 does not fit
/// and must become an object.
TROUPE_API void lay_out(Call& call, std::span<const std::size_t> sizes);

/// Returns the call with its arguments encoded. An argument that does not fit into the message is
/// written to the object store here, which may wait for room or throw OutOfMemory or OutOfDisk.
template <class... L>
Call make_call(Engine& engine, const Callable& callable, const L&... leaving) {
  Call call;
  call.callable = &callable;
  if constexpr (sizeof...(L) != 0) {
    const std::size_t sizes[] = {leaving.size()...};
    lay_out(call, sizes);
    std::size_t i = 0;
    (leaving.write(engine, call, call.arguments[i++]), ...);
  }
  return call;
}

// --- arriving

/// Returns the elements of a run. They stay where they are if they are aligned for T; else `copy`
/// owns a copy, and the span shows that.
template <class T>
std::span<const T> read_in_place(Reader& reader, std::unique_ptr<T[]>& copy) {
  const std::size_t n = reader.count(sizeof(T));
  const std::byte* data = reader.run(n, sizeof(T), alignof(T));
  if (n == 0) return {};
  if (is_aligned<T>(data)) return {reinterpret_cast<const T*>(data), n};
  copy.reset(new T[n]);
  std::memcpy(static_cast<void*>(copy.get()), data, n * sizeof(T));
  return {copy.get(), n};
}

/// The type of element if a W is encoded as a run of bytes, else void.
template <class W>
struct RunOf {
  using type = void;
};
template <class W>
  requires byte_run<W> || is_array<W> || is_view<W>
struct RunOf<W> {
  using type = std::remove_const_t<typename W::value_type>;
};
/// True if V is a view and a W is encoded as a run of its elements, so that V can show the
/// encoding.
template <class V, class W>
inline constexpr bool shows =
    is_view<V> && std::is_same_v<typename RunOf<V>::type, typename RunOf<W>::type>;

/// The parameter P of a function that runs, made from the encoding of a W. It lives as long as the
/// function. There are three cases: W is the parameter's type (here), P is a view that shows the
/// encoding, and W converts to P. pass() returns the value as the parameter takes it: by move for P
/// and P&&, by reference for const P&.
template <class P, class W>
class Arriving {
  using Wanted = std::remove_cvref_t<P>;

 public:
  explicit Arriving(const ArgumentView& view)
      : value_(decode_value<W>(view.bytes, view.refs, view.keep)) {}
  P&& pass() noexcept { return static_cast<P&&>(value_); }

 private:
  Wanted value_;
};
/// A view of the encoding in place, or of an aligned copy that `copy_` owns.
template <class P, class W>
  requires shows<std::remove_cvref_t<P>, W>
class Arriving<P, W> {
  using Wanted = std::remove_cvref_t<P>;
  using T = typename RunOf<Wanted>::type;

 public:
  explicit Arriving(const ArgumentView& view) : value_(read(view)) {}
  P&& pass() noexcept { return static_cast<P&&>(value_); }

 private:
  Wanted read(const ArgumentView& view) {
    Reader reader(view.bytes, view.refs, view.keep);
    const std::span<const T> run = read_in_place<T>(reader, copy_);
    reader.finish();
    if constexpr (is_span<Wanted>) {
      if constexpr (Wanted::extent != std::dynamic_extent)
        if (run.size() != Wanted::extent)
          throw_malformed("a span has another number of elements than its type says");
      return Wanted(run.data(), run.size());
    } else {
      return Wanted(run.data(), run.size());
    }
  }
  std::unique_ptr<T[]> copy_;
  Wanted value_;
};
/// A value that is converted here, since the caller did not have the value of a dependency.
template <class P, class W>
  requires(!std::is_same_v<std::remove_cvref_t<P>, W> && !shows<std::remove_cvref_t<P>, W>)
class Arriving<P, W> {
  using Wanted = std::remove_cvref_t<P>;
  // An Array, a vector and a view of the same elements have one encoding. So an Array is decoded
  // directly and shows the bytes in place, without a vector between.
  static constexpr bool in_place =
      is_array<Wanted> && std::is_same_v<typename RunOf<Wanted>::type, typename RunOf<W>::type>;
  using Raw = std::conditional_t<in_place, Wanted, W>;

 public:
  explicit Arriving(const ArgumentView& view)
      : raw_(decode_value<Raw>(view.bytes, view.refs, view.keep)), value_(convert(raw_)) {}
  P&& pass() noexcept { return static_cast<P&&>(value_); }

 private:
  static Wanted convert(const Raw& raw) {
    if constexpr (std::is_arithmetic_v<Wanted>) {
      return static_cast<Wanted>(raw);
    } else {
      Wanted value = raw;
      return value;
    }
  }
  Raw raw_;
  Wanted value_;
};

}  // namespace troupe::detail
