// Measures how long a device needs for enqueued operations, and gives memory for their operands.
//
//     Room room(device, DType::bf16);
//     void* x = room.random(n);
//     const double seconds = seconds_of(device, [&] { device.kernels().activate(...); }, 0.05);
#pragma once

#include "troupe/kernels/device/device.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace troupe::gpu {

/// Returns the seconds of one call: the median of five batches, each synchronised at its end,
/// after one call that is not counted. All batches together take about `budget` seconds; 0 means
/// one call a batch.
double seconds_of(kernels::Device& device, const std::function<void()>& call, double budget);

/// Memory of a device for the operands of measured kernels. It lives as long as the room.
class Room {
 public:
  Room(kernels::Device& device, kernels::DType type) : device_(device), type_(type) {}
  /// Returns normally distributed numbers of the room's type; they repeat after a million.
  void* random(std::int64_t count) { return numbers(count, type_); }
  float* floats(std::int64_t count) {
    return static_cast<float*>(numbers(count, kernels::DType::f32));
  }
  /// Returns zeros of any type.
  void* zeros(std::int64_t count, kernels::DType type);
  /// Returns numbers below `end`, in no order.
  std::int32_t* tokens(std::int64_t count, std::int64_t end);
  /// Returns memory of the host.
  double* doubles(std::int64_t count);

 private:
  void* numbers(std::int64_t count, kernels::DType type);
  void* filled(const void* pattern, std::int64_t bytes, std::int64_t pattern_bytes);
  kernels::Device& device_;
  kernels::DType type_;
  std::deque<kernels::Memory> memory_;
  std::deque<std::vector<double>> doubles_;
};

/// Returns the bytes a second, read and written together, of copies within the device that move
/// `bytes` in all.
double copy_rate(kernels::Device& device, double bytes, double budget);

}  // namespace troupe::gpu
