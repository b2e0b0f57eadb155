#include "tests/gpu/bench/measure.hpp"

#include "troupe/kernels/half/half.hpp"
#include "troupe/kernels/philox/philox.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stdexcept>

namespace troupe::gpu {
namespace {

using kernels::DType;
using Clock = std::chrono::steady_clock;
constexpr std::int64_t kPattern = 1 << 20;  // elements
constexpr int kBatches = 5;

double seconds_of_batch(kernels::Device& device, const std::function<void()>& call, int calls) {
  const auto begun = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  device.compute().synchronize();
  return std::chrono::duration<double>(Clock::now() - begun).count() / calls;
}

const std::vector<float>& normals() {
  static const std::vector<float> values = [] {
    std::vector<float> all(kPattern);
    kernels::philox_normal(all.data(), kPattern, 1, 1, 0, 0, 1);
    return all;
  }();
  return values;
}

const std::vector<std::uint16_t>& half_normals() {
  static const std::vector<std::uint16_t> values = [] {
    std::vector<std::uint16_t> all(kPattern);
    std::transform(normals().begin(), normals().end(), all.begin(), kernels::to_bf16);
    return all;
  }();
  return values;
}

}  // namespace

double seconds_of(kernels::Device& device, const std::function<void()>& call, double budget) {
  seconds_of_batch(device, call, 1);
  const double one = seconds_of_batch(device, call, 1);
  const int calls = static_cast<int>(std::clamp(budget / kBatches / one, 1.0, 1000.0));
  std::vector<double> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(seconds_of_batch(device, call, calls));
  std::nth_element(batches.begin(), batches.begin() + kBatches / 2, batches.end());
  return batches[kBatches / 2];
}

void* Room::filled(const void* pattern, std::int64_t bytes, std::int64_t pattern_bytes) {
  kernels::Memory& memory = memory_.emplace_back(
      device_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
  for (std::int64_t at = 0; at < bytes; at += pattern_bytes)
    device_.copy(device_.compute(), static_cast<std::byte*>(memory.data()) + at, pattern,
                 static_cast<std::size_t>(std::min(pattern_bytes, bytes - at)));
  device_.compute().synchronize();
  return memory.data();
}

void* Room::numbers(std::int64_t count, DType type) {
  if (type == DType::f32) return filled(normals().data(), count * 4, kPattern * 4);
  if (type != DType::bf16) throw std::invalid_argument("f32 and bf16 are measured, no other type");
  return filled(half_normals().data(), count * 2, kPattern * 2);
}

void* Room::zeros(std::int64_t count, DType type) {
  return memory_
      .emplace_back(device_.allocate(static_cast<std::size_t>(count * kernels::size_of(type))))
      .data();
}

std::int32_t* Room::tokens(std::int64_t count, std::int64_t end) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<std::int32_t>(kernels::philox_bits(1, 2, i) % static_cast<std::uint64_t>(end));
  return static_cast<std::int32_t*>(filled(values.data(), count * 4, count * 4));
}

double* Room::doubles(std::int64_t count) {
  return doubles_.emplace_back(static_cast<std::size_t>(count)).data();
}

double copy_rate(kernels::Device& device, double bytes, double budget) {
  const auto half = std::max<std::int64_t>(256, static_cast<std::int64_t>(bytes / 2));
  Room room(device, DType::f32);
  void* from = room.zeros(half, DType::u8);
  void* to = room.zeros(half, DType::u8);
  const double seconds = seconds_of(
      device, [&] { device.copy(device.compute(), to, from, static_cast<std::size_t>(half)); },
      budget);
  return 2 * static_cast<double>(half) / seconds;
}

}  // namespace troupe::gpu
