/// Array<T>: an immutable run of trivially copyable elements that is shared, not copied.
///
///     struct Batch { troupe::Array<float> pixels; int label; };
///     Batch b{std::vector<float>(1'000'000), 3};
///     float f(const Batch& b) { return b.pixels[0]; }        // reads shared memory in place
///
/// An Array that arrives as an argument, in a result or inside another value points into the object
/// that it came in. It keeps that object pinned: neither freed nor moved. An Array that is made
/// from a vector owns its elements.
#pragma once

#include "troupe/runtime/detail/encode.hpp"
#include "troupe/runtime/detail/explain.hpp"

#include <initializer_list>

namespace troupe {

/// Copies share the elements: O(1), thread-safe like shared_ptr<const>. Elements that lie in shared
/// memory and fill at least 512 bytes are aligned to 64 bytes.
template <class T>
class Array {
  static_assert(detail::shape_of<T>.bytes,
                "troupe: a troupe::Array holds trivially copyable values only (no bool, no "
                "pointers): use a vector");

 public:
  using value_type = T;
  using size_type = std::size_t;
  using const_iterator = const T*;
  using iterator = const T*;

  Array() noexcept = default;
  /// Takes over the elements. An rvalue is moved, not copied.
  Array(std::vector<T> elements) {
    auto owner = std::make_shared<const std::vector<T>>(std::move(elements));
    data_ = owner->data();
    size_ = owner->size();
    keep_ = std::move(owner);
  }
  Array(std::initializer_list<T> elements) : Array(std::vector<T>(elements)) {}
  /// Copies the elements.
  explicit Array(std::span<const T> elements)
      : Array(std::vector<T>(elements.begin(), elements.end())) {}

  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  /// Precondition: i < size().
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  /// Valid while this Array or a copy of it lives.
  operator std::span<const T>() const noexcept { return {data_, size_}; }

  friend bool operator==(const Array& a, const Array& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  friend struct detail::Access;
  std::shared_ptr<const void> keep_;
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace troupe
