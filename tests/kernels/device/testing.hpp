/// Helpers of the operations' tests: a queue that divides all work, memory with guards around it,
/// and gradients by central differences in f64.
#pragma once

#include "troupe/kernels/device/device.hpp"
#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

namespace troupe::kernels {

/// Divides all work into `threads` parts, however small, each on a thread of its own.
class SplitQueue : public Queue {
 public:
  explicit SplitQueue(int threads = 1) : threads_(threads) {}
  void synchronize() override {}
  void* scratch(std::size_t bytes) override {
    scratch_.resize(bytes / sizeof(std::max_align_t) + 1);
    return scratch_.data();
  }
  void parallel(std::int64_t n, std::int64_t,
                const std::function<void(std::int64_t, std::int64_t)>& part) override {
    std::vector<std::jthread> running;
    for (std::int64_t i = 0; i < threads_; ++i) {
      const std::int64_t first = n * i / threads_, end = n * (i + 1) / threads_;
      if (first < end) running.emplace_back([&part, first, end] { part(first, end); });
    }
  }
  int threads() const noexcept override { return threads_; }

 private:
  int threads_;
  std::vector<std::max_align_t> scratch_;
};

/// Memory for n elements, `offset` elements after an aligned address, between guards.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::vector<T> values, std::size_t offset = 0)
      : offset_(kGuard + offset), n_(values.size()), memory_(offset_ + n_ + kGuard, kCanary) {
    std::copy(values.begin(), values.end(), memory_.begin() + static_cast<std::ptrdiff_t>(offset_));
  }
  ~Guarded() {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      EXPECT_TRUE((i >= offset_ && i < offset_ + n_) || memory_[i] == kCanary) << "written outside";
  }
  T* data() { return memory_.data() + offset_; }
  std::vector<T> values() { return {data(), data() + n_}; }

 private:
  static constexpr std::size_t kGuard = 16;
  static inline const T kCanary = T(77);
  std::size_t offset_, n_;
  std::vector<T> memory_;
};

/// Returns uniform numbers in [-scale, scale]; the same for f32 and f64.
template <class T>
std::vector<T> randoms(std::int64_t n, std::uint64_t seed, double scale = 1) {
  Random random(seed);
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& value : x) value = static_cast<T>(static_cast<float>((random.uniform() * 2 - 1) * scale));
  return x;
}

template <class T>
inline constexpr DType type_of = internal::TypeOf<T>::value;

template <class T>
double dot(const std::vector<T>& a, const std::vector<T>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += static_cast<double>(a[i]) * b[i];
  return total;
}

/// Expects that `gradient` is d f / d x to about 1e-7, by central differences. Restores x.
inline void expect_gradient(std::vector<double>& x, const std::vector<double>& gradient,
                            const std::function<double()>& f) {
  ASSERT_EQ(x.size(), gradient.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i], step = 1e-5;
    x[i] = kept + step;
    const double above = f();
    x[i] = kept - step;
    const double below = f();
    x[i] = kept;
    const double numeric = (above - below) / (2 * step);
    EXPECT_NEAR(gradient[i], numeric, 1e-7 * (1 + std::abs(numeric))) << "element " << i;
  }
}

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kHuge = std::numeric_limits<float>::max();

}  // namespace troupe::kernels
