/// FlushDenormals keeps subnormal numbers out of a computation. On common CPUs an operation on one
/// costs as much as a hundred others, and a model that trains badly is full of them.
///
///     const FlushDenormals flush;      // until the end of the scope, on this thread
///     model.forward_backward(batch);
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace troupe::kernels {

/// A thread's floating-point mode: rounding, and the treatment of subnormal numbers. It holds the
/// bits of the CPU's control register (MXCSR, FPCR), or 0 on CPUs other than x86-64 and 64-bit Arm.
class FloatMode {
 public:
  /// Returns the mode of the calling thread.
  static FloatMode current() noexcept {
#if defined(__SSE__)
    return FloatMode(_mm_getcsr());
#elif defined(__aarch64__)
    std::uint64_t bits = 0;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return FloatMode(bits);
#else
    return FloatMode(0);
#endif
  }
  /// Returns this mode with subnormal numbers read and written as zero.
  FloatMode flushing() const noexcept {
#if defined(__SSE__)
    return FloatMode(bits_ | 0x8040u);  // bits 15 (flush to zero) and 6 (denormals are zero)
#else
    return FloatMode(bits_ | std::uint64_t{1} << 24);  // bit FZ
#endif
  }
  /// Makes it the mode of the calling thread.
  void set() const noexcept {
#if defined(__SSE__)
    _mm_setcsr(static_cast<unsigned>(bits_));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" ::"r"(bits_));
#endif
  }

 private:
  explicit FloatMode(std::uint64_t bits) noexcept : bits_(bits) {}
  std::uint64_t bits_;
};

/// Sets the thread's mode for the lifetime of the object. The destructor restores the old mode.
class FloatModeScope {
 public:
  explicit FloatModeScope(FloatMode mode) noexcept { mode.set(); }
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;
  ~FloatModeScope() { before_.set(); }

 private:
  FloatMode before_ = FloatMode::current();
};

/// While the object lives, its thread reads and writes subnormal numbers as zero. The destructor
/// restores the old mode. Objects nest. Does nothing on CPUs other than x86-64 and 64-bit Arm.
class FlushDenormals {
 public:
  FlushDenormals() noexcept : scope_(FloatMode::current().flushing()) {}

 private:
  FloatModeScope scope_;
};

}  // namespace troupe::kernels
