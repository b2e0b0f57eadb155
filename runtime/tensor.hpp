/// Tensor<T>: an immutable array with a shape, in row-major order. Copies share the elements.
///
///     troupe::Tensor<float> images({32, 28, 28}, std::vector<float>(32 * 28 * 28));
///     float corner = images(3, 0, 27);               // no bounds are checked
///     troupe::Tensor<float> third = images[3];       // 28 × 28, the same memory
///     auto flat = images.reshaped({32, 784});        // the same memory
///     struct Batch { troupe::Tensor<float> images; troupe::Tensor<std::uint8_t> labels; };
///     float f(const Batch& b) { return b.images(0, 0, 0); }   // reads shared memory in place
///
/// It is an Array with a shape. A Tensor that arrives as an argument, in a result or inside another
/// value points into the object that it came in and keeps that object pinned. To write one in
/// place, write an Array (`ctx.create<T>(n)`) and give it a shape where it is read:
/// Tensor<T>(shape, array) copies nothing.
#pragma once

#include "troupe/runtime/array.hpp"
#include "troupe/runtime/base/error.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

namespace troupe {

/// Copies share the elements, as an Array's do: O(rank), thread-safe like shared_ptr<const>.
template <class T>
class Tensor {
 public:
  using value_type = T;
  /// The lengths of the dimensions. Elements along the last one are neighbours in memory. A shape
  /// without dimensions has one element.
  using Shape = std::vector<std::uint64_t>;

  /// Makes a tensor of one dimension without elements.
  Tensor() = default;
  /// Takes over the elements; an Array and an rvalue are not copied. Throws InvalidArgument if the
  /// shape has another number of elements.
  Tensor(Shape shape, Array<T> elements)
      : shape_(std::move(shape)), elements_(std::move(elements)) {
    if (count_of(shape_) != elements_.size()) refuse(elements_.size());
  }

  const Shape& shape() const noexcept { return shape_; }
  std::size_t rank() const noexcept { return shape_.size(); }
  /// Returns the number of elements.
  std::size_t size() const noexcept { return elements_.size(); }
  bool empty() const noexcept { return elements_.empty(); }
  const T* data() const noexcept { return elements_.data(); }
  const T* begin() const noexcept { return elements_.begin(); }
  const T* end() const noexcept { return elements_.end(); }
  /// Returns all elements in row-major order, shared with the tensor.
  const Array<T>& elements() const noexcept { return elements_; }

  /// Returns the element at these indexes. Preconditions: one index for each dimension, each below
  /// its length.
  template <class... Index>
  const T& operator()(Index... index) const noexcept {
    std::size_t at = 0, dimension = 0;
    ((at = at * static_cast<std::size_t>(shape_[dimension++]) + static_cast<std::size_t>(index)),
     ...);
    return elements_[at];
  }
  /// Returns the element at these indexes. Throws InvalidArgument if a precondition of operator()
  /// is violated.
  template <class... Index>
  const T& at(Index... index) const {
    const std::uint64_t all[] = {static_cast<std::uint64_t>(index)..., 0};
    if (sizeof...(index) != rank())
      raise(Error(Code::invalid_argument, std::to_string(sizeof...(index)) +
                                              " indexes for a tensor of shape " + text(shape_)));
    for (std::size_t d = 0; d < rank(); ++d)
      if (all[d] >= shape_[d])
        raise(Error(Code::invalid_argument,
                    "index " + std::to_string(all[d]) + " of dimension " + std::to_string(d) +
                        " is outside of a tensor of shape " + text(shape_)));
    return (*this)(index...);
  }
  /// Returns the part at an index of the first dimension, which shares the elements. Cost: O(rank).
  /// Throws InvalidArgument if there is none.
  Tensor operator[](std::size_t index) const {
    if (rank() == 0 || index >= shape_[0])
      raise(Error(Code::invalid_argument,
                  "a tensor of shape " + text(shape_) + " has no part " + std::to_string(index)));
    Tensor part;
    part.shape_.assign(shape_.begin() + 1, shape_.end());
    const std::size_t n = count_of(part.shape_);
    if (n == 0) return part;
    part.elements_ = detail::Access::make_array<Array<T>>(
        std::make_shared<const Array<T>>(elements_), elements_.data() + index * n, n);
    return part;
  }
  /// Returns a tensor of the same, shared elements in another shape. Throws InvalidArgument if that
  /// shape has another number of elements.
  Tensor reshaped(Shape shape) const { return Tensor(std::move(shape), elements_); }

  friend bool operator==(const Tensor& a, const Tensor& b) {
    return a.shape_ == b.shape_ && a.elements_ == b.elements_;
  }
  friend auto fields(Tensor& t) { return std::tie(t.shape_, t.elements_); }

 private:
  /// Returns the number of elements of a shape, or the largest number if it does not fit.
  static std::uint64_t count_of(const Shape& shape) noexcept {
    std::uint64_t n = 1;
    bool fits = true;
    for (const std::uint64_t length : shape) {
      if (length == 0) return 0;
      fits = fits && !__builtin_mul_overflow(n, length, &n);
    }
    return fits ? n : std::numeric_limits<std::uint64_t>::max();
  }
  static std::string text(const Shape& shape) {
    std::string text;
    for (const std::uint64_t length : shape)
      text += (text.empty() ? "" : " × ") + std::to_string(length);
    return text.empty() ? "() of one element" : text;
  }
  [[noreturn]] void refuse(std::size_t given) const {
    raise(Error(Code::invalid_argument, "a tensor of shape " + text(shape_) + " does not have " +
                                            std::to_string(given) +
                                            " elements: give it a shape whose product that is"));
  }

  Shape shape_{0};
  Array<T> elements_;
};

}  // namespace troupe
