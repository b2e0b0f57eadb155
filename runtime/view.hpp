/// View<T>: reads an object in place, without a copy where its type allows that.
///
///     auto v = ctx.view(ref);                        // Ref<std::vector<double>>
///     double sum = 0;
///     for (double x : v) sum += x;                   // no copy: v shows shared memory
///     for (double x : *ctx.view(ref)) sum += x;      // a temporary stays pinned in the loop
///
/// The view of a vector of trivially copyable elements shows a span, that of a string a
/// string_view, and that of an Array the Array. A value of any other type is decoded once, into a
/// const T inside the View. The object stays pinned (neither freed nor moved) as long as the View
/// lives, or the value that `*` of a temporary View returned.
#pragma once

#include "troupe/runtime/detail/arguments.hpp"

namespace troupe {

namespace detail {

template <class T>
struct ViewOf {
  using type = T;
};
template <class T>
  requires byte_run<T>
struct ViewOf<T> {
  using type = std::span<const typename T::value_type>;
};
template <class C, class Traits, class Allocator>
struct ViewOf<std::basic_string<C, Traits, Allocator>> {
  using type = std::basic_string_view<C, Traits>;
};

}  // namespace detail

/// The type that a View<T> shows.
template <class T>
using view_of = typename detail::ViewOf<T>::type;

/// A span or string_view that keeps the object that it shows pinned.
template <class S>
class Pinned : public S {
 public:
  using Element = std::remove_const_t<typename S::value_type>;
  explicit Pinned(Array<Element> elements) noexcept
      : S(elements.data(), elements.size()), elements_(std::move(elements)) {}

 private:
  Array<Element> elements_;
};

/// Shows a const T decoded from the object. Copyable when T is.
template <class T, class Shown = view_of<T>>
class View {
 public:
  using value_type = T;
  explicit View(const detail::Value& value) : value_(detail::decode_value<T>(value)) {}
  const T& operator*() const& noexcept { return value_; }
  /// Returns the value itself from a temporary View. In `for (auto& x : *ctx.view(r))` the value
  /// then lives as long as the loop.
  T operator*() && { return std::move(value_); }
  const T* operator->() const noexcept { return std::addressof(value_); }
  auto begin() const { return value_.begin(); }
  auto end() const { return value_.end(); }
  auto size() const { return value_.size(); }
  decltype(auto) operator[](std::size_t i) const { return value_[i]; }

 private:
  T value_;
};

/// Shows the elements in place. Copies share the pin.
template <class T, class Shown>
  requires detail::is_view<Shown>
class View<T, Shown> {
  using Element = std::remove_const_t<typename Shown::value_type>;

 public:
  using value_type = T;
  explicit View(const detail::Value& value)
      : elements_(detail::decode_value<Array<Element>>(value)) {}
  /// Valid while this View lives.
  Shown operator*() const& noexcept { return Shown(elements_.data(), elements_.size()); }
  /// Returns a span or string_view from a temporary View that keeps the object pinned. Hold it as
  /// `auto`: a plain span made from it dangles.
  Pinned<Shown> operator*() && noexcept { return Pinned<Shown>(std::move(elements_)); }
  const Array<Element>* operator->() const noexcept { return &elements_; }
  const Element* begin() const noexcept { return elements_.begin(); }
  const Element* end() const noexcept { return elements_.end(); }
  const Element* data() const noexcept { return elements_.data(); }
  std::size_t size() const noexcept { return elements_.size(); }
  const Element& operator[](std::size_t i) const noexcept { return elements_[i]; }

 private:
  Array<Element> elements_;
};

}  // namespace troupe
