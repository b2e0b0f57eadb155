/// A box for members that most records never need: eight bytes until something is written to it.
///
///     LazyBox<wire::Location> location;
///     entry.location = at;                       // takes memory now
///     store.drop(*entry.location);
///     entry.waiters.edit().push_back(waiter);
#pragma once

#include <memory>
#include <utility>

namespace troupe::client {

/// A T that is T{} until it is written. Copies are deep. Not for two threads.
template <class T>
class LazyBox {
 public:
  LazyBox() noexcept = default;
  LazyBox(T value) {
    if constexpr (requires { value.empty(); })
      if (value.empty()) return;
    there_ = std::make_unique<T>(std::move(value));
  }
  LazyBox(const LazyBox& other) : there_(other.there_ ? std::make_unique<T>(*other) : nullptr) {}
  LazyBox(LazyBox&&) noexcept = default;
  LazyBox& operator=(LazyBox other) noexcept {
    there_.swap(other.there_);
    return *this;
  }
  const T& operator*() const noexcept { return there_ ? *there_ : nothing(); }
  const T* operator->() const noexcept { return &**this; }
  operator const T&() const noexcept { return **this; }
  /// Whether something was written to it. Cheaper than comparing with T{}.
  bool written() const noexcept { return there_ != nullptr; }
  /// Returns the value for writing; allocates it first if need be.
  T& edit() {
    if (!there_) there_ = std::make_unique<T>();
    return *there_;
  }
  /// Moves the value out; the box is T{} again. Allocates no memory.
  T take() {
    const std::unique_ptr<T> taken = std::move(there_);
    return taken ? std::move(*taken) : T{};
  }

 private:
  static const T& nothing() noexcept {
    static const T none{};
    return none;
  }
  std::unique_ptr<T> there_;
};

}  // namespace troupe::client
