/// A vector with room for the first elements in the object itself, so that a call with few small
/// arguments allocates nothing for them.
///
///     SmallVector<Argument, 2> arguments;
///     arguments.resize(3);                  // allocates
///     std::span<Argument> all = arguments;
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace troupe::detail {

/// Requires of T that it is cheap to make and to move, and that a move leaves the source like T{}.
/// New elements are T{}.
template <class T, std::size_t inside>
class SmallVector {
 public:
  using value_type = T;
  SmallVector() noexcept {}
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this != &other) {
      clear();
      delete[] std::exchange(beyond_, nullptr);
      take(other);
    }
    return *this;
  }
  SmallVector(const SmallVector& other) { assign(other.begin(), other.end()); }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  ~SmallVector() { delete[] beyond_; }

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  /// Number of elements that the allocated memory has room for; 0: none is allocated.
  std::size_t capacity() const noexcept { return beyond_ != nullptr ? capacity_ : 0; }
  T* data() noexcept { return beyond_ != nullptr ? beyond_ : inside_; }
  const T* data() const noexcept { return beyond_ != nullptr ? beyond_ : inside_; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  T& at(std::size_t i) {
    if (i >= size_) throw std::out_of_range("SmallVector::at");
    return data()[i];
  }
  const T& at(std::size_t i) const { return const_cast<SmallVector&>(*this).at(i); }
  T& front() noexcept { return data()[0]; }
  const T& front() const noexcept { return data()[0]; }
  T& back() noexcept { return data()[size_ - 1]; }

  void resize(std::size_t size) {
    if (size > room()) grow(size);
    if (size > size_)
      std::fill(data() + size_, data() + size, T{});
    else if constexpr (!std::is_trivially_copyable_v<T>)
      std::fill(data() + size, data() + size_, T{});
    size_ = static_cast<std::uint32_t>(size);
  }
  void clear() { resize(0); }
  void push_back(T value) {
    if (size_ == room()) grow(2 * room());
    data()[size_++] = std::move(value);
  }
  template <class It>
    requires(!std::is_integral_v<It>)
  void assign(It first, It last) {
    clear();
    resize(static_cast<std::size_t>(std::distance(first, last)));
    std::copy(first, last, data());
  }
  void assign(std::size_t size, const T& value) {
    clear();
    resize(size);
    std::fill(begin(), end(), value);
  }

 private:
  std::size_t room() const noexcept { return beyond_ != nullptr ? capacity_ : inside; }
  void grow(std::size_t size) {
    T* memory = new T[size]{};
    std::move(begin(), end(), memory);
    delete[] std::exchange(beyond_, memory);
    capacity_ = static_cast<std::uint32_t>(size);
  }
  /// Precondition: this vector is empty, without allocated memory.
  void take(SmallVector& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    beyond_ = std::exchange(other.beyond_, nullptr);
    capacity_ = other.capacity_;
    if (beyond_ == nullptr) std::move(other.inside_, other.inside_ + size_, inside_);
  }

  T* beyond_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
  alignas(std::is_trivial_v<T> ? 16 : alignof(T)) T inside_[inside];
};

}  // namespace troupe::detail
