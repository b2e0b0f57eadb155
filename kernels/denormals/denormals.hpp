/// Keeps subnormal numbers out of a computation: on common CPUs one costs a hundred ordinary
/// operations, and a model that trains badly is full of them (measured: a step ten times as long).
///
///     const FlushDenormals flush;      // until the end of the scope, on this thread
///     model.forward_backward(batch);
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace troupe::kernels {

/// While one lives, its thread reads and writes subnormal numbers as zero; the old mode comes back
/// with the destructor. Nests. Does nothing on CPUs other than x86-64 and 64-bit Arm.
class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() noexcept : before_(_mm_getcsr()) {
    _mm_setcsr(static_cast<unsigned>(before_) | 0x8040u);  // flush to zero, denormals are zero
  }
  ~FlushDenormals() { _mm_setcsr(static_cast<unsigned>(before_)); }
#elif defined(__aarch64__)
  FlushDenormals() noexcept {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ | std::uint64_t{1} << 24));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(before_)); }
#else
  FlushDenormals() noexcept {}
  ~FlushDenormals() {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  [[maybe_unused]] std::uint64_t before_ = 0;
};

}  // namespace troupe::kernels
