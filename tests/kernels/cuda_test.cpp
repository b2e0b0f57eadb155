// Each operation of a CUDA device against its CPU twin; skipped where no device answers.
#include "troupe/kernels/device/cuda.hpp"
#include "device/cases.hpp"
#include "troupe/kernels/gemm/blas.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/runtime/base/error.hpp"

namespace troupe::kernels {
namespace {

TEST(CudaLoader, SaysWhatItFound) {
  EXPECT_FALSE(cuda_status().empty());
  EXPECT_EQ(cuda_table(), cuda_table());
}

TEST(CudaLoader, SaysWhyThereIsNoDevice) {
  if (cuda_table() != nullptr) GTEST_SKIP() << "there is one: " << cuda_status();
  try {
    cuda_device();
    FAIL() << "a device without a driver";
  } catch (const Unavailable& error) {
    EXPECT_NE(std::string(error.what()).find(cuda_status()), std::string::npos) << error.what();
  }
}

TEST(CudaLoader, RefusesAnIndexBeyondTheDevices) {
  if (cuda_table() == nullptr) GTEST_SKIP() << cuda_status();
  EXPECT_THROW(cuda_device(-1), InvalidArgument);
  EXPECT_THROW(cuda_device(cuda_table()->device_count()), InvalidArgument);
}

/// Memory of a device, `offset` elements behind an aligned address.
class DeviceBench final : public Bench<float> {
 public:
  DeviceBench(Device device, std::pair<std::int64_t, std::int64_t> shape, std::size_t offset)
      : Bench(device.kernels(), device.compute(), shape.first, shape.second),
        device_(std::move(device)),
        offset_(offset) {}
  std::int32_t* integers(const std::vector<std::int32_t>& values) override {
    return upload(others_, values);
  }

 private:
  template <class T>
  T* upload(std::deque<Memory>& to, const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    Memory& memory = to.emplace_back(device_.allocate(bytes + (offset_ + 1) * sizeof(T)));
    T* data = static_cast<T*>(memory.data()) + offset_;
    device_.copy(device_.compute(), data, values.data(), bytes);
    device_.compute().synchronize();  // before `values` goes
    return data;
  }
  float* add(std::vector<float> values) override {
    sizes_.push_back(values.size());
    return upload(memory_, values);
  }
  std::vector<float> values() override {
    std::vector<float> all;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      std::vector<float> part(sizes_[i]);
      device_.copy(device_.compute(), part.data(),
                   static_cast<const float*>(memory_[i].data()) + offset_,
                   part.size() * sizeof(float));
      device_.compute().synchronize();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  Device device_;
  std::size_t offset_;
  std::deque<Memory> memory_, others_;
  std::vector<std::size_t> sizes_;
};

std::vector<float> results_on(const Device& device, const Operation& operation,
                              std::pair<std::int64_t, std::int64_t> shape, std::size_t offset) {
  DeviceBench bench(device, shape, offset);
  operation.single(bench);
  return bench.results();
}

/// The first element that is not the CPU's, or -1. An operation that repeats a number of the CPU's
/// to 1e-4 passes: backward through a norm of three columns loses three digits on both.
std::int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < b.size(); ++i)
    if (!(a[i] == b[i] || std::abs(a[i] - b[i]) < 2e-4f * (1 + std::abs(b[i]))))
      return static_cast<std::int64_t>(i);
  return -1;
}

/// The harness with the CPU as both twins: it runs everywhere.
TEST(Twins, TheCpuIsItsOwnTwinHoweverMemoryIsAligned) {
  use_blas(Blas::builtin);
  const Device cpu = cpu_device({.threads = 2});
  for (const Operation& operation : kOperations)
    for (const auto& shape : kShapes) {
      SCOPED_TRACE(testing::Message()
                   << operation.name << " " << shape.first << " x " << shape.second);
      const auto a = results_on(cpu, operation, shape, 0), b = results_on(cpu, operation, shape, 1);
      ASSERT_EQ(a.size(), b.size());
      EXPECT_EQ(first_difference(a, b), -1);
    }
}

class Cuda : public testing::TestWithParam<Operation> {
 protected:
  void SetUp() override {
    if (cuda_table() == nullptr) GTEST_SKIP() << cuda_status();
    use_blas(Blas::builtin);
  }
};

TEST_P(Cuda, AgreesWithTheCpuAndWithItself) {
  const Device cuda = cuda_device(), cpu = cpu_device();
  for (const auto& shape : kShapes)
    for (const std::size_t offset : {0, 1}) {
      SCOPED_TRACE(testing::Message() << shape.first << " x " << shape.second << " + " << offset);
      const auto expected = results_on(cpu, GetParam(), shape, offset);
      const auto a = results_on(cuda, GetParam(), shape, offset);
      ASSERT_EQ(a.size(), expected.size());
      if (const std::int64_t i = first_difference(a, expected); i >= 0)
        ADD_FAILURE() << "element " << i << ": " << a[static_cast<std::size_t>(i)]
                      << ", on the CPU " << expected[static_cast<std::size_t>(i)];
      EXPECT_TRUE(a == results_on(cuda, GetParam(), shape, offset))
          << "other bits at the second time";
    }
}

INSTANTIATE_TEST_SUITE_P(Twins, Cuda, testing::ValuesIn(kOperations),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CudaMemory, IsZeroedAndCopiedInTheQueuesOrder) {
  if (cuda_table() == nullptr) GTEST_SKIP() << cuda_status();
  Device device = cuda_device();
  const Memory a = device.allocate(4096), b = device.allocate(4096, Where::pinned);
  std::vector<float> x(1024, 1.0f), y(1024);
  device.copy(device.compute(), y.data(), a.data(), 4096);
  device.compute().synchronize();
  EXPECT_EQ(y, std::vector<float>(1024));
  device.copy(device.copies(), a.data(), x.data(), 4096);
  const Event copied = device.record(device.copies());
  device.wait(device.compute(), copied);
  device.kernels().scale(device.compute(),
                         {.n = 1024, .a = a.data(), .out = a.data(), .factor = 3});
  device.copy(device.compute(), b.data(), a.data(), 4096);
  const Event done = device.record(device.compute());
  ASSERT_TRUE(done.wait(Time::max()));
  EXPECT_EQ(static_cast<const float*>(b.data())[1023], 3.0f);
  EXPECT_EQ(device.allocated().device, 4096);
  EXPECT_EQ(device.allocated().pinned, 4096);
}

TEST(CudaPhilox, GivesTheNumbersOfTheCpu) {
  if (cuda_table() == nullptr) GTEST_SKIP() << cuda_status();
  Device device = cuda_device();
  const Memory memory = device.allocate(101 * sizeof(float));
  std::vector<float> x(101), y(101);
  troupe_cuda_context* context = nullptr;
  ASSERT_EQ(cuda_table()->create(0, &context), 0);
  EXPECT_EQ(
      cuda_table()->philox_normal(context, static_cast<float*>(memory.data()), 101, 7, 9, 3, 1, 2),
      0);
  EXPECT_EQ(cuda_table()->copy(context, x.data(), memory.data(), 404), 0);
  EXPECT_EQ(cuda_table()->synchronize(context), 0);
  cuda_table()->destroy(context);
  philox_normal(y.data(), 101, 7, 9, 3, 1, 2);
  for (std::size_t i = 0; i < 101; ++i) EXPECT_NEAR(x[i], y[i], 1e-6);
}

}  // namespace
}  // namespace troupe::kernels
