// Tests the rotary embedding: its definition, its inverse, and the numbers that it must not
// touch.
#include "testing.hpp"

#include <numbers>

namespace troupe::kernels {
namespace {

template <class T>
Rope rope_of(std::vector<T>& x, std::int64_t rows, std::int64_t heads, std::int64_t size) {
  return {.type = type_of<T>,
          .rows = rows,
          .time = rows,
          .heads = heads,
          .head_size = size,
          .row = heads * size,
          .x = x.data()};
}

/// Computes the rotation by its definition, in long double.
template <class T>
std::vector<T> defined(std::vector<T> x, const Rope& o) {
  const std::int64_t half = o.head_size / 2;
  for (std::int64_t r = 0; r < o.rows; ++r)
    for (std::int64_t h = 0; h < o.heads; ++h)
      for (std::int64_t i = 0; i < half; ++i) {
        const long double angle =
            static_cast<long double>(o.first_position + r % o.time) *
            std::pow(static_cast<long double>(o.theta),
                     -2.0L * static_cast<long double>(i) / static_cast<long double>(o.head_size));
        T& a = x[static_cast<std::size_t>(r * o.row + h * o.head_size + i)];
        T& b = x[static_cast<std::size_t>(r * o.row + h * o.head_size + i + half)];
        const long double p = a, q = b;
        a = static_cast<T>(p * std::cos(angle) - q * std::sin(angle));
        b = static_cast<T>(q * std::cos(angle) + p * std::sin(angle));
      }
  return x;
}

template <class T>
void expect_definition(std::int64_t first, std::int64_t size, double tolerance) {
  auto x = randoms<T>(9 * 3 * size, 1);
  Rope o = rope_of(x, 9, 3, size);
  o.first_position = first;
  o.time = 5;
  const auto expected = defined(x, o);
  SplitQueue queue(2);
  cpu::rope(queue, o);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], expected[i], tolerance) << i;
}

TEST(Rope, IsItsDefinition) {
  for (const std::int64_t size : {2, 6, 64, 130, 256})
    for (const std::int64_t first : {0, 1000, 131072, 10000000}) {
      SCOPED_TRACE(testing::Message() << size << " " << first);
      expect_definition<float>(first, size, 4e-7);
      expect_definition<double>(first, size, 1e-13 + 4e-16 * static_cast<double>(first));
    }
}

TEST(Rope, InverseUndoesIt) {
  auto x = randoms<double>(7 * 2 * 10, 1);
  const auto before = x;
  Rope o = rope_of(x, 7, 2, 10);
  SplitQueue queue;
  cpu::rope(queue, o);
  EXPECT_NE(x, before);
  o.inverse = true;
  cpu::rope(queue, o);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], before[i], 1e-15);
}

TEST(Rope, InverseIsTheGradient) {
  auto x = randoms<double>(4 * 2 * 6, 1);
  const auto dout = randoms<double>(4 * 2 * 6, 2);
  auto dx = dout;
  SplitQueue queue;
  Rope back = rope_of(dx, 4, 2, 6);
  back.inverse = true;
  cpu::rope(queue, back);
  expect_gradient(x, dx, [&] {
    auto y = x;
    cpu::rope(queue, rope_of(y, 4, 2, 6));
    return dot(y, dout);
  });
}

TEST(Rope, ProductsDependOnDistanceOnly) {
  // The product of q at 5 and k at 3 is that of q at 105 and k at 103.
  const auto product = [](std::int64_t q_at, std::int64_t k_at) {
    auto q = randoms<double>(8, 1), k = randoms<double>(8, 2);
    SplitQueue queue;
    Rope a = rope_of(q, 1, 1, 8), b = rope_of(k, 1, 1, 8);
    a.first_position = q_at;
    b.first_position = k_at;
    cpu::rope(queue, a);
    cpu::rope(queue, b);
    return dot(q, k);
  };
  EXPECT_NEAR(product(5, 3), product(105, 103), 1e-12);
  EXPECT_GT(std::abs(product(5, 3) - product(5, 4)), 1e-3);
}

TEST(Rope, TouchesItsHeadsOnly) {
  auto x = randoms<float>(5 * 30, 1);
  const auto before = x;
  Rope o = rope_of(x, 5, 2, 8);
  o.row = 30;
  o.first_position = 1;
  SplitQueue queue(3);
  cpu::rope(queue, o);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i] == before[i], i % 30 >= 16) << i;
}

}  // namespace
}  // namespace troupe::kernels
