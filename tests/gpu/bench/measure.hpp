// How long a device needs for what is enqueued, and memory to do it with.
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

/// Seconds of one call: the median of five batches, each synchronised at its end, after one call
/// that is not counted. All of them take about `budget` seconds; 0: one call a batch.
double seconds_of(kernels::Device& device, const std::function<void()>& call, double budget);

/// Memory of a device that holds what kernels are measured on.
class Room {
 public:
  Room(kernels::Device& device, kernels::DType type) : device_(device), type_(type) {}
  /// Normal numbers of the room's type; they repeat after a million.
  void* random(std::int64_t count) { return numbers(count, type_); }
  float* floats(std::int64_t count) {
    return static_cast<float*>(numbers(count, kernels::DType::f32));
  }
  /// Zeros of any type.
  void* zeros(std::int64_t count, kernels::DType type);
  /// Numbers below `end`, in no order.
  std::int32_t* tokens(std::int64_t count, std::int64_t end);
  /// Memory of the host.
  double* doubles(std::int64_t count);

 private:
  void* numbers(std::int64_t count, kernels::DType type);
  void* filled(const void* pattern, std::int64_t bytes, std::int64_t pattern_bytes);
  kernels::Device& device_;
  kernels::DType type_;
  std::deque<kernels::Memory> memory_;
  std::deque<std::vector<double>> doubles_;
};

/// Bytes a second, read and written together, of copies from one place of the device to another
/// that move so many bytes in all.
double copy_rate(kernels::Device& device, double bytes, double budget);

}  // namespace troupe::gpu
