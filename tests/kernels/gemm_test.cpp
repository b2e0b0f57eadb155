// Tests gemm against a plain loop: every transpose, odd sizes, strides wider than the rows, beta,
// and each BLAS library.
#include "troupe/kernels/gemm/gemm.hpp"
#include "helpers.hpp"
#include "troupe/kernels/gemm/blas.hpp"
#include "troupe/runtime/base/error.hpp"

namespace troupe::kernels {
namespace {

struct Shape {
  std::int64_t m, n, k;
};
const std::vector<Shape> shapes = {{1, 1, 1},      {3, 5, 7},     {8, 32, 4},
                                   {31, 33, 65},   {129, 1, 9},   {1, 1025, 3},
                                   {130, 70, 257}, {17, 40, 600}, {9, 1100, 20}};

/// Computes the product by its definition, summed over k in ascending order in float.
void reference(Op a_op, Op b_op, Shape s, const float* a, std::int64_t lda, const float* b,
               std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      float sum = beta == 0 ? 0 : c[i * ldc + j] * beta;
      for (std::int64_t p = 0; p < s.k; ++p) {
        const float product = (a_op == Op::none ? a[i * lda + p] : a[p * lda + i]) *
                              (b_op == Op::none ? b[p * ldb + j] : b[j * ldb + p]);
        sum += product;
      }
      c[i * ldc + j] = sum;
    }
}

template <class F>
void for_each_case(F f) {
  for (const Shape& s : shapes)
    for (const Op a_op : {Op::none, Op::transpose})
      for (const Op b_op : {Op::none, Op::transpose})
        for (const float beta : {0.0f, 1.0f, 0.5f}) f(s, a_op, b_op, beta);
}

struct Case {
  std::int64_t lda, ldb, ldc;
  std::vector<float> a, b, c;
  Case(Shape s, Op a_op, Op b_op)
      : lda((a_op == Op::none ? s.k : s.m) + 3),
        ldb((b_op == Op::none ? s.n : s.k) + 1),
        ldc(s.n + 2),
        a(random_vector(static_cast<std::size_t>(lda * (a_op == Op::none ? s.m : s.k)), 1)),
        b(random_vector(static_cast<std::size_t>(ldb * (b_op == Op::none ? s.k : s.n)), 2)),
        c(random_vector(static_cast<std::size_t>(ldc * s.m), 3)) {}
};

TEST(Gemm, BuiltInEqualsThePlainLoopBitwise) {
  for_each_case([](Shape s, Op a_op, Op b_op, float beta) {
    Case x(s, a_op, b_op);
    std::vector<float> expected = x.c;
    reference(a_op, b_op, s, x.a.data(), x.lda, x.b.data(), x.ldb, beta, expected.data(), x.ldc);
    builtin_gemm(a_op, b_op, s.m, s.n, s.k, x.a.data(), x.lda, x.b.data(), x.ldb, beta, x.c.data(),
                 x.ldc);
    ASSERT_EQ(x.c, expected) << s.m << 'x' << s.n << 'x' << s.k;
  });
}

class EachLibrary : public testing::TestWithParam<Blas> {
 protected:
  void SetUp() override {
    if (!use_blas(GetParam())) GTEST_SKIP() << "this library is not installed";
  }
  void TearDown() override { use_blas(Blas::builtin); }
};

TEST_P(EachLibrary, AgreesWithThePlainLoop) {
  for_each_case([](Shape s, Op a_op, Op b_op, float beta) {
    Case x(s, a_op, b_op);
    std::vector<float> expected = x.c;
    reference(a_op, b_op, s, x.a.data(), x.lda, x.b.data(), x.ldb, beta, expected.data(), x.ldc);
    gemm(a_op, b_op, s.m, s.n, s.k, x.a.data(), x.lda, x.b.data(), x.ldb, beta, x.c.data(), x.ldc);
    ASSERT_LT(relative_error(x.c, expected), 1e-6 * std::sqrt(static_cast<double>(s.k)) + 1e-6);
  });
}

TEST_P(EachLibrary, RepeatsItselfBitwise) {
  const Shape s{65, 130, 200};
  Case x(s, Op::none, Op::transpose), y = x;
  gemm(Op::none, Op::transpose, s.m, s.n, s.k, x.a.data(), x.lda, x.b.data(), x.ldb, 0, x.c.data(),
       x.ldc);
  gemm(Op::none, Op::transpose, s.m, s.n, s.k, y.a.data(), y.lda, y.b.data(), y.ldb, 0, y.c.data(),
       y.ldc);
  EXPECT_EQ(x.c, y.c);
}

TEST_P(EachLibrary, TakesEmptySizes) {
  std::vector<float> c = {1, 2, 3, 4};
  gemm(Op::none, Op::none, 0, 2, 2, nullptr, 2, nullptr, 2, 0, c.data(), 2);
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 4}));
  gemm(Op::none, Op::none, 2, 2, 0, nullptr, 2, nullptr, 2, 1, c.data(), 2);
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 4}));
  gemm(Op::none, Op::none, 2, 2, 0, nullptr, 2, nullptr, 2, 0, c.data(), 2);
  EXPECT_EQ(c, (std::vector<float>(4, 0.0f)));
}

INSTANTIATE_TEST_SUITE_P(Gemm, EachLibrary,
                         testing::Values(Blas::builtin, Blas::onednn, Blas::openblas),
                         [](const auto& info) {
                           return info.param == Blas::builtin  ? "builtin"
                                  : info.param == Blas::onednn ? "onednn"
                                                               : "openblas";
                         });

TEST(Gemm, TheEnvironmentNamesOneOfThreeLibrariesOrIsRefused) {
  const auto named = [](const char* text) {
    return blas_of(Environment(
        [text](const char* name) { return std::string(name) == "TROUPE_BLAS" ? text : nullptr; }));
  };
  EXPECT_EQ(named(nullptr), std::nullopt);
  EXPECT_EQ(named(""), std::nullopt);
  EXPECT_EQ(named("builtin"), Blas::builtin);
  EXPECT_EQ(named("onednn"), Blas::onednn);
  EXPECT_EQ(named("openblas"), Blas::openblas);
  try {
    (void)named("mkl");
    FAIL() << "mkl was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.message(), "TROUPE_BLAS is 'mkl': give builtin, onednn or openblas");
  }
}

TEST(Gemm, SaysWhichLibraryItUses) {
  use_blas(Blas::builtin);
  EXPECT_EQ(blas_description(), "built-in");
  if (use_blas(Blas::onednn)) {
    EXPECT_EQ(blas_description().substr(0, 6), "oneDNN");
  }
  use_blas(Blas::builtin);
}

}  // namespace
}  // namespace troupe::kernels
