/// Shape and TensorView: typed memory with a shape, borrowed from its owner.
///
///     TensorView x(memory, DType::f32, {batch, time, channels});
///     x.rows();      // batch * time
///     x.columns();   // channels
#pragma once

#include "troupe/kernels/device.hpp"
#include "troupe/runtime/base/assert.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

namespace troupe::train {

using kernels::DType;

/// Up to five dimensions.
class TROUPE_API Shape {
 public:
  static constexpr int kMost = 5;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);
  int rank() const noexcept { return rank_; }
  std::int64_t operator[](int axis) const noexcept {
    return sizes_[static_cast<std::size_t>(axis)];
  }
  void set(int axis, std::int64_t size) noexcept { sizes_[static_cast<std::size_t>(axis)] = size; }
  /// Throws InvalidArgument above kMost.
  void push_back(std::int64_t size);
  /// Returns the product of all sizes; 1 without dimensions, and the largest int64 on overflow.
  std::int64_t count() const noexcept;
  const std::int64_t* begin() const noexcept { return sizes_.data(); }
  const std::int64_t* end() const noexcept { return sizes_.data() + rank_; }
  friend bool operator==(const Shape&, const Shape&) = default;
  /// "[2, 3]".
  std::string text() const;

 private:
  std::array<std::int64_t, kMost> sizes_{};
  int rank_ = 0;
};

/// Returns the bytes of `count` elements, or the largest int64 on overflow.
constexpr std::int64_t size_in_bytes(std::int64_t count, DType type) noexcept {
  std::int64_t bytes = 0;
  const bool overflows = __builtin_mul_overflow(count, kernels::size_of(type), &bytes);
  return overflows ? std::numeric_limits<std::int64_t>::max() : bytes;
}

/// The type and shape of a tensor, without memory.
struct Spec {
  DType type = DType::f32;
  Shape shape;
  /// Number of ranks over which the rows are divided, in order. count() is that of one rank; the
  /// shape is the whole tensor's.
  int parts = 1;
  std::int64_t count() const noexcept { return shape.count() / parts; }
  std::int64_t bytes() const noexcept { return size_in_bytes(count(), type); }
};

struct TensorView {
  void* data = nullptr;
  DType type = DType::f32;
  Shape shape;
  int parts = 1;  ///< as Spec::parts

  TensorView() = default;
  TensorView(void* memory, DType element, const Shape& sizes, int ranks = 1) noexcept
      : data(memory), type(element), shape(sizes), parts(ranks) {}
  TensorView(void* memory, const Spec& spec) noexcept
      : TensorView(memory, spec.type, spec.shape, spec.parts) {}
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
  std::int64_t count() const noexcept { return shape.count() / parts; }
  std::int64_t bytes() const noexcept { return size_in_bytes(count(), type); }
  /// columns() is the size of the last dimension, and rows() the number of such rows on this
  /// rank.
  std::int64_t columns() const noexcept { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }
  std::int64_t rows() const noexcept { return columns() == 0 ? 0 : count() / columns(); }
  Spec spec() const noexcept { return {type, shape, parts}; }
};

/// Returns the view's memory in the form that collective operations take.
inline kernels::Buffer buffer_of(const TensorView& view) noexcept {
  return {view.data, view.type, view.count()};
}

}  // namespace troupe::train
