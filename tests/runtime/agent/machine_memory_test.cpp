/// Tests which limit of memory is the tightest: the machine's, or that of a control group.
#include "troupe/runtime/agent/machine_memory.hpp"

#include "tests/runtime/base/fake_root.hpp"

namespace troupe::agent::machine_memory_test {
namespace {

class MachineMemory : public FakeRoot {
 protected:
  void SetUp() override {
    FakeRoot::SetUp();
    write("/proc/meminfo", "MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:   4000 kB");
  }
  void expect(std::uint64_t total, std::uint64_t available, const std::string& of) {
    const auto seen = machine_memory(root);
    EXPECT_EQ(seen.total, total);
    EXPECT_EQ(seen.available, available);
    EXPECT_EQ(seen.of, of);
  }
};

TEST_F(MachineMemory, IsThatOfTheMachineWithoutAGroup) {
  expect(8000 << 10, 4000 << 10, "the machine");
  write("/proc/self/cgroup", "0::/a");
  write("/sys/fs/cgroup/a/memory.max", "max");
  expect(8000 << 10, 4000 << 10, "the machine");
}

TEST_F(MachineMemory, IsThatOfTheGroupWithLeastAtAnyLevel) {
  write("/proc/self/cgroup", "0::/a/b");
  write("/sys/fs/cgroup/a/b/memory.max", "3000000");
  write("/sys/fs/cgroup/a/b/memory.current", "1000000");
  write("/sys/fs/cgroup/a/b/memory.stat", "anon 5\ninactive_file 400000\nfile 7");
  expect(3'000'000, 2'400'000, "the control group");
  write("/sys/fs/cgroup/a/memory.max", "4000000");
  write("/sys/fs/cgroup/a/memory.current", "3900000");
  expect(4'000'000, 100'000, "the control group");
}

TEST_F(MachineMemory, IsReadFromVersionOne) {
  write("/proc/self/cgroup", "7:memory:/docker/abc");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1900000");
  write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 900000");
  expect(2'000'000, 1'000'000, "the control group");
}

}  // namespace
}  // namespace troupe::agent::machine_memory_test
