// Tests SGD with momentum against torch's algorithm, step by step in double.
#include "testing.hpp"

namespace troupe::kernels {
namespace {

void reference(std::vector<double>& w, std::vector<double>& m, const std::vector<float>& g,
               const Sgd& o) {
  for (std::size_t i = 0; i < w.size(); ++i) {
    double d = static_cast<double>(g[i]) * o.gradient_scale + o.decay * w[i];
    if (o.momentum != 0) {
      m[i] = o.first ? d : o.momentum * m[i] + d;
      d = o.nesterov ? d + o.momentum * m[i] : m[i];
    }
    w[i] -= o.rate * d;
  }
}

TEST(Sgd, FollowsTorchsAlgorithm) {
  for (const float momentum : {0.0f, 0.9f})
    for (const bool nesterov : {false, true})
      for (const float decay : {0.0f, 0.1f}) {
        auto w = randoms<float>(1025, 1);
        std::vector<float> m(w.size(), kNaN);  // the first step must not read it
        std::vector<double> w2(w.begin(), w.end()), m2(w.size());
        SplitQueue queue(3);
        for (std::uint64_t step = 0; step < 4; ++step) {
          const auto g = randoms<float>(1025, 10 + step);
          const Sgd o{.n = 1025,
                      .weights = w.data(),
                      .m = m.data(),
                      .gradients = g.data(),
                      .rate = 0.1f,
                      .momentum = momentum,
                      .decay = decay,
                      .nesterov = nesterov,
                      .gradient_scale = 0.5f,
                      .first = step == 0};
          cpu::sgd(queue, o);
          reference(w2, m2, g, o);
        }
        for (std::size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(w[i], w2[i], 1e-6);
      }
}

TEST(Sgd, NeedsNoMomentumAtZero) {
  std::vector<float> w = {1, 2}, g = {10, 20};
  SplitQueue queue;
  cpu::sgd(queue, {.n = 2, .weights = w.data(), .gradients = g.data(), .rate = 0.1f});
  EXPECT_EQ(w, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace troupe::kernels
