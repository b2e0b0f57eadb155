/// The types with which kernels, collectives and devices describe memory: DType, Buffer and Event
/// (from when on the memory may be used).
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

/// Returns the bytes of one element.
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
/// Returns the type's name, such as "f32".
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

/// A view of `count` elements in memory that it does not own. `data` need not be aligned to the
/// type.
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

/// A Buffer whose memory is only read.
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

/// The shared state of an Event: something that happens once. Devices and collectives derive from
/// it.
class TROUPE_API EventState {
 public:
  EventState() = default;
  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;
  virtual ~EventState();
  virtual bool has_happened() const noexcept = 0;
  /// Blocks until it has happened, at most until `until`. Returns has_happened().
  virtual bool wait(Time until) const noexcept = 0;
  /// Returns the event of a device for which that device's queues can wait, or null when only the
  /// host can wait.
  virtual const EventState* of_device() const noexcept { return nullptr; }
};

/// A point in the work of a queue or a collective. Other work can wait for it. Copies stand for the
/// same point. Any thread may use it.
class Event {
 public:
  /// Makes an event that has happened.
  Event() = default;
  explicit Event(std::shared_ptr<const EventState> state) noexcept : state_(std::move(state)) {}
  bool has_happened() const noexcept { return state_ == nullptr || state_->has_happened(); }
  /// Blocks until it has happened, at most until `until`. Returns has_happened().
  bool wait(Time until) const noexcept { return state_ == nullptr || state_->wait(until); }
  /// Returns the state, by which a device recognises its own events; null for an event that has
  /// happened from the start.
  const std::shared_ptr<const EventState>& state() const noexcept { return state_; }
  /// Returns state()->of_device(), or null without a state.
  const EventState* of_device() const noexcept {
    return state_ == nullptr ? nullptr : state_->of_device();
  }

 private:
  std::shared_ptr<const EventState> state_;
};

}  // namespace troupe::kernels
