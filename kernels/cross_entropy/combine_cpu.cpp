// CombineStats of operations.hpp: the statistics of all classes from those of each rank's classes.
#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"

#include <cmath>
#include <limits>

namespace troupe::kernels::cpu {
namespace {

/// Returns the greater one, or a NaN if one of them is NaN.
template <class T>
T greater(T a, T b) {
  return a > b || std::isnan(a) ? a : b;
}

template <class T>
void combine_row(const CombineStats& o, std::int64_t r) {
  const auto at = [&](std::int64_t part, std::int64_t which) {
    return internal::pointer<T>(o.in)[(3 * part + which) * o.rows + r];
  };
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  T top = kNone, target = kNone, sum = 0;
  for (int p = 0; p < o.parts; ++p) {
    top = greater(top, at(p, 0));
    target = greater(target, at(p, 2));
  }
  const T base = top == kNone ? T(0) : top;  // -infinity minus -infinity would be NaN
  for (int p = 0; p < o.parts; ++p) sum += at(p, 1) * std::exp(at(p, 0) - base);
  T* out = internal::pointer<T>(o.out) + r;
  out[0] = top;
  out[o.rows] = sum;
  out[2 * o.rows] = target;
}

}  // namespace

void combine_stats(Queue& queue, const CombineStats& o) {
  internal::of_type(o.type, [&]<class T>(T) {
    internal::parallel(queue, o.rows, internal::grain(o.parts, internal::kDear),
                       [&](std::int64_t first, std::int64_t end) {
                         for (std::int64_t r = first; r < end; ++r) combine_row<T>(o, r);
                       });
  });
}

}  // namespace troupe::kernels::cpu
