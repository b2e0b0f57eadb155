// Tests memory, queues and the table of functions of the CPU device.
#include "troupe/kernels/device/device.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace troupe::kernels {
namespace {

TEST(CpuDevice, MemoryIsZeroedAlignedAndCountedByPlace) {
  Device device = cpu_device();
  for (const std::size_t bytes : {1u, 31u, 4096u, 3u << 20}) {
    Memory memory = device.allocate(bytes, Where::pinned);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(static_cast<char*>(memory.data())[i], 0);
    std::memset(memory.data(), 1, bytes);
    EXPECT_EQ(device.allocated().pinned, static_cast<std::int64_t>(bytes));
    EXPECT_EQ(device.allocated().device, 0);
  }
  EXPECT_EQ(device.allocated().pinned, 0);
}

TEST(CpuDevice, PeakIsTheMostThatWasAllocatedAtOnce) {
  Device device = cpu_device();
  Memory a = device.allocate(1000);
  {
    const Memory b = device.allocate(500);
  }
  Memory c = device.allocate(200);
  a = std::move(c);
  EXPECT_EQ(device.allocated().device, 200);
  EXPECT_EQ(device.allocated().peak_device, 1500);
}

TEST(CpuDevice, SaysWhatIsAllocatedWhenThereIsNoRoom) {
  Device device = cpu_device();
  const Memory some = device.allocate(12345);
  try {
    const Memory all = device.allocate(std::size_t{1} << 60);
    FAIL();
  } catch (const OutOfMemory& e) {
    EXPECT_NE(e.message().find("12345"), std::string::npos) << e.message();
  }
}

TEST(CpuDevice, RefusesNoThreadsAndTooMany) {
  EXPECT_THROW(cpu_device({.threads = 0}), InvalidArgument);
  EXPECT_THROW(cpu_device({.threads = 257}), InvalidArgument);
}

TEST(CpuDevice, MemoryOutlivesItsDevice) {
  Memory memory;
  {
    Device device = cpu_device();
    memory = device.allocate(100);
  }
  std::memset(memory.data(), 1, 100);
}

TEST(CpuDevice, CopiesAndRecordsAtOnce) {
  Device device = cpu_device({.threads = 2});
  std::vector<char> from(1 << 20, 'x'), to(from.size());
  device.copy(device.copies(), to.data(), from.data(), from.size());
  EXPECT_EQ(to, from);
  EXPECT_TRUE(device.record(device.copies()).has_happened());
}

TEST(CpuDevice, ScratchStaysUntilMoreIsWanted) {
  Device device = cpu_device();
  void* first = device.compute().scratch(1000);
  EXPECT_EQ(device.compute().scratch(10), first);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device.compute().scratch(1 << 21)) % 64, 0u);
  EXPECT_NE(device.compute().scratch(1), device.copies().scratch(1));
}

TEST(CpuDevice, TableHasEveryFunction) {
  const Kernels& k = cpu_device().kernels();
  constexpr std::size_t functions = sizeof(Kernels) / sizeof(void*);
  void* entry[functions];
  std::memcpy(static_cast<void*>(entry), &k, sizeof entry);
  for (std::size_t i = 0; i < functions; ++i) EXPECT_NE(entry[i], nullptr) << i;
}

}  // namespace
}  // namespace troupe::kernels
