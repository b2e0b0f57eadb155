/// Helpers of the CPU's implementations (cpu.hpp): the choice of a type, and the division of work
/// among threads.
///
///     of_type(o.type, [&]<class T>(T) { rows(pointer<T>(o.in), ...); });
///     parallel(queue, o.rows, grain(o.columns, kDear), [&](auto first, auto end) { ... });
#pragma once

#include "troupe/kernels/device/device.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>

namespace troupe::kernels::internal {

// The fewest elements for which another thread is worth its fork and join.
inline constexpr std::int64_t kCheap = 32768;  ///< for elements of a few additions
inline constexpr std::int64_t kDear = 8192;    ///< for elements with an exponential

/// Returns the fewest rows of `columns` elements that are worth another thread.
inline std::int64_t grain(std::int64_t columns, std::int64_t elements) {
  return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, columns));
}

/// Calls queue.parallel() unless n is 0. std::ref keeps std::function from allocating a copy.
template <class Part>
void parallel(Queue& queue, std::int64_t n, std::int64_t grain, const Part& part) {
  if (n > 0) queue.parallel(n, grain, std::ref(part));
}

/// Calls f(float()) or f(double()).
template <class F>
void of_type(DType type, const F& f) {
  TROUPE_ASSERT(type == DType::f32 || type == DType::f64, "the CPU computes in f32 and f64");
  if (type == DType::f32)
    f(float());
  else
    f(double());
}

template <class T>
const T* pointer(const void* memory) {
  return static_cast<const T*>(memory);
}
template <class T>
T* pointer(void* memory) {
  return static_cast<T*>(memory);
}

}  // namespace troupe::kernels::internal
