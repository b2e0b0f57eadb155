// Tests products with a fused bias and activation against a plain loop in double.
#include "../helpers.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/kernels/gemm/blas.hpp"
#include "troupe/kernels/internal/activations.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::kernels {
namespace {

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::relu: return internal::value<Activation::relu>(x);
    case Activation::gelu: return internal::value<Activation::gelu>(x);
    case Activation::silu: return internal::value<Activation::silu>(x);
    case Activation::none: break;
  }
  return x;
}

double slope(Activation activation, double x) {
  const double h = 1e-5;
  return (activate(activation, x + h) - activate(activation, x - h)) / (2 * h);
}

struct Sizes {
  std::int64_t m, n, k;
};

/// A product with strides wider than its rows, in memory that is aligned to its type only.
template <class T>
struct Product {
  Gemm o;
  std::vector<T> a, b, c, aux, bias;

  Product(Sizes s, Op a_op, Op b_op, std::int64_t batch = 1) {
    o.type = o.c_type = sizeof(T) == 4 ? DType::f32 : DType::f64;
    o.m = s.m, o.n = s.n, o.k = s.k, o.a_op = a_op, o.b_op = b_op, o.batch = batch;
    o.lda = (a_op == Op::none ? s.k : s.m) + 3;
    o.ldb = (b_op == Op::none ? s.n : s.k) + 1;
    o.ldc = s.n + 2;
    o.a_stride = o.lda * (a_op == Op::none ? s.m : s.k) + 5;
    o.b_stride = o.ldb * (b_op == Op::none ? s.k : s.n) + 7;
    o.c_stride = o.ldc * s.m + 1;
    fill(a, batch * o.a_stride, 1);
    fill(b, batch * o.b_stride, 2);
    fill(c, batch * o.c_stride, 3);
    fill(aux, batch * o.c_stride, 4);
    fill(bias, s.n, 5);
    o.a = a.data() + 1;
    o.b = b.data() + 1;
    o.c = c.data() + 1;
  }
  static void fill(std::vector<T>& x, std::int64_t n, std::uint64_t seed) {
    const std::vector<float> values = random_vector(static_cast<std::size_t>(n) + 1, seed);
    x.assign(values.begin(), values.end());
  }
  void with_bias() { o.bias = bias.data(); }
  void with_aux() { o.aux = aux.data() + 1; }

  /// Returns what c must hold, also beyond its rows.
  std::vector<double> expected(std::vector<double>* before = nullptr) const {
    std::vector<double> out(c.begin(), c.end());
    if (before != nullptr) before->assign(aux.begin(), aux.end());
    for (std::int64_t z = 0; z < o.batch; ++z)
      for (std::int64_t i = 0; i < o.m; ++i)
        for (std::int64_t j = 0; j < o.n; ++j) {
          const auto at = static_cast<std::size_t>(1 + z * o.c_stride + i * o.ldc + j);
          double sum = o.beta == 0 ? 0 : o.beta * out[at];
          for (std::int64_t p = 0; p < o.k; ++p)
            sum += element(a, o.a_op, o.lda, z * o.a_stride, i, p) *
                   element(b, o.b_op, o.ldb, z * o.b_stride, p, j);
          if (o.bias != nullptr) sum += bias[static_cast<std::size_t>(j)];
          if (before != nullptr) (*before)[at] = sum;
          out[at] = o.activation_backward ? sum * slope(o.activation, aux[at])
                                          : activate(o.activation, sum);
        }
    return out;
  }
  static double element(const std::vector<T>& x, Op op, std::int64_t ld, std::int64_t from,
                        std::int64_t i, std::int64_t j) {
    return x[static_cast<std::size_t>(1 + from + (op == Op::none ? i * ld + j : j * ld + i))];
  }
};

template <class T>
double distance(const std::vector<T>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < b.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return most;
}

template <class F>
void for_each_op(const F& f) {
  for (const Op a_op : {Op::none, Op::transpose})
    for (const Op b_op : {Op::none, Op::transpose}) f(a_op, b_op);
}

const std::vector<Sizes> kSizes = {{1, 1, 1},    {31, 33, 31}, {33, 1, 1025}, {1, 1025, 33},
                                   {1025, 3, 5}, {64, 96, 48}, {5, 7, 0}};

TEST(GemmOperation, OddSizesBatchesAndMisalignedMemoryAreRight) {
  for (const int threads : {1, 3}) {
    Device device = cpu_device({.threads = threads});
    for (const Sizes s : kSizes)
      for (const std::int64_t batch : {1, 3})
        for_each_op([&](Op a_op, Op b_op) {
          for (const float beta : {0.0f, 1.0f, 0.5f}) {
            Product<float> x(s, a_op, b_op, batch);
            x.o.beta = beta;
            const std::vector<double> expected = x.expected();
            device.kernels().gemm(device.compute(), x.o);
            ASSERT_LT(distance(x.c, expected), 1e-4) << s.m << 'x' << s.n << 'x' << s.k;
          }
        });
  }
}

TEST(GemmOperation, DoublesAreRight) {
  Device device = cpu_device({.threads = 2});
  for (const Sizes s : kSizes)
    for_each_op([&](Op a_op, Op b_op) {
      Product<double> x(s, a_op, b_op, 2);
      x.o.beta = 0.5f;
      x.o.activation = Activation::gelu;
      x.with_bias();
      const std::vector<double> expected = x.expected();
      device.kernels().gemm(device.compute(), x.o);
      ASSERT_LT(distance(x.c, expected), 1e-12) << s.m << 'x' << s.n << 'x' << s.k;
    });
}

TEST(GemmOperation, BiasAndActivationComeAfterTheProductAndAuxBeforeTheActivation) {
  Device device = cpu_device({.threads = 2});
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::silu})
    for (const Sizes s : kSizes)
      for (const bool aux : {false, true}) {
        Product<float> x(s, Op::none, Op::transpose, 2);
        x.o.activation = activation;
        x.o.beta = 1;
        x.with_bias();
        if (aux) x.with_aux();
        std::vector<double> before;
        const std::vector<double> expected = x.expected(aux ? &before : nullptr);
        device.kernels().gemm(device.compute(), x.o);
        ASSERT_LT(distance(x.c, expected), 1e-4) << s.m << 'x' << s.n << 'x' << s.k;
        if (aux) {
          ASSERT_LT(distance(x.aux, before), 1e-4) << s.m << 'x' << s.n << 'x' << s.k;
        }
      }
}

TEST(GemmOperation, ActivationBackwardMultipliesByTheSlopeAtAux) {
  Device device = cpu_device({.threads = 2});
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::silu})
    for (const Sizes s : kSizes) {
      Product<float> x(s, Op::none, Op::none);
      x.o.activation = activation;
      x.o.activation_backward = true;
      x.with_aux();
      const std::vector<double> expected = x.expected();
      const std::vector<float> aux = x.aux;
      device.kernels().gemm(device.compute(), x.o);
      ASSERT_LT(distance(x.c, expected), 1e-4) << s.m << 'x' << s.n << 'x' << s.k;
      ASSERT_EQ(x.aux, aux);
    }
}

TEST(GemmOperation, BuiltInBitsDoNotDependOnTheNumberOfThreads) {
  const Blas before = load_blas();
  ASSERT_TRUE(use_blas(Blas::builtin));
  for (const Sizes s : {Sizes{1025, 130, 300}, Sizes{3, 1025, 300}, Sizes{300, 31, 1025}})
    for_each_op([&](Op a_op, Op b_op) {
      std::vector<float> one, before_activation;
      for (const int threads : {1, 2, 3}) {
        Device device = cpu_device({.threads = threads});
        Product<float> x(s, a_op, b_op, 2);
        x.o.activation = Activation::gelu;
        x.with_bias();
        x.with_aux();
        device.kernels().gemm(device.compute(), x.o);
        if (threads == 1) one = x.c, before_activation = x.aux;
        ASSERT_EQ(std::memcmp(x.c.data(), one.data(), 4 * one.size()), 0) << threads;
        ASSERT_EQ(std::memcmp(x.aux.data(), before_activation.data(), 4 * one.size()), 0);
      }
    });
  use_blas(before);
}

}  // namespace
}  // namespace troupe::kernels
