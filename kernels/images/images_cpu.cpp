#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"

#include <cmath>

namespace troupe::kernels::cpu {
namespace {
using internal::grain;
using internal::kCheap;
using internal::of_type;
using internal::pointer;

/// Counts the places of a kernel along an edge of this size.
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

/// A place of the kernel: its top left pixel, and the kernel's rows and columns that lie in the
/// image.
struct Place {
  std::int64_t top, left;
  Inside rows, columns;
};
Place place(const Im2col& o, std::int64_t y, std::int64_t x) {
  const std::int64_t top = y * o.stride - o.padding, left = x * o.stride - o.padding;
  return {top, left, inside(top, o.kernel, o.height), inside(left, o.kernel, o.width)};
}
bool is_whole(const Im2col& o, const Place& at) {
  return at.rows.end - at.rows.first == o.kernel && at.columns.end - at.columns.first == o.kernel;
}

/// Calls f(element of the kernel, pixel of the plane) for a kernel that lies wholly in the image.
/// Its constant size lets the compiler unroll the loops.
template <std::int64_t kernel, class F>
void for_square(const Im2col& o, const Place& at, const F& f) {
  const std::int64_t pixel = at.top * o.width + at.left;
  for (std::int64_t i = 0; i < kernel; ++i)
    for (std::int64_t j = 0; j < kernel; ++j) f(i * kernel + j, pixel + i * o.width + j);
}
/// The same for any kernel, at those elements that lie in the image.
template <class F>
void for_inside(const Im2col& o, const Place& at, const F& f) {
  if (o.kernel == 3 && is_whole(o, at)) return for_square<3>(o, at, f);
  if (o.kernel == 5 && is_whole(o, at)) return for_square<5>(o, at, f);
  for (std::int64_t i = at.rows.first; i < at.rows.end; ++i)
    for (std::int64_t j = at.columns.first; j < at.columns.end; ++j)
      f(i * o.kernel + j, (at.top + i) * o.width + at.left + j);
}

/// Writes row (b, y, x) of the matrix.
template <class T>
void unfold(const Im2col& o, const T* image, T* out, const Place& at) {
  const std::int64_t square = o.kernel * o.kernel, pixels = o.height * o.width;
  if (!is_whole(o, at)) std::fill(out, out + o.channels * square, T(0));
  for (std::int64_t c = 0; c < o.channels; ++c, out += square, image += pixels)
    for_inside(o, at,
               [=](std::int64_t element, std::int64_t pixel) { out[element] = image[pixel]; });
}

/// Writes plane (b, c) of the images. Places are visited in ascending order, so that the order of a
/// pixel's sum is fixed.
template <class T>
void fold(const Im2col& o, const T* matrix, T* plane, std::int64_t c) {
  const std::int64_t square = o.kernel * o.kernel, wide = places(o, o.width);
  std::fill(plane, plane + o.height * o.width, T(0));
  for (std::int64_t y = 0; y < places(o, o.height); ++y)
    for (std::int64_t x = 0; x < wide; ++x) {
      const T* from = matrix + ((y * wide + x) * o.channels + c) * square;
      for_inside(o, place(o, y, x),
                 [=](std::int64_t element, std::int64_t pixel) { plane[pixel] += from[element]; });
    }
}

/// Returns the place of the largest element of the window at `at`: the first of equals, or the last
/// NaN if there is one.
template <class T>
inline std::int64_t largest(std::int64_t window, std::int64_t width, const T* plane,
                            std::int64_t at) {
  std::int64_t best = at;
  for (std::int64_t i = 0; i < window; ++i)
    for (std::int64_t j = 0; j < window; ++j) {
      const std::int64_t next = at + i * width + j;
      best = plane[next] > plane[best] || std::isnan(plane[next]) ? next : best;
    }
  return best;
}

template <class T>
inline void pool(const MaxPool& o, std::int64_t window, std::int64_t p) {
  const std::int64_t high = o.height / window, wide = o.width / window, width = o.width;
  const T* plane = pointer<T>(o.in) + p * o.height * o.width;
  T* out = pointer<T>(o.out) + p * high * wide;
  std::int32_t* index = o.index + p * high * wide;
  for (std::int64_t y = 0; y < high; ++y)
    for (std::int64_t x = 0; x < wide; ++x) {
      const std::int64_t best = largest(window, width, plane, y * window * width + x * window);
      out[y * wide + x] = plane[best];
      index[y * wide + x] = static_cast<std::int32_t>(best);
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
              unfold(o, image, pointer<T>(o.out) + (r * wide + x) * row, place(o, r % high, x));
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
                         for (std::int64_t p = first; p < end; ++p)
                           if (o.window == 2)
                             pool<T>(o, 2, p);
                           else
                             pool<T>(o, o.window, p);
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
