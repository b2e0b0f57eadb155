// Tests every operation at odd sizes: f32 against f64, and equal bits for 1, 2 and 3 threads and
// for misaligned pointers. Nothing is written outside.
#include "cases.hpp"
#include "troupe/kernels/device/internal/cpu_table.hpp"
#include "troupe/kernels/gemm/blas.hpp"

namespace troupe::kernels {
namespace {

template <class T>
class HostBench final : public Bench<T> {
 public:
  HostBench(Queue& queue, std::pair<std::int64_t, std::int64_t> shape, std::size_t offset)
      : Bench<T>(internal::cpu_kernels(), queue, shape.first, shape.second), offset_(offset) {}
  std::int32_t* integers(const std::vector<std::int32_t>& values) override {
    return integers_.emplace_back(values, offset_).data();
  }

 private:
  T* add(std::vector<T> values) override {
    return memory_.emplace_back(std::move(values), offset_).data();
  }
  std::vector<T> values() override {
    std::vector<T> all;
    for (Guarded<T>& memory : memory_) {
      const auto values = memory.values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::size_t offset_;
  std::deque<Guarded<T>> memory_;
  std::deque<Guarded<std::int32_t>> integers_;
};

template <class T>
std::vector<T> results(void (*run)(Bench<T>&), std::pair<std::int64_t, std::int64_t> shape,
                       int threads, std::size_t offset) {
  if (run == nullptr) return {};
  SplitQueue queue(threads);
  HostBench<T> bench(queue, shape, offset);
  run(bench);
  return bench.results();
}

class OperationSizes : public testing::TestWithParam<Operation> {
 protected:
  void SetUp() override { use_blas(Blas::builtin); }  // its sums have a fixed order
};

TEST_P(OperationSizes, SingleAgreesWithDouble) {
  // The tolerance is 1e-4, since backward through a norm of three columns loses three digits.
  for (const auto& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.first << " x " << shape.second);
    const auto a = results(GetParam().single, shape, 1, 0);
    const auto b = results(GetParam().twice, shape, 1, 0);
    if (GetParam().twice == nullptr) continue;
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_TRUE(a[i] == b[i] || std::abs(a[i] - b[i]) < 1e-4 * (1 + std::abs(b[i])))
          << i << ": " << a[i] << " and " << b[i];
  }
}

TEST_P(OperationSizes, ThreadsAndAlignmentChangeNoBit) {
  for (const auto& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.first << " x " << shape.second);
    const auto one = results(GetParam().single, shape, 1, 0);
    const auto twice = results(GetParam().twice, shape, 1, 0);
    for (const int threads : {1, 2, 3})
      for (const std::size_t offset : {0, 1}) {
        EXPECT_TRUE(one == results(GetParam().single, shape, threads, offset))
            << threads << " threads, offset " << offset;
        EXPECT_TRUE(twice == results(GetParam().twice, shape, threads, offset))
            << threads << " threads, offset " << offset;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, OperationSizes, testing::ValuesIn(kOperations),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::kernels
