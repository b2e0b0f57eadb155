/// The 16-bit operands of one call as f32, for a body that computes in f32.
///
///     Widened call(queue, DType::bf16);
///     call.in(o.in, {.rows = rows, .columns = columns, .stride = row});   // o.in is f32 now
///     call.out(o.out, Area(n));
///     cpu::norm(queue, o);
///     call.round();                                                      // o.out's 16-bit memory
#pragma once

#include "troupe/kernels/device/device.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace troupe::kernels::half {

constexpr bool is_16_bit(DType type) noexcept {
  return type == DType::bf16 || type == DType::f16;
}

/// Where the elements of an operand lie: `batch` matrices of rows, distances in elements.
struct Area {
  std::int64_t rows = 1, columns = 0, stride = 0;
  std::int64_t batch = 1, batch_stride = 0;

  Area() = default;
  /// Elements one behind the other.
  explicit Area(std::int64_t count) noexcept : columns(count) {}
  Area(std::int64_t height, std::int64_t width, std::int64_t step) noexcept
      : rows(height), columns(width), stride(step) {}
  std::int64_t lines() const noexcept { return columns <= 0 ? 0 : rows * batch; }
  std::int64_t first_of(std::int64_t line) const noexcept {
    return line / rows * batch_stride + line % rows * stride;
  }
  /// Elements from the first to the last, those between rows counted in.
  std::int64_t span() const noexcept {
    return lines() <= 0 ? 0 : (batch - 1) * batch_stride + (rows - 1) * stride + columns;
  }
};

/// For one call on one thread. A null operand stays null. Elements between rows are neither read
/// nor written. Throws OutOfMemory.
class Widened {
 public:
  Widened(Queue& queue, DType type) noexcept : queue_(queue), type_(type) {}

  /// The operand becomes its f32 copy.
  void in(const void*& operand, const Area& area);
  void in(void*& operand, const Area& area);
  /// The operand becomes f32 memory that round() rounds; its old values are in it with `read`.
  void out(void*& operand, const Area& area, bool read = false);
  /// Writes what is out, each element to the nearest number of the type, ties to even.
  void round();

 private:
  struct Result {
    const float* from;
    std::uint16_t* to;
    Area area;
  };
  float* take(const Area& area);
  void widen(const void* from, float* to, const Area& area);

  Queue& queue_;
  DType type_;
  std::deque<std::vector<float>> memory_;
  std::vector<Result> results_;
};

}  // namespace troupe::kernels::half
