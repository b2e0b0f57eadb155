// Each CUDA kernel against its CPU twin; skipped where no device answers.
#include "troupe/kernels/device/cuda.hpp"
#include "helpers.hpp"
#include "troupe/kernels/kernels.hpp"

namespace troupe::kernels {
namespace {

TEST(CudaLoader, SaysWhatItFound) {
  EXPECT_FALSE(cuda_status().empty());
  EXPECT_EQ(cuda_table(), cuda_table());
}

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    table_ = cuda_table();
    if (table_ == nullptr) GTEST_SKIP() << cuda_status();
    use_blas(Blas::builtin);
    ASSERT_EQ(table_->create(0, &context_), 0);
  }
  void TearDown() override {
    if (table_ == nullptr) return;
    for (void* memory : memory_) table_->release(context_, memory);
    table_->destroy(context_);
  }
  template <class T>
  T* upload(const std::vector<T>& x) {
    void* memory = nullptr;
    EXPECT_EQ(table_->allocate(context_, &memory, x.size() * sizeof(T)), 0);
    memory_.push_back(memory);
    EXPECT_EQ(table_->copy_to_device(context_, memory, x.data(), x.size() * sizeof(T)), 0);
    return static_cast<T*>(memory);
  }
  /// Compares the device's array with the CPU's.
  void expect(const float* device, const std::vector<float>& cpu, double tolerance = 1e-5) {
    std::vector<float> x(cpu.size());
    ASSERT_EQ(table_->copy_to_host(context_, x.data(), device, x.size() * sizeof(float)), 0);
    EXPECT_LT(relative_error(x, cpu), tolerance);
  }

  const troupe_cuda_table* table_ = nullptr;
  troupe_cuda_context* context_ = nullptr;
  std::vector<void*> memory_;
};

TEST_F(Cuda, Gemm) {
  const std::int64_t m = 33, n = 65, k = 31;
  for (const Op a_op : {Op::none, Op::transpose})
    for (const Op b_op : {Op::none, Op::transpose})
      for (const float beta : {0.0f, 1.0f}) {
        const std::int64_t lda = a_op == Op::none ? k : m, ldb = b_op == Op::none ? n : k;
        const auto a = random_vector(33 * 31, 1), b = random_vector(65 * 31, 2);
        auto c = random_vector(33 * 65, 3);
        float* dc = upload(c);
        ASSERT_EQ(table_->gemm(context_, static_cast<char>(a_op), static_cast<char>(b_op), m, n, k,
                               upload(a), lda, upload(b), ldb, beta, dc, n),
                  0);
        gemm(a_op, b_op, m, n, k, a.data(), lda, b.data(), ldb, beta, c.data(), n);
        expect(dc, c);
      }
}

TEST_F(Cuda, GeluAndElementwise) {
  const std::int64_t n = 1025;
  auto x = random_vector(1025, 1, 3), dout = random_vector(1025, 2), y = x, dx = dout;
  float *gx = upload(x), *gdout = upload(dout), *gy = upload(y), *gdx = upload(dx);
  table_->gelu_forward(context_, gy, gx, n);
  gelu_forward(y.data(), x.data(), n);
  expect(gy, y);
  table_->gelu_backward(context_, gdx, gdout, gx, n);
  gelu_backward(dx.data(), dout.data(), x.data(), n);
  expect(gdx, dx);
  table_->axpy(context_, gy, 0.5f, gx, n);
  axpy(y.data(), 0.5f, x.data(), n);
  table_->scale(context_, gy, 3, n);
  scale(y.data(), 3, n);
  table_->add(context_, gy, gy, gdx, n);
  add(y.data(), y.data(), dx.data(), n);
  expect(gy, y);
  double squares = 0;
  ASSERT_EQ(table_->sum_of_squares(context_, gx, n, &squares), 0);
  EXPECT_NEAR(squares / sum_of_squares(x.data(), n), 1, 1e-12);
  table_->fill(context_, gy, 2, n);
  expect(gy, std::vector<float>(1025, 2.0f), 1e-12);
}

TEST_F(Cuda, LayernormAndBias) {
  const std::int64_t rows = 9, channels = 33;
  const auto x = random_vector(9 * 33, 1), w = random_vector(33, 2), b = random_vector(33, 3),
             dout = random_vector(9 * 33, 4);
  std::vector<float> y(x.size()), mean(9), rstd(9), dx(x.size(), 1.0f), dw(33, 1.0f), db(33, 1.0f);
  float *gx = upload(x), *gw = upload(w), *gdout = upload(dout), *gy = upload(y),
        *gmean = upload(mean), *grstd = upload(rstd), *gdx = upload(dx), *gdw = upload(dw),
        *gdb = upload(db);
  table_->layernorm_forward(context_, gy, gmean, grstd, gx, gw, upload(b), rows, channels);
  table_->layernorm_backward_input(context_, gdx, gdout, gx, gw, gmean, grstd, rows, channels);
  table_->layernorm_backward_weight(context_, gdw, gdb, gdout, gx, gmean, grstd, rows, channels);
  table_->add_bias(context_, gy, gw, rows, channels);
  table_->add_bias_backward(context_, gdb, gdout, rows, channels);
  layernorm_forward(y.data(), mean.data(), rstd.data(), x.data(), w.data(), b.data(), rows,
                    channels);
  layernorm_backward_input(dx.data(), dout.data(), x.data(), w.data(), mean.data(), rstd.data(),
                           rows, channels);
  layernorm_backward_weight(dw.data(), db.data(), dout.data(), x.data(), mean.data(), rstd.data(),
                            rows, channels);
  add_bias(y.data(), w.data(), rows, channels);
  add_bias_backward(db.data(), dout.data(), rows, channels);
  expect(gy, y);
  expect(gdx, dx);
  expect(gdw, dw);
  expect(gdb, db);
}

TEST_F(Cuda, EmbeddingAndCrossEntropy) {
  const std::vector<std::int32_t> tokens = {2, 0, 2, 1, 1, 2}, targets = {1, kIgnore, 4, 0, 2, 3};
  const auto wte = random_vector(15, 1), wpe = random_vector(15, 2), dout = random_vector(30, 3);
  std::vector<float> y(30), dwte(15, 1.0f), dwpe(15, 1.0f), losses(6),
      logits = random_vector(30, 4);
  float *gy = upload(y), *gdwte = upload(dwte), *gdwpe = upload(dwpe), *glosses = upload(losses),
        *glogits = upload(logits);
  std::int32_t *gtokens = upload(tokens), *gtargets = upload(targets);
  table_->embedding_forward(context_, gy, gtokens, upload(wte), upload(wpe), 2, 3, 5);
  embedding_forward(y.data(), tokens.data(), wte.data(), wpe.data(), 2, 3, 5);
  expect(gy, y);
  table_->embedding_backward(context_, gdwte, gdwpe, upload(dout), gtokens, 2, 3, 5);
  embedding_backward(dwte.data(), dwpe.data(), dout.data(), tokens.data(), 2, 3, 5);
  expect(gdwte, dwte);
  expect(gdwpe, dwpe);
  table_->cross_entropy_forward(context_, glosses, glogits, gtargets, 6, 5);
  cross_entropy_forward(losses.data(), logits.data(), targets.data(), 6, 5);
  expect(glosses, losses);
  table_->cross_entropy_fused(context_, glosses, glogits, gtargets, 6, 5, 0.2f);
  cross_entropy_fused(losses.data(), logits.data(), targets.data(), 6, 5, 0.2f);
  expect(glogits, logits);
}

TEST_F(Cuda, Attention) {
  const std::int64_t batch = 2, time = 33, channels = 12, heads = 3;
  const auto qkv = random_vector(2 * 33 * 36, 1), dout = random_vector(2 * 33 * 12, 2);
  std::vector<float> y(dout.size()), p(2 * 3 * 33 * 33), dqkv(qkv.size(), 0.5f);
  float *gqkv = upload(qkv), *gy = upload(y), *gp = upload(p), *gdqkv = upload(dqkv);
  table_->attention_forward(context_, gy, gp, gqkv, batch, time, channels, heads);
  attention_forward(y.data(), p.data(), qkv.data(), batch, time, channels, heads);
  expect(gy, y);
  expect(gp, p);
  table_->attention_backward(context_, gdqkv, upload(dout), gqkv, gp, upload(p), batch, time,
                             channels, heads);
  attention_backward(dqkv.data(), dout.data(), qkv.data(), p.data(), batch, time, channels, heads);
  expect(gdqkv, dqkv);
}

TEST_F(Cuda, AdamWAndPhilox) {
  std::vector<float> p = random_vector(100, 1), m(100), v(100), g = random_vector(100, 2), x(101);
  float *gp = upload(p), *gm = upload(m), *gv = upload(v), *gg = upload(g), *gx = upload(x);
  for (std::int64_t step = 1; step <= 3; ++step) {
    const troupe_cuda_adamw_step twin{.1f, .9f, .999f, 1e-8f, .01f, .5f, step};
    table_->adamw(context_, gp, gm, gv, gg, 100, &twin);
    adamw(p.data(), m.data(), v.data(), g.data(), 100,
          {.rate = .1f, .gradient_scale = .5f, .step = step});
  }
  expect(gp, p);
  table_->philox_normal(context_, gx, 101, 7, 9, 3, 1, 2);
  philox_normal(x.data(), 101, 7, 9, 3, 1, 2);
  expect(gx, x, 1e-6);
}

}  // namespace
}  // namespace troupe::kernels
