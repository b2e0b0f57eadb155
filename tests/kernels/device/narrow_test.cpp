// Tests every operation in bf16 and f16 at odd sizes. The result is, bit by bit, that of the f32
// call on the same numbers, rounded once. This holds for 1 and 3 threads and misaligned pointers,
// and nothing is written outside.
#include "narrow.hpp"
#include "troupe/kernels/device/internal/cpu_table.hpp"
#include "troupe/kernels/gemm/blas.hpp"

#include <bit>
#include <cstring>

namespace troupe::kernels {
namespace narrow_test {
namespace {

/// All numbers of a run in the order in which memory was handed out; 16-bit numbers are widened.
using Numbers = std::vector<float>;

/// Runs an operation in 16-bit memory.
template <class T>
class NarrowBench final : public Bench<T> {
 public:
  NarrowBench(Queue& queue, std::pair<std::int64_t, std::int64_t> shape, std::size_t offset)
      : Bench<T>(internal::cpu_kernels(), queue, shape.first, shape.second), offset_(offset) {}
  std::int32_t* integers(const std::vector<std::int32_t>& values) override {
    return integers_.emplace_back(values, offset_).data();
  }
  Numbers numbers() {
    Numbers all;
    for (const auto& read : order_) read(all);
    return all;
  }

 private:
  T* add(std::vector<T> values) override {
    auto& memory = narrow_.emplace_back(std::move(values), offset_);
    order_.push_back([&memory](Numbers& all) {
      for (const T& value : memory.values()) all.push_back(value.wide());
    });
    return memory.data();
  }
  float* add_wide(const std::vector<float>& values) override {
    auto& memory = wide_.emplace_back(values, offset_);
    order_.push_back([&memory](Numbers& all) {
      for (const float value : memory.values()) all.push_back(value);
    });
    return memory.data();
  }
  std::vector<T> values() override { return {}; }

  std::size_t offset_;
  std::deque<Guarded<T>> narrow_;
  std::deque<Guarded<float>> wide_;
  std::deque<Guarded<std::int32_t>> integers_;
  std::vector<std::function<void(Numbers&)>> order_;
};

/// Runs the same operation in f32. Memory that stands for 16-bit memory is rounded before the
/// first call and after each call.
class ReferenceBench final : public Bench<float> {
 public:
  ReferenceBench(Queue& queue, std::pair<std::int64_t, std::int64_t> shape, DType type)
      : Bench<float>(rounding_table(), queue, shape.first, shape.second), type_(type) {
    current_ = this;
  }
  std::int32_t* integers(const std::vector<std::int32_t>& values) override {
    return integers_.emplace_back(values).data();
  }
  Numbers numbers() {
    Numbers all;
    for (const auto& [memory, narrow] : memory_)
      all.insert(all.end(), memory.begin(), memory.end());
    return all;
  }

 private:
  template <class O>
  using Function = void (*)(Queue&, const O&);

  /// Calls the CPU's function, and then rounds.
  template <class O, Function<O> Kernels::* member>
  static void run(Queue& queue, const O& o) {
    (internal::cpu_kernels().*member)(queue, o);
    current_->round();
  }
  static const Kernels& rounding_table() {
    static const Kernels table = [] {
      Kernels k;
#define ROUNDED(name, Type) k.name = run<Type, &Kernels::name>;
      ROUNDED(gemm, Gemm)
      ROUNDED(activate, Activate)
      ROUNDED(activate_backward, ActivateBackward)
      ROUNDED(gated_silu, GatedSilu)
      ROUNDED(gated_silu_backward, GatedSilu)
      ROUNDED(norm, Norm)
      ROUNDED(norm_backward_input, NormBackward)
      ROUNDED(norm_backward_weight, NormBackward)
      ROUNDED(attention, Attention)
      ROUNDED(attention_backward, AttentionBackward)
      ROUNDED(rope, Rope)
      ROUNDED(embedding, Embedding)
      ROUNDED(embedding_backward, Embedding)
      ROUNDED(cross_entropy, CrossEntropy)
      ROUNDED(cross_entropy_stats, CrossEntropy)
      ROUNDED(cross_entropy_finish, CrossEntropy)
      ROUNDED(combine_stats, CombineStats)
      ROUNDED(dropout, Dropout)
      ROUNDED(im2col, Im2col)
      ROUNDED(col2im, Im2col)
      ROUNDED(max_pool, MaxPool)
      ROUNDED(max_pool_backward, MaxPool)
      ROUNDED(transpose, Transpose)
      ROUNDED(add, Elementwise)
      ROUNDED(scale, Elementwise)
      ROUNDED(fill, Elementwise)
      ROUNDED(column_sum, ColumnSum)
#undef ROUNDED
      return k;
    }();
    return table;
  }

  void round() {
    for (auto& [memory, narrow] : memory_)
      for (float& value : memory)
        if (narrow)
          value = type_ == DType::bf16 ? from_bf16(to_bf16(value)) : from_f16(to_f16(value));
  }
  float* add(std::vector<float> values) override { return keep(std::move(values), true); }
  float* add_wide(const std::vector<float>& values) override { return keep(values, false); }
  float* keep(std::vector<float> values, bool narrow) {
    auto& [memory, rounded] = memory_.emplace_back(std::move(values), narrow);
    round();
    return memory.data();
  }
  std::vector<float> values() override { return {}; }

  static inline ReferenceBench* current_ = nullptr;
  DType type_;
  std::deque<std::pair<std::vector<float>, bool>> memory_;
  std::deque<std::vector<std::int32_t>> integers_;
};

class NarrowOperations : public testing::TestWithParam<NarrowOperation> {
 protected:
  void SetUp() override { use_blas(Blas::builtin); }  // its sums have a fixed order

  template <class T>
  void expect_rounded_once(void (*run)(Bench<T>&)) {
    for (const auto& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << shape.first << " x " << shape.second);
      SplitQueue one;
      ReferenceBench reference(one, shape, type_of<T>);
      GetParam().wide(reference);
      for (const int threads : {1, 3})
        for (const std::size_t offset : {0, 1}) {
          SplitQueue queue(threads);
          NarrowBench<T> bench(queue, shape, offset);
          run(bench);
          expect_same_bits(bench.numbers(), reference.numbers());
        }
    }
  }

  static void expect_same_bits(const Numbers& a, const Numbers& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_TRUE(std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]) ||
                  (std::isnan(a[i]) && std::isnan(b[i])))
          << i << ": " << a[i] << " and " << b[i];
  }
};

TEST_P(NarrowOperations, InBf16AreTheF32CallRoundedOnce) {
  expect_rounded_once(GetParam().bf16);
}

TEST_P(NarrowOperations, InF16AreTheF32CallRoundedOnce) {
  expect_rounded_once(GetParam().f16);
}

INSTANTIATE_TEST_SUITE_P(Operations, NarrowOperations, testing::ValuesIn(kNarrowOperations),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(NarrowResults, AreInfiniteWhereF16CannotHoldThem) {
  Device device = cpu_device();
  const auto largest = F16(65504), two = F16(2);
  F16 product;
  device.kernels().gemm(device.compute(), {.type = DType::f16,
                                           .c_type = DType::f16,
                                           .m = 1,
                                           .n = 1,
                                           .k = 1,
                                           .a = &largest,
                                           .lda = 1,
                                           .b = &two,
                                           .ldb = 1,
                                           .c = &product,
                                           .ldc = 1});
  EXPECT_EQ(product.bits, 0x7c00);
}

TEST(NarrowResults, OfProductsAreNotRoundedBetweenTerms) {
  Device device = cpu_device();
  // The exact sum is 256 + 64 times 0.5. A sum in bf16 would stay at 256.
  std::vector<Bf16> a(65, Bf16(0.5)), b(65, Bf16(1));
  a[0] = Bf16(256);
  Bf16 sum;
  float gradient = 1;
  Gemm o{.type = DType::bf16,
         .c_type = DType::bf16,
         .m = 1,
         .n = 1,
         .k = 65,
         .a = a.data(),
         .lda = 65,
         .b = b.data(),
         .ldb = 1,
         .c = &sum,
         .ldc = 1};
  device.kernels().gemm(device.compute(), o);
  EXPECT_EQ(sum.wide(), 288);
  o.c_type = DType::f32;
  o.c = &gradient;
  o.beta = 1;
  device.kernels().gemm(device.compute(), o);
  EXPECT_EQ(gradient, 289) << "f32 gradients are added to";
}

}  // namespace
}  // namespace narrow_test
}  // namespace troupe::kernels
