// Images as matrices, pooling and transposes. A thread reads all inputs of one element of the
// result, so that no atomics are needed.
#include "internal.cuh"
#include "numbers.cuh"

namespace troupe_cuda {
namespace {

using kernels::Im2col;
using kernels::MaxPool;
using kernels::Transpose;

/// Counts the places of a kernel along an edge of this size.
__host__ __device__ int64_t places(const Im2col& o, int64_t size) {
  const int64_t room = size + 2 * o.padding - o.kernel;
  return room < 0 ? 0 : room / o.stride + 1;
}

/// Returns element (b, y, x, c, i, j) of the matrix.
template <class T>
__device__ float unfolded(const Im2col& o, int64_t element) {
  const int64_t high = places(o, o.height), wide = places(o, o.width);
  const int64_t j = element % o.kernel, i = element / o.kernel % o.kernel;
  int64_t rest = element / (o.kernel * o.kernel);
  const int64_t c = rest % o.channels;
  rest /= o.channels;
  const int64_t x = rest % wide, y = rest / wide % high, b = rest / wide / high;
  const int64_t row = y * o.stride - o.padding + i, column = x * o.stride - o.padding + j;
  if (row < 0 || row >= o.height || column < 0 || column >= o.width) return 0.0f;
  return load<T>(o.in, ((b * o.channels + c) * o.height + row) * o.width + column);
}

/// Returns the first place whose kernel covers pixel `at` of an edge.
__device__ int64_t first_place(const Im2col& o, int64_t at) {
  const int64_t behind = at + o.padding - o.kernel + 1;
  return behind <= 0 ? 0 : (behind + o.stride - 1) / o.stride;
}

/// Returns the sum of a pixel's columns, in ascending order of places as on the CPU.
template <class T>
__device__ float folded(const Im2col& o, int64_t pixel) {
  const int64_t high = places(o, o.height), wide = places(o, o.width);
  const int64_t column = pixel % o.width, row = pixel / o.width % o.height;
  const int64_t plane = pixel / o.width / o.height, c = plane % o.channels, b = plane / o.channels;
  float total = 0;
  for (int64_t y = first_place(o, row); y < high && y * o.stride - o.padding <= row; ++y)
    for (int64_t x = first_place(o, column); x < wide && x * o.stride - o.padding <= column; ++x) {
      const int64_t i = row - (y * o.stride - o.padding), j = column - (x * o.stride - o.padding);
      const int64_t place = (b * high + y) * wide + x;
      total += load<T>(o.in, ((place * o.channels + c) * o.kernel + i) * o.kernel + j);
    }
  return total;
}

/// Writes the largest element of a window and its place: the first of equals, or the last NaN if
/// there is one.
template <class T>
__device__ void pool(const MaxPool& o, int64_t element) {
  const int64_t high = o.height / o.window, wide = o.width / o.window;
  const int64_t x = element % wide, y = element / wide % high, p = element / wide / high;
  const T* plane = static_cast<const T*>(o.in) + p * o.height * o.width;
  int64_t best = y * o.window * o.width + x * o.window;
  const int64_t at = best;
  for (int64_t i = 0; i < o.window; ++i)
    for (int64_t j = 0; j < o.window; ++j) {
      const int64_t next = at + i * o.width + j;
      const float value = widen(plane[next]);
      if (value > widen(plane[best]) || value != value) best = next;
    }
  store<T>(o.out, element, widen(plane[best]));
  o.index[element] = static_cast<int32_t>(best);
}

template <class T>
__device__ float unpooled(const MaxPool& o, int64_t pixel) {
  const int64_t high = o.height / o.window, wide = o.width / o.window, size = o.height * o.width;
  const int64_t at = pixel % size, y = at / o.width / o.window, x = at % o.width / o.window;
  if (y >= high || x >= wide) return 0.0f;
  const int64_t element = (pixel / size * high + y) * wide + x;
  return o.index[element] == at ? load<T>(o.dout, element) : 0.0f;
}

template <class T>
int transposed(troupe_cuda_context* c, const Transpose& o) {
  const T* in = static_cast<const T*>(o.in);
  T* out = static_cast<T*>(o.out);
  return each(c, o.outer * o.a * o.b * o.inner, [=] __device__(int64_t i) {
    const int64_t inside = i % o.inner, a = i / o.inner % o.a, b = i / o.inner / o.a % o.b;
    const int64_t outer = i / o.inner / o.a / o.b;
    out[i] = in[((outer * o.a + a) * o.b + b) * o.inner + inside];
  });
}

template <class T>
int unfold(troupe_cuda_context* c, const Im2col& o) {
  const int64_t n =
      o.batch * places(o, o.height) * places(o, o.width) * o.channels * o.kernel * o.kernel;
  return each(c, n, [=] __device__(int64_t i) { store<T>(o.out, i, unfolded<T>(o, i)); });
}

template <class T>
int fold(troupe_cuda_context* c, const Im2col& o) {
  return each(c, o.batch * o.channels * o.height * o.width,
              [=] __device__(int64_t i) { store<T>(o.out, i, folded<T>(o, i)); });
}

template <class T>
int pool_all(troupe_cuda_context* c, const MaxPool& o) {
  return each(c, o.planes * (o.height / o.window) * (o.width / o.window),
              [=] __device__(int64_t i) { pool<T>(o, i); });
}

template <class T>
int unpool_all(troupe_cuda_context* c, const MaxPool& o) {
  return each(c, o.planes * o.height * o.width,
              [=] __device__(int64_t i) { store<T>(o.din, i, unpooled<T>(o, i)); });
}

}  // namespace

int im2col(troupe_cuda_context* c, const Im2col& o) {
  return of_type(o.type, [&]<class T>(T) { return unfold<T>(c, o); });
}

int col2im(troupe_cuda_context* c, const Im2col& o) {
  return of_type(o.type, [&]<class T>(T) { return fold<T>(c, o); });
}

int max_pool(troupe_cuda_context* c, const MaxPool& o) {
  return of_type(o.type, [&]<class T>(T) { return pool_all<T>(c, o); });
}

int max_pool_backward(troupe_cuda_context* c, const MaxPool& o) {
  return of_type(o.type, [&]<class T>(T) { return unpool_all<T>(c, o); });
}

int transpose(troupe_cuda_context* c, const Transpose& o) {
  switch (kernels::size_of(o.type)) {
    case 1: return transposed<uint8_t>(c, o);
    case 2: return transposed<uint16_t>(c, o);
    case 4: return transposed<uint32_t>(c, o);
    default: return transposed<uint64_t>(c, o);
  }
}

}  // namespace troupe_cuda
