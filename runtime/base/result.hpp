/// Result: a value or an Error, for calls where failure is expected.
///
///     Result<int> r = ctx.try_get(ref);
///     if (r) use(*r); else log(r.error().what());
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <type_traits>
#include <utility>
#include <variant>

namespace troupe {

/// Holds exactly one of the two. value() raises the error as its exception class.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }
  const T& value() const& {
    if (!ok()) raise(error());
    return std::get<0>(state_);
  }
  T& value() & {
    if (!ok()) raise(error());
    return std::get<0>(state_);
  }
  T&& value() && {
    if (!ok()) raise(error());
    return std::get<0>(std::move(state_));
  }
  /// Precondition: ok().
  const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }
  T* operator->() noexcept { return std::get_if<0>(&state_); }
  /// Precondition: !ok().
  const Error& error() const noexcept { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() noexcept = default;
  Result(Error error) : state_(std::move(error)) {}
  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }
  void value() const {
    if (!ok()) raise(error());
  }
  const Error& error() const noexcept { return *std::get_if<1>(&state_); }

 private:
  std::variant<std::monostate, Error> state_;
};

}  // namespace troupe
