/// What kernels, collectives and devices say of memory: where it is, of what type, how much, and
/// from when on it may be used.
///
///     std::vector<float> x(100);
///     communicator.all_reduce(x);                                  // a Buffer by conversion
///     Buffer half{memory, DType::bf16, 100};                       // types that C++ does not have
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::kernels {

enum class DType : std::uint8_t { f32, f64, bf16, f16, i32, i64, u8 };
inline constexpr int kTypes = 7;

/// Bytes of an element.
constexpr std::int64_t size_of(DType type) noexcept {
  switch (type) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8: break;
  }
  return 1;
}
/// "f32", …
TROUPE_API std::string_view name_of(DType type) noexcept;

namespace internal {
template <class T>
struct TypeOf {};
template <>
struct TypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct TypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct TypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct TypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct TypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct TypeOf<std::byte> {
  static constexpr DType value = DType::u8;
};
}  // namespace internal

/// Memory that somebody else owns. `data` need not be aligned to its type.
struct Buffer {
  void* data = nullptr;
  DType type = DType::u8;
  std::int64_t count = 0;

  Buffer() = default;
  Buffer(void* memory, DType element, std::int64_t elements) noexcept
      : data(memory), type(element), count(elements) {}
  template <class T>
    requires(internal::TypeOf<T>::value <= DType::u8)
  Buffer(std::span<T> values) noexcept
      : Buffer(values.data(), internal::TypeOf<T>::value,
               static_cast<std::int64_t>(values.size())) {}
  template <class T>
    requires(internal::TypeOf<T>::value <= DType::u8)
  Buffer(std::vector<T>& values) noexcept : Buffer(std::span<T>(values)) {}
  std::int64_t bytes() const noexcept { return count * size_of(type); }
};

/// The same for memory that is only read.
struct ConstBuffer {
  const void* data = nullptr;
  DType type = DType::u8;
  std::int64_t count = 0;

  ConstBuffer() = default;
  ConstBuffer(const void* memory, DType element, std::int64_t elements) noexcept
      : data(memory), type(element), count(elements) {}
  ConstBuffer(const Buffer& buffer) noexcept
      : ConstBuffer(buffer.data, buffer.type, buffer.count) {}
  template <class T>
    requires(internal::TypeOf<T>::value <= DType::u8)
  ConstBuffer(std::span<T> values) noexcept : ConstBuffer(Buffer(values)) {}
  template <class T>
    requires(internal::TypeOf<T>::value <= DType::u8)
  ConstBuffer(std::span<const T> values) noexcept
      : ConstBuffer(values.data(), internal::TypeOf<T>::value,
                    static_cast<std::int64_t>(values.size())) {}
  template <class T>
    requires(internal::TypeOf<T>::value <= DType::u8)
  ConstBuffer(const std::vector<T>& values) noexcept : ConstBuffer(std::span<const T>(values)) {}
  std::int64_t bytes() const noexcept { return count * size_of(type); }
};

/// What an Event stands for: something that happens once.
class TROUPE_API EventState {
 public:
  EventState() = default;
  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;
  virtual ~EventState();
  virtual bool has_happened() const noexcept = 0;
  /// Waits at most until then; result: has_happened().
  virtual bool wait(Time until) const noexcept = 0;
  /// The event of a device that it stands for, for which that device's queues wait; null: only the
  /// host can wait.
  virtual const EventState* of_device() const noexcept { return nullptr; }
};

/// A point in somebody's work, to begin other work after it. Copies stand for the same point. From
/// any thread.
class Event {
 public:
  /// One that has happened.
  Event() = default;
  explicit Event(std::shared_ptr<const EventState> state) noexcept : state_(std::move(state)) {}
  bool has_happened() const noexcept { return state_ == nullptr || state_->has_happened(); }
  /// Waits at most until then; false when it has not happened.
  bool wait(Time until) const noexcept { return state_ == nullptr || state_->wait(until); }
  /// For devices that know their own events; null for one that has happened from the start.
  const std::shared_ptr<const EventState>& state() const noexcept { return state_; }
  /// What state()->of_device() says; null without a state.
  const EventState* of_device() const noexcept {
    return state_ == nullptr ? nullptr : state_->of_device();
  }

 private:
  std::shared_ptr<const EventState> state_;
};

}  // namespace troupe::kernels
