// Tests operations on images (im2col, pooling, transposes) against their definitions, and their
// gradients.
#include "testing.hpp"

#include <cstring>

namespace troupe::kernels {
namespace {

std::int64_t places(std::int64_t size, const Im2col& o) {
  const std::int64_t room = size + 2 * o.padding - o.kernel;
  return room < 0 ? 0 : room / o.stride + 1;
}

std::int64_t matrix_size(const Im2col& o) {
  return o.batch * places(o.height, o) * places(o.width, o) * o.channels * o.kernel * o.kernel;
}

/// Returns the pixel that element (b, y, x, c, i, j) of the matrix shows; -1 outside of the
/// image.
std::int64_t pixel_of(const Im2col& o, std::int64_t element) {
  const std::int64_t j = element % o.kernel, i = element / o.kernel % o.kernel;
  std::int64_t rest = element / o.kernel / o.kernel;
  const std::int64_t c = rest % o.channels;
  rest /= o.channels;
  const std::int64_t x = rest % places(o.width, o),
                     y = rest / places(o.width, o) % places(o.height, o);
  const std::int64_t b = rest / places(o.width, o) / places(o.height, o);
  const std::int64_t row = y * o.stride - o.padding + i, column = x * o.stride - o.padding + j;
  if (row < 0 || row >= o.height || column < 0 || column >= o.width) return -1;
  return ((b * o.channels + c) * o.height + row) * o.width + column;
}

const std::vector<Im2col>& shapes() {
  static const std::vector<Im2col> all = [] {
    std::vector<Im2col> result;
    for (const std::int64_t kernel : {1, 2, 3, 5})
      for (const std::int64_t stride : {1, 2, 3})
        for (const std::int64_t padding : {0, 1, 2, 4})
          for (const auto& [height, width] : {std::pair<int, int>{1, 1}, {4, 7}, {8, 3}})
            result.push_back({.type = DType::f64,
                              .batch = 2,
                              .channels = 3,
                              .height = height,
                              .width = width,
                              .kernel = kernel,
                              .stride = stride,
                              .padding = padding});
    return result;
  }();
  return all;
}

TEST(Images, MatrixShowsThePixels) {
  for (Im2col o : shapes()) {
    const auto image = randoms<double>(o.batch * o.channels * o.height * o.width, 1);
    Guarded<double> matrix(std::vector<double>(static_cast<std::size_t>(matrix_size(o)), 9.0));
    o.in = image.data();
    o.out = matrix.data();
    SplitQueue queue(3);
    cpu::im2col(queue, o);
    const auto values = matrix.values();
    for (std::int64_t e = 0; e < matrix_size(o); ++e) {
      const std::int64_t pixel = pixel_of(o, e);
      ASSERT_EQ(values[static_cast<std::size_t>(e)],
                pixel < 0 ? 0 : image[static_cast<std::size_t>(pixel)]);
    }
  }
}

TEST(Images, ColumnsComeBackAsSums) {
  for (Im2col o : shapes()) {
    const auto columns = randoms<double>(matrix_size(o), 1);
    const auto pixels = o.batch * o.channels * o.height * o.width;
    std::vector<double> expected(static_cast<std::size_t>(pixels));
    for (std::int64_t e = 0; e < matrix_size(o); ++e)
      if (const std::int64_t pixel = pixel_of(o, e); pixel >= 0)
        expected[static_cast<std::size_t>(pixel)] += columns[static_cast<std::size_t>(e)];
    Guarded<double> image(std::vector<double>(static_cast<std::size_t>(pixels), 9.0));
    o.in = columns.data();
    o.out = image.data();
    SplitQueue queue(3);
    cpu::col2im(queue, o);
    EXPECT_EQ(image.values(), expected);
  }
}

TEST(Images, ColumnsOfTheGradientAreTheGradient) {
  Im2col o{.type = DType::f64,
           .batch = 2,
           .channels = 2,
           .height = 5,
           .width = 4,
           .stride = 2,
           .padding = 1};
  auto image = randoms<double>(2 * 2 * 5 * 4, 1);
  const auto dout = randoms<double>(matrix_size(o), 2);
  std::vector<double> gradient(image.size()), matrix(dout.size());
  SplitQueue queue;
  Im2col back = o;
  back.in = dout.data();
  back.out = gradient.data();
  cpu::col2im(queue, back);
  o.in = image.data();
  o.out = matrix.data();
  expect_gradient(image, gradient, [&] {
    cpu::im2col(queue, o);
    return dot(matrix, dout);
  });
}

template <class T>
struct Pool {
  std::int64_t planes, height, width, window;
  std::vector<T> in;
  std::size_t places = static_cast<std::size_t>(planes * (height / window) * (width / window));
  std::vector<T> out = std::vector<T>(places), din = std::vector<T>(in.size(), T(9));
  std::vector<T> dout = randoms<T>(static_cast<std::int64_t>(places), 5);
  std::vector<std::int32_t> index = std::vector<std::int32_t>(places);

  MaxPool call() {
    return {.type = type_of<T>,
            .planes = planes,
            .height = height,
            .width = width,
            .window = window,
            .in = in.data(),
            .out = out.data(),
            .index = index.data(),
            .dout = dout.data(),
            .din = din.data()};
  }
};

TEST(MaxPool, TakesTheLargestAndSaysWhich) {
  Pool<float> pool{1, 2, 5, 2, {1, 5, 2, 2, 99, 3, 4, 2, 2, 99}};
  SplitQueue queue;
  cpu::max_pool(queue, pool.call());
  EXPECT_EQ(pool.out, (std::vector<float>{5, 2}));
  EXPECT_EQ(pool.index, (std::vector<std::int32_t>{1, 2}));  // the first of equal values
}

TEST(MaxPool, GradientIsCentralDifferences) {
  for (const std::int64_t window : {1, 2, 3}) {
    Pool<double> pool{3, 7, 5, window, randoms<double>(3 * 7 * 5, 1)};
    SplitQueue queue(2);
    cpu::max_pool(queue, pool.call());
    cpu::max_pool_backward(queue, pool.call());
    const auto gradient = pool.din;
    expect_gradient(pool.in, gradient, [&] {
      cpu::max_pool(queue, pool.call());
      return dot(pool.out, pool.dout);
    });
  }
}

TEST(MaxPool, NaNWinsItsWindow) {
  for (std::size_t at = 0; at < 4; ++at) {
    Pool<float> pool{1, 2, 4, 2, {1, 2, 7, 8, 3, 4, 5, 6}};
    pool.in[at / 2 * 4 + at % 2] = kNaN;
    SplitQueue queue;
    cpu::max_pool(queue, pool.call());
    EXPECT_TRUE(std::isnan(pool.out[0]));
    EXPECT_EQ(pool.out[1], 8);
  }
}

TEST(MaxPool, InfinitiesHavePlaces) {
  Pool<float> pool{1, 2, 2, 2, {-kInfinity, -kInfinity, -kInfinity, -kInfinity}};
  SplitQueue queue;
  cpu::max_pool(queue, pool.call());
  EXPECT_EQ(pool.out[0], -kInfinity);
  EXPECT_EQ(pool.index[0], 0);
}

TEST(Transpose, SwapsTwoAxesOfEveryType) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::u8})
    for (const std::int64_t outer : {1, 3})
      for (const std::int64_t a : {1, 4, 33})
        for (const std::int64_t b : {1, 5, 40})
          for (const std::int64_t inner : {1, 2, 7}) {
            const std::int64_t size = size_of(type), n = outer * a * b * inner * size;
            std::vector<std::uint8_t> in(static_cast<std::size_t>(n)), out(in.size()),
                expected(in.size());
            Random random(7);
            for (auto& byte : in) byte = static_cast<std::uint8_t>(random.uniform() * 256);
            for (std::int64_t o = 0; o < outer; ++o)
              for (std::int64_t i = 0; i < a; ++i)
                for (std::int64_t j = 0; j < b; ++j)
                  std::memcpy(expected.data() + ((o * b + j) * a + i) * inner * size,
                              in.data() + ((o * a + i) * b + j) * inner * size,
                              static_cast<std::size_t>(inner * size));
            SplitQueue queue(3);
            cpu::transpose(queue, {type, outer, a, b, inner, in.data(), out.data()});
            ASSERT_EQ(out, expected);
          }
}

}  // namespace
}  // namespace troupe::kernels
