#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"

#include <cstring>

namespace troupe::kernels::cpu {
namespace {
using internal::grain;
using internal::kCheap;
using internal::of_type;
using internal::pointer;

/// Places of a kernel along an edge.
std::int64_t places(const Im2col& o, std::int64_t size) {
  const std::int64_t room = size + 2 * o.padding - o.kernel;
  return room < 0 ? 0 : room / o.stride + 1;
}

/// The part of a kernel's row, at `start`, that lies in [0, size).
struct Inside {
  std::int64_t first, end;
};
Inside inside(std::int64_t start, std::int64_t kernel, std::int64_t size) {
  const std::int64_t first = std::clamp<std::int64_t>(-start, 0, kernel);
  return {first, std::clamp<std::int64_t>(size - start, first, kernel)};
}

/// Row (b, y, x) of the matrix.
template <class T>
void unfold(const Im2col& o, const T* image, T* out, std::int64_t y, std::int64_t x) {
  const std::int64_t top = y * o.stride - o.padding, left = x * o.stride - o.padding, k = o.kernel;
  const Inside rows = inside(top, k, o.height), columns = inside(left, k, o.width);
  for (std::int64_t c = 0; c < o.channels; ++c, out += k * k) {
    const T* plane = image + c * o.height * o.width;
    for (std::int64_t i = 0; i < k; ++i) {
      T* to = out + i * k;
      std::fill(to, to + k, T(0));
      if (i < rows.first || i >= rows.end) continue;
      const T* from = plane + (top + i) * o.width + left;
      for (std::int64_t j = columns.first; j < columns.end; ++j) to[j] = from[j];
    }
  }
}

/// Plane (b, c) of the image: places ascending, so that the order of a pixel's sum is fixed.
template <class T>
void fold(const Im2col& o, const T* matrix, T* plane, std::int64_t c) {
  const std::int64_t k = o.kernel, row = o.channels * k * k, wide = places(o, o.width);
  std::fill(plane, plane + o.height * o.width, T(0));
  for (std::int64_t y = 0; y < places(o, o.height); ++y)
    for (std::int64_t x = 0; x < wide; ++x) {
      const std::int64_t top = y * o.stride - o.padding, left = x * o.stride - o.padding;
      const Inside rows = inside(top, k, o.height), columns = inside(left, k, o.width);
      const T* from = matrix + (y * wide + x) * row + c * k * k;
      for (std::int64_t i = rows.first; i < rows.end; ++i)
        for (std::int64_t j = columns.first; j < columns.end; ++j)
          plane[(top + i) * o.width + left + j] += from[i * k + j];
    }
}

/// The first of the largest of a window at `at`; the last NaN where there is one.
template <class T>
std::int64_t largest(const MaxPool& o, const T* plane, std::int64_t at) {
  std::int64_t best = at;
  for (std::int64_t i = 0; i < o.window; ++i)
    for (std::int64_t j = 0; j < o.window; ++j) {
      const std::int64_t next = at + i * o.width + j;
      if (plane[next] > plane[best] || plane[next] != plane[next]) best = next;
    }
  return best;
}

template <class T>
void pool(const MaxPool& o, std::int64_t p) {
  const std::int64_t high = o.height / o.window, wide = o.width / o.window;
  const T* plane = pointer<T>(o.in) + p * o.height * o.width;
  for (std::int64_t y = 0; y < high; ++y)
    for (std::int64_t x = 0; x < wide; ++x) {
      const std::int64_t best = largest(o, plane, y * o.window * o.width + x * o.window);
      const std::int64_t to = (p * high + y) * wide + x;
      pointer<T>(o.out)[to] = plane[best];
      o.index[to] = static_cast<std::int32_t>(best);
    }
}

template <class T>
void unpool(const MaxPool& o, std::int64_t p) {
  const std::int64_t n = (o.height / o.window) * (o.width / o.window);
  T* plane = pointer<T>(o.din) + p * o.height * o.width;
  std::fill(plane, plane + o.height * o.width, T(0));
  for (std::int64_t i = p * n; i < (p + 1) * n; ++i)
    plane[o.index[i]] = pointer<T>(o.dout)[i];  // windows do not overlap
}

}  // namespace

void im2col(Queue& queue, const Im2col& o) {
  const std::int64_t high = places(o, o.height), wide = places(o, o.width);
  const std::int64_t row = o.channels * o.kernel * o.kernel;
  of_type(o.type, [&]<class T>(T) {
    internal::parallel(
        queue, o.batch * high, grain(wide * row, kCheap),
        [&](std::int64_t first, std::int64_t end) {
          for (std::int64_t r = first; r < end; ++r) {
            const T* image = pointer<T>(o.in) + r / high * o.channels * o.height * o.width;
            for (std::int64_t x = 0; x < wide; ++x)
              unfold(o, image, pointer<T>(o.out) + (r * wide + x) * row, r % high, x);
          }
        });
  });
}

void col2im(Queue& queue, const Im2col& o) {
  const std::int64_t matrix =
      places(o, o.height) * places(o, o.width) * o.channels * o.kernel * o.kernel;
  of_type(o.type, [&]<class T>(T) {
    internal::parallel(queue, o.batch * o.channels, grain(o.height * o.width, kCheap / 4),
                       [&](std::int64_t first, std::int64_t end) {
                         for (std::int64_t p = first; p < end; ++p)
                           fold(o, pointer<T>(o.in) + p / o.channels * matrix,
                                pointer<T>(o.out) + p * o.height * o.width, p % o.channels);
                       });
  });
}

void max_pool(Queue& queue, const MaxPool& o) {
  of_type(o.type, [&]<class T>(T) {
    internal::parallel(queue, o.planes, grain(o.height * o.width, kCheap),
                       [&](std::int64_t first, std::int64_t end) {
                         for (std::int64_t p = first; p < end; ++p) pool<T>(o, p);
                       });
  });
}

void max_pool_backward(Queue& queue, const MaxPool& o) {
  of_type(o.type, [&]<class T>(T) {
    internal::parallel(queue, o.planes, grain(o.height * o.width, kCheap),
                       [&](std::int64_t first, std::int64_t end) {
                         for (std::int64_t p = first; p < end; ++p) unpool<T>(o, p);
                       });
  });
}

}  // namespace troupe::kernels::cpu
