/// Widened: the 16-bit operands of one call as f32 copies, for an implementation that computes in
/// f32.
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

/// Where the elements of an operand lie: `batch` matrices of rows. Strides are in elements.
struct Area {
  std::int64_t rows = 1, columns = 0, stride = 0;
  std::int64_t batch = 1, batch_stride = 0;

  Area() = default;
  /// Contiguous elements.
  explicit Area(std::int64_t count) noexcept : columns(count) {}
  Area(std::int64_t height, std::int64_t width, std::int64_t step) noexcept
      : rows(height), columns(width), stride(step) {}
  std::int64_t lines() const noexcept { return columns <= 0 ? 0 : rows * batch; }
  std::int64_t first_of(std::int64_t line) const noexcept {
    return line / rows * batch_stride + line % rows * stride;
  }
  /// Counts the elements from the first to the last, including those between rows.
  std::int64_t span() const noexcept {
    return lines() <= 0 ? 0 : (batch - 1) * batch_stride + (rows - 1) * stride + columns;
  }
};

/// Holds the f32 copies during one call, for one thread. A null operand stays null. Elements
/// between rows are neither read nor written. Functions throw OutOfMemory.
class Widened {
 public:
  Widened(Queue& queue, DType type) noexcept : queue_(queue), type_(type) {}

  /// Replaces an operand by its f32 copy.
  void in(const void*& operand, const Area& area);
  void in(void*& operand, const Area& area);
  /// Replaces an operand by f32 memory that round() writes back; with `read` it holds the old
  /// values at first.
  void out(void*& operand, const Area& area, bool read = false);
  /// Writes all out() operands back, each element rounded to the nearest number of the type, ties
  /// to even.
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
