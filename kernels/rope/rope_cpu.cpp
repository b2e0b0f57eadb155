#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

#include <vector>

namespace troupe::kernels::cpu {
namespace {
using internal::of_type;
using internal::pointer;

constexpr std::int64_t kPairs = 64;  ///< pairs whose sines are computed together

struct Rotation {
  const Rope& o;
  const double* frequencies;  ///< one per pair, in radians per position
};

/// Computes sines and cosines of position * frequency to about 1e-7: the angle is reduced to
/// [-pi/4, pi/4] in double. Source: the polynomials of Cephes (sinf.c, cosf.c), in float.
TROUPE_INLINE void turns(float* cosine, float* sine, const double* frequencies, std::int64_t n,
                         double position) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double magic = 6755399441055744.0;  // adding 1.5 * 2^52 rounds to a whole number
    const double angle = position * frequencies[i];
    const double shifted = angle * 0.63661977236758134308 + magic, quarters = shifted - magic;
    const float r = static_cast<float>((angle - quarters * 1.57079632673412561417e+00) -
                                       quarters * 6.07710050650619224932e-11);
    const float z = r * r;
    const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    const float c =
        ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
        0.5f * z + 1.0f;
    // The low bits of the mantissa hold the number of quarter turns: odd ones swap sine and cosine,
    // and two or three of four change the sign.
    const auto quadrant = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(shifted));
    const float a = (quadrant & 1) != 0 ? c : s, b = (quadrant & 1) != 0 ? s : c;
    sine[i] = (quadrant & 2) != 0 ? -a : a;
    cosine[i] = ((quadrant + 1) & 2) != 0 ? -b : b;
  }
}
TROUPE_INLINE void turns(double* cosine, double* sine, const double* frequencies, std::int64_t n,
                         double position) {
  for (std::int64_t i = 0; i < n; ++i) {
    cosine[i] = std::cos(position * frequencies[i]);
    sine[i] = std::sin(position * frequencies[i]);
  }
}

template <class T>
TROUPE_INLINE void turn_pairs(T* __restrict a, T* __restrict b, const T* cosine, const T* sine,
                              std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = a[i], y = b[i];
    a[i] = x * cosine[i] - y * sine[i];
    b[i] = y * cosine[i] + x * sine[i];
  }
}

template <class T>
TROUPE_INLINE void turn_rows(const Rotation& rotation, std::int64_t first, std::int64_t end) {
  const Rope& o = rotation.o;
  const std::int64_t half = o.head_size / 2;
  T cosine[kPairs], sine[kPairs];
  for (std::int64_t r = first; r < end; ++r) {
    const std::int64_t position = o.first_position + r % o.time;
    T* row = pointer<T>(o.x) + r * o.row;
    for (std::int64_t from = 0; from < half; from += kPairs) {
      const std::int64_t n = std::min(kPairs, half - from);
      turns(cosine, sine, rotation.frequencies + from, n,
            static_cast<double>(o.inverse ? -position : position));
      for (std::int64_t h = 0; h < o.heads; ++h) {
        T* head = row + h * o.head_size + from;
        turn_pairs(head, head + half, cosine, sine, n);
      }
    }
  }
}
TROUPE_KERNEL void turn(const Rotation& rotation, float, std::int64_t first, std::int64_t end) {
  turn_rows<float>(rotation, first, end);
}
void turn(const Rotation& rotation, double, std::int64_t first, std::int64_t end) {
  turn_rows<double>(rotation, first, end);
}

}  // namespace

void rope(Queue& queue, const Rope& o) {
  const std::int64_t half = o.head_size / 2;
  std::vector<double> frequencies(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i)
    frequencies[static_cast<std::size_t>(i)] =
        std::pow(static_cast<double>(o.theta),
                 -2.0 * static_cast<double>(i) / static_cast<double>(o.head_size));
  const Rotation rotation{o, frequencies.data()};
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(
        queue, o.rows, internal::grain(o.heads * o.head_size, internal::kDear),
        [&](std::int64_t first, std::int64_t end) { turn(rotation, type, first, end); });
  });
}

}  // namespace troupe::kernels::cpu
