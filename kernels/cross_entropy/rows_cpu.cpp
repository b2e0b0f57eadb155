// Softmax cross-entropy of operations.hpp: whole, and in two parts between which ranks exchange
// statistics.
#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

#include <limits>

namespace troupe::kernels::cpu {
namespace {
using internal::grain;
using internal::kDear;
using internal::of_type;
using internal::pointer;

template <class T>
struct Stats {
  T maximum, sum, target_logit;
};

/// Returns the number to subtract from logits before their powers: the maximum, or 0 if all logits
/// are -infinity, since -infinity minus -infinity would be NaN.
template <class T>
TROUPE_INLINE T offset(T maximum) {
  return maximum == -std::numeric_limits<T>::infinity() ? T(0) : maximum;
}

/// Returns the loss. The logits are subtracted first: log(sum) + maximum would lose the digits of
/// log(sum) if logits are large.
template <class T>
TROUPE_INLINE T loss(const Stats<T>& s) {
  return static_cast<T>(std::log(s.sum)) + (s.maximum - s.target_logit);
}

/// Returns the place of the row's target among this rank's classes, or -1.
TROUPE_INLINE std::int64_t local_target(const CrossEntropy& o, std::int64_t r) {
  const std::int64_t target = o.targets[r] - o.first;
  return o.targets[r] == kIgnore || target < 0 || target >= o.classes ? -1 : target;
}

/// Computes the statistics of a rank's part of a row, which may be empty or all -infinity. With
/// `keep` the part is the whole row, and its powers replace the logits.
template <bool keep, class T>
TROUPE_INLINE Stats<T> row_stats(T* row, std::int64_t classes, std::int64_t target) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  if (classes == 0) return {kNone, T(0), kNone};
  const T top = internal::maximum(row, classes), base = offset(top);
  const T at_target = target < 0 ? kNone : row[target];
  if constexpr (!keep)
    return {top,
            internal::sum<T>(classes, [=](std::int64_t c) { return internal::exp(row[c] - base); }),
            at_target};
  for (std::int64_t c = 0; c < classes; ++c) row[c] = internal::exp(row[c] - base);
  return {top, internal::sum<T>(classes, [=](std::int64_t c) { return row[c]; }), at_target};
}

template <class T>
TROUPE_INLINE void ignore_row(const CrossEntropy& o, std::int64_t r) {
  pointer<T>(o.losses)[r] = T(0);
  T* row = pointer<T>(o.logits) + r * o.row;
  if (o.gradient)
    for (std::int64_t c = 0; c < o.classes; ++c) row[c] = T(0);
}

template <class T>
TROUPE_INLINE void whole_rows(const CrossEntropy& o, std::int64_t first, std::int64_t end) {
  const T scale = static_cast<T>(o.scale);
  for (std::int64_t r = first; r < end; ++r) {
    T* row = pointer<T>(o.logits) + r * o.row;
    const std::int64_t target = local_target(o, r);
    if (o.targets[r] == kIgnore) {
      ignore_row<T>(o, r);
    } else if (o.gradient) {
      const Stats<T> s = row_stats<true>(row, o.classes, target);
      const T factor = scale / s.sum;
      for (std::int64_t c = 0; c < o.classes; ++c) row[c] *= factor;
      if (target >= 0) row[target] -= scale;
      pointer<T>(o.losses)[r] = loss(s);
    } else {
      pointer<T>(o.losses)[r] = loss(row_stats<false>(row, o.classes, target));
    }
  }
}
TROUPE_KERNEL void whole(const CrossEntropy& o, float, std::int64_t first, std::int64_t end) {
  whole_rows<float>(o, first, end);
}
void whole(const CrossEntropy& o, double, std::int64_t first, std::int64_t end) {
  whole_rows<double>(o, first, end);
}

template <class T>
TROUPE_INLINE void stats_rows(const CrossEntropy& o, std::int64_t first, std::int64_t end) {
  for (std::int64_t r = first; r < end; ++r) {
    const Stats<T> s =
        row_stats<false>(pointer<T>(o.logits) + r * o.row, o.classes, local_target(o, r));
    pointer<T>(o.maximum)[r] = s.maximum;
    pointer<T>(o.sum)[r] = s.sum;
    pointer<T>(o.target_logit)[r] = s.target_logit;
  }
}
TROUPE_KERNEL void stats(const CrossEntropy& o, float, std::int64_t first, std::int64_t end) {
  stats_rows<float>(o, first, end);
}
void stats(const CrossEntropy& o, double, std::int64_t first, std::int64_t end) {
  stats_rows<double>(o, first, end);
}

template <class T>
TROUPE_INLINE void finish_rows(const CrossEntropy& o, std::int64_t first, std::int64_t end) {
  const T scale = static_cast<T>(o.scale);
  for (std::int64_t r = first; r < end; ++r) {
    if (o.targets[r] == kIgnore) {
      ignore_row<T>(o, r);
      continue;
    }
    const Stats<T> s{pointer<T>(o.maximum)[r], pointer<T>(o.sum)[r], pointer<T>(o.target_logit)[r]};
    pointer<T>(o.losses)[r] = loss(s);
    if (!o.gradient) continue;
    T* row = pointer<T>(o.logits) + r * o.row;
    const T base = offset(s.maximum), factor = scale / s.sum;
    for (std::int64_t c = 0; c < o.classes; ++c) row[c] = internal::exp(row[c] - base) * factor;
    if (const std::int64_t target = local_target(o, r); target >= 0) row[target] -= scale;
  }
}
TROUPE_KERNEL void finish(const CrossEntropy& o, float, std::int64_t first, std::int64_t end) {
  finish_rows<float>(o, first, end);
}
void finish(const CrossEntropy& o, double, std::int64_t first, std::int64_t end) {
  finish_rows<double>(o, first, end);
}

}  // namespace

void cross_entropy(Queue& queue, const CrossEntropy& o) {
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(queue, o.rows, grain(o.classes, kDear),
                       [&](std::int64_t first, std::int64_t end) { whole(o, type, first, end); });
  });
}

void cross_entropy_stats(Queue& queue, const CrossEntropy& o) {
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(queue, o.rows, grain(o.classes, kDear),
                       [&](std::int64_t first, std::int64_t end) { stats(o, type, first, end); });
  });
}

void cross_entropy_finish(Queue& queue, const CrossEntropy& o) {
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(queue, o.rows, grain(o.classes, kDear),
                       [&](std::int64_t first, std::int64_t end) { finish(o, type, first, end); });
  });
}

}  // namespace troupe::kernels::cpu
