// Tests attention, with kept probabilities and with an online softmax, against plain loops in
// double.
#include "../helpers.hpp"
#include "troupe/kernels/device/device.hpp"

#include <cstring>
#include <limits>

namespace troupe::kernels {
namespace {

struct Dimensions {
  std::int64_t batch, time, heads, kv_heads, size;
};
const std::vector<Dimensions> kDimensions = {
    {2, 1, 1, 1, 3}, {1, 31, 4, 2, 8}, {2, 33, 3, 3, 5}, {1, 300, 2, 1, 16}, {1, 1025, 2, 2, 4}};

/// An attention over fused q, k, v rows, with its backward pass.
template <class T>
struct Attended {
  Dimensions d;
  std::int64_t row;
  std::vector<T> qkv, out, lse, probabilities, dout, dqkv;
  bool keep;

  Attended(Dimensions dimensions, bool keep_probabilities)
      : d(dimensions), row((d.heads + 2 * d.kv_heads) * d.size + 1), keep(keep_probabilities) {
    const std::int64_t rows = d.batch * d.time;
    fill(qkv, rows * row, 1, 2);
    fill(dout, rows * d.heads * d.size, 2, 1);
    fill(out, rows * d.heads * d.size, 3, 1);
    fill(lse, d.batch * d.heads * d.time, 4, 1);
    fill(probabilities, keep ? d.batch * d.heads * d.time * d.time : 0, 5, 1);
    dqkv.assign(qkv.size(), T(-7));  // backward overwrites it
  }
  static void fill(std::vector<T>& x, std::int64_t n, std::uint64_t seed, double scale) {
    const std::vector<float> values = random_vector(static_cast<std::size_t>(n), seed, scale);
    x.assign(values.begin(), values.end());
  }
  Attention forward() {
    Attention o;
    o.type = sizeof(T) == 4 ? DType::f32 : DType::f64;
    o.batch = d.batch, o.time = d.time, o.heads = d.heads, o.kv_heads = d.kv_heads;
    o.head_size = d.size, o.q_row = o.kv_row = row;
    o.q = qkv.data();
    o.k = qkv.data() + d.heads * d.size;
    o.v = qkv.data() + (d.heads + d.kv_heads) * d.size;
    o.out = out.data();
    o.lse = keep ? nullptr : lse.data();
    o.probabilities = keep ? probabilities.data() : nullptr;
    return o;
  }
  AttentionBackward backward() {
    AttentionBackward o;
    o.forward = forward();
    o.dout = dout.data();
    o.dq = dqkv.data();
    o.dk = dqkv.data() + d.heads * d.size;
    o.dv = dqkv.data() + (d.heads + d.kv_heads) * d.size;
    return o;
  }
  void run(int threads = 2) {
    Device device = cpu_device({.threads = threads});
    device.kernels().attention(device.compute(), forward());
    device.kernels().attention_backward(device.compute(), backward());
  }
  T* q(std::int64_t b, std::int64_t t, std::int64_t h) {
    return qkv.data() + (b * d.time + t) * row + h * d.size;
  }
  T* k(std::int64_t b, std::int64_t t, std::int64_t h) { return q(b, t, d.heads + h); }
  T* v(std::int64_t b, std::int64_t t, std::int64_t h) { return k(b, t, d.kv_heads + h); }
};

/// Computes attention by its definition, in double.
std::vector<double> attended(Attended<double>& x) {
  std::vector<double> out(x.out.size(), 0.0), p(static_cast<std::size_t>(x.d.time));
  const std::int64_t group = x.d.heads / x.d.kv_heads;
  for (std::int64_t b = 0; b < x.d.batch; ++b)
    for (std::int64_t h = 0; h < x.d.heads; ++h)
      for (std::int64_t t = 0; t < x.d.time; ++t) {
        double total = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::int64_t i = 0; i < x.d.size; ++i)
            score += x.q(b, t, h)[i] * x.k(b, s, h / group)[i];
          total += p[static_cast<std::size_t>(s)] =
              std::exp(score / std::sqrt(static_cast<double>(x.d.size)));
        }
        double* y = out.data() + ((b * x.d.time + t) * x.d.heads + h) * x.d.size;
        for (std::int64_t s = 0; s <= t; ++s)
          for (std::int64_t i = 0; i < x.d.size; ++i)
            y[i] += p[static_cast<std::size_t>(s)] / total * x.v(b, s, h / group)[i];
      }
  return out;
}

template <class A, class B>
double difference(const std::vector<A>& a, const std::vector<B>& b) {
  double most = 0;
  for (std::size_t i = 0; i < b.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

TEST(AttentionOperation, ForwardIsTheDefinition) {
  for (const Dimensions& d : kDimensions)
    for (const bool keep : {true, false}) {
      Attended<double> exact(d, keep);
      Attended<float> x(d, keep);
      const std::vector<double> expected = attended(exact);
      exact.run();
      x.run();
      ASSERT_LT(difference(exact.out, expected), 1e-12) << d.time << ' ' << keep;
      ASSERT_LT(difference(x.out, expected), 1e-5) << d.time << ' ' << keep;
    }
}

TEST(AttentionOperation, DoubleGradientsAreFiniteDifferences) {
  for (const bool keep : {true, false}) {
    Attended<double> x({1, 7, 4, 2, 3}, keep);
    x.run();
    for (std::size_t i = 0; i < x.qkv.size(); ++i) {
      if (static_cast<std::int64_t>(i) % x.row == x.row - 1) continue;  // padding between two rows
      const double h = 1e-5, kept = x.qkv[i];
      double side[2];
      for (const int up : {0, 1}) {
        x.qkv[i] = kept + (up == 1 ? h : -h);
        const std::vector<double> out = attended(x);
        side[up] = 0;
        for (std::size_t j = 0; j < out.size(); ++j) side[up] += out[j] * x.dout[j];
      }
      x.qkv[i] = kept;
      ASSERT_NEAR(x.dqkv[i], (side[1] - side[0]) / (2 * h), 1e-8) << i << ' ' << keep;
    }
  }
}

TEST(AttentionOperation, FloatGradientsAreThoseOfDoubles) {
  for (const Dimensions& d : kDimensions)
    for (const bool keep : {true, false}) {
      Attended<double> exact(d, keep);
      Attended<float> x(d, keep);
      exact.run();
      x.run();
      ASSERT_LT(difference(x.dqkv, exact.dqkv), 1e-5) << d.time << ' ' << keep;
    }
}

TEST(AttentionOperation, OnlineSoftmaxGivesWhatKeptProbabilitiesGive) {
  for (const Dimensions& d : kDimensions) {
    Attended<float> kept(d, true), online(d, false);
    kept.run();
    online.run();
    ASSERT_LT(difference(online.out, kept.out), 1e-5) << d.time;
    ASSERT_LT(difference(online.dqkv, kept.dqkv), 1e-5) << d.time;
  }
}

TEST(AttentionOperation, LogSumsOfBothAreEqual) {
  const Dimensions d{1, 300, 2, 1, 16};
  Attended<float> kept(d, true), online(d, false);
  Attention o = kept.forward();
  o.lse = kept.lse.data();
  Device device = cpu_device();
  device.kernels().attention(device.compute(), o);
  online.run();
  EXPECT_LT(difference(online.lse, kept.lse), 1e-5);
}

TEST(AttentionOperation, BitsDoNotDependOnTheNumberOfThreads) {
  for (const bool keep : {true, false}) {
    const Dimensions d{3, 150, 4, 2, 16};
    Attended<float> one(d, keep);
    one.run(1);
    for (const int threads : {2, 3}) {
      Attended<float> x(d, keep);
      x.run(threads);
      ASSERT_EQ(std::memcmp(x.out.data(), one.out.data(), 4 * x.out.size()), 0);
      ASSERT_EQ(std::memcmp(x.dqkv.data(), one.dqkv.data(), 4 * x.dqkv.size()), 0);
    }
  }
}

/// Expects that rows before `t` of both runs are equal and finite, in out and in dq.
void expect_untouched(Attended<float>& x, Attended<float>& clean, std::int64_t t) {
  for (std::int64_t i = 0; i < t * x.d.heads * x.d.size; ++i)
    ASSERT_NEAR(x.out[static_cast<std::size_t>(i)], clean.out[static_cast<std::size_t>(i)], 1e-5);
  for (std::int64_t r = 0; r < t; ++r)
    for (std::int64_t i = 0; i < x.d.heads * x.d.size; ++i) {
      const auto at = static_cast<std::size_t>(r * x.row + i);
      ASSERT_NEAR(x.dqkv[at], clean.dqkv[at], 1e-5) << r;
    }
}

TEST(AttentionOperation, ALaterValueThatIsNotFiniteLeavesEarlierRowsAlone) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const bool keep : {true, false})
    for (const std::int64_t t : {20, 150})
      for (const float bad : {infinity, std::nanf("")})
        for (const int which : {0, 1, 2}) {
          const Dimensions d{1, 160, 2, 2, 8};
          Attended<float> x(d, keep), clean(d, keep);
          (which == 0 ? x.q(0, t, 1) : which == 1 ? x.k(0, t, 1) : x.v(0, t, 1))[3] = bad;
          x.run();
          clean.run();
          expect_untouched(x, clean, t);
          EXPECT_FALSE(std::isfinite(x.out[static_cast<std::size_t>(
              (t * d.heads + 1) * d.size + 3)]));  // row t itself is not finite
        }
}

TEST(AttentionOperation, AnEarlierOutGradientThatIsNotFiniteLeavesLaterValuesAlone) {
  for (const bool keep : {true, false}) {
    const Dimensions d{1, 40, 1, 1, 8};
    Attended<float> x(d, keep), clean(d, keep);
    x.dout[5 * 8 + 2] = std::numeric_limits<float>::infinity();
    x.run();
    clean.run();
    for (std::int64_t t = 6; t < d.time; ++t)
      for (std::int64_t i = 0; i < d.size; ++i) {
        const auto at = static_cast<std::size_t>(t * x.row + 2 * d.size + i);
        ASSERT_NEAR(x.dqkv[at], clean.dqkv[at], 1e-5) << t;  // dv
      }
  }
}

TEST(AttentionOperation, HugeScoresGiveFiniteRows) {
  for (const bool keep : {true, false}) {
    Attended<float> x({1, 300, 1, 1, 4}, keep);
    for (float& value : x.qkv) value *= 1e4f;
    x.run();
    for (const float y : x.out) ASSERT_TRUE(std::isfinite(y));
  }
}

TEST(AttentionOperation, NothingIsDoneForNoRows) {
  Attended<float> x({0, 5, 2, 2, 4}, false), y({2, 0, 2, 2, 4}, true);
  x.run();
  y.run();
}

}  // namespace
}  // namespace troupe::kernels
