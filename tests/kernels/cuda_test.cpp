// Tests each operation of a CUDA device against the same operation of the CPU. Skipped where
// there is no device.
#include "troupe/kernels/device/cuda.hpp"
#include "device/narrow.hpp"
#include "troupe/kernels/gemm/blas.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/runtime/base/error.hpp"

#include <cstring>

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

float widened(float x) {
  return x;
}
template <DType type>
float widened(Narrow<type> x) {
  return x.wide();
}

/// A number of a run, widened to f32. `unit` is the distance of its type's numbers at 1.
struct Number {
  float value, unit;
};
using Numbers = std::vector<Number>;

template <class T>
constexpr float unit_of() {
  return type_of<T> == DType::bf16 ? 0x1p-7f : type_of<T> == DType::f16 ? 0x1p-10f : 0x1p-23f;
}

/// Allocates memory of a device, `offset` elements after an aligned address.
template <class T>
class DeviceBench final : public Bench<T> {
 public:
  DeviceBench(Device device, std::pair<std::int64_t, std::int64_t> shape, std::size_t offset)
      : Bench<T>(device.kernels(), device.compute(), shape.first, shape.second),
        device_(std::move(device)),
        offset_(offset) {}
  std::int32_t* integers(const std::vector<std::int32_t>& values) override {
    return upload(values);
  }
  /// Returns all numbers of all memory that was handed out, in order.
  Numbers numbers() {
    Numbers all;
    for (const auto& read : order_) read(all);
    for (const T& value : this->results()) all.push_back({widened(value), unit_of<T>()});
    return all;
  }

 private:
  template <class V>
  V* upload(const std::vector<V>& values) {
    const std::size_t bytes = values.size() * sizeof(V);
    Memory& memory = memory_.emplace_back(device_.allocate(bytes + (offset_ + 1) * sizeof(V)));
    V* data = static_cast<V*>(memory.data()) + offset_;
    device_.copy(device_.compute(), data, values.data(), bytes);
    device_.compute().synchronize();  // before `values` is destroyed
    return data;
  }
  template <class V>
  V* tracked(const std::vector<V>& values) {
    V* data = upload(values);
    order_.push_back([this, data, count = values.size()](Numbers& all) {
      std::vector<V> part(count);
      device_.copy(device_.compute(), part.data(), data, count * sizeof(V));
      device_.compute().synchronize();
      for (const V& value : part) all.push_back({widened(value), unit_of<V>()});
    });
    return data;
  }
  T* add(std::vector<T> values) override { return tracked(values); }
  WideOf<T>* add_wide(const std::vector<WideOf<T>>& values) override { return tracked(values); }
  std::vector<T> values() override { return {}; }

  Device device_;
  std::size_t offset_;
  std::deque<Memory> memory_;
  std::vector<std::function<void(Numbers&)>> order_;
};

template <class T>
Numbers results_on(const Device& device, void (*operation)(Bench<T>&),
                   std::pair<std::int64_t, std::int64_t> shape, std::size_t offset) {
  DeviceBench<T> bench(device, shape, offset);
  operation(bench);
  return bench.numbers();
}

/// Returns whether the numbers agree to 1e-4, or to two units of a 16-bit type. Backward through
/// a norm of three columns loses three digits on both devices. All NaNs are equal.
bool agree(const Number& a, const Number& b) {
  if (std::isnan(a.value) && std::isnan(b.value)) return true;
  const float tolerance = b.unit == unit_of<float>() ? 2e-4f : 2 * b.unit;
  return a.value == b.value || std::abs(a.value - b.value) < tolerance * (1 + std::abs(b.value));
}

/// Returns the first element that differs from the CPU's, or -1.
std::int64_t first_difference(const Numbers& a, const Numbers& b) {
  for (std::size_t i = 0; i < b.size(); ++i)
    if (!agree(a[i], b[i])) return static_cast<std::int64_t>(i);
  return -1;
}

bool same_bits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Number)) == 0);
}

template <class T>
void expect_aligned_as_misaligned(void (*operation)(Bench<T>&)) {
  const Device cpu = cpu_device({.threads = 2});
  for (const auto& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.first << " x " << shape.second);
    const auto a = results_on(cpu, operation, shape, 0), b = results_on(cpu, operation, shape, 1);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(first_difference(a, b), -1);
  }
}

/// Runs the comparison with the CPU on both sides, so this test needs no device.
TEST(Twins, TheCpuIsItsOwnTwinHoweverMemoryIsAligned) {
  use_blas(Blas::builtin);
  for (const Operation& operation : kOperations) {
    SCOPED_TRACE(operation.name);
    expect_aligned_as_misaligned(operation.single);
  }
  for (const NarrowOperation& operation : kNarrowOperations) {
    SCOPED_TRACE(operation.name);
    expect_aligned_as_misaligned(operation.bf16);
    expect_aligned_as_misaligned(operation.f16);
  }
}

template <class T>
void expect_twins(void (*operation)(Bench<T>&)) {
  const Device cuda = cuda_device(), cpu = cpu_device();
  for (const auto& shape : kShapes)
    for (const std::size_t offset : {0, 1}) {
      SCOPED_TRACE(testing::Message() << shape.first << " x " << shape.second << " + " << offset);
      const auto expected = results_on(cpu, operation, shape, offset);
      const auto a = results_on(cuda, operation, shape, offset);
      ASSERT_EQ(a.size(), expected.size());
      if (const std::int64_t i = first_difference(a, expected); i >= 0)
        ADD_FAILURE() << "element " << i << ": " << a[static_cast<std::size_t>(i)].value
                      << ", on the CPU " << expected[static_cast<std::size_t>(i)].value;
      EXPECT_TRUE(same_bits(a, results_on(cuda, operation, shape, offset)))
          << "other bits at the second time";
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
  expect_twins(GetParam().single);
}

class CudaNarrow : public testing::TestWithParam<NarrowOperation> {
 protected:
  void SetUp() override {
    if (cuda_table() == nullptr) GTEST_SKIP() << cuda_status();
    use_blas(Blas::builtin);
  }
};

TEST_P(CudaNarrow, AgreesWithTheCpuAndWithItselfInBf16) {
  expect_twins(GetParam().bf16);
}

TEST_P(CudaNarrow, AgreesWithTheCpuAndWithItselfInF16) {
  expect_twins(GetParam().f16);
}

INSTANTIATE_TEST_SUITE_P(Twins, CudaNarrow, testing::ValuesIn(kNarrowOperations),
                         [](const auto& info) { return std::string(info.param.name); });
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
