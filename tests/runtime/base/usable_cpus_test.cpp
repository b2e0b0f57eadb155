/// Tests how many CPUs a node offers: affinity, quotas of control groups at every level, and the
/// allocation of a batch system.
#include "troupe/runtime/base/usable_cpus.hpp"

#include "tests/runtime/base/fake_root.hpp"

#include <sched.h>
#include <map>

namespace troupe::usable_cpus_test {
namespace {

class CpuQuota : public FakeRoot {};

TEST_F(CpuQuota, IsNoneWithoutALimit) {
  EXPECT_EQ(cpu_quota(root), 0U);
  write("/proc/self/cgroup", "3:cpu,cpuacct:/x\n0::/a/b");
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(cpu_quota(root), 0U);
}

TEST_F(CpuQuota, IsTheLeastOfAllLevels) {
  write("/proc/self/cgroup", "0::/a/b/c");
  write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000");
  write("/sys/fs/cgroup/a/b/cpu.max", "400000 100000");
  EXPECT_EQ(cpu_quota(root), 4U);
  write("/sys/fs/cgroup/a/cpu.max", "300000 100000");
  EXPECT_EQ(cpu_quota(root), 3U);
  write("/sys/fs/cgroup/cpu.max", "100000 50000");
  EXPECT_EQ(cpu_quota(root), 2U) << "the group of a container is the mount point";
}

TEST_F(CpuQuota, OfVersionOneAndOfAHybridCounts) {
  write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n0::/user");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "600000");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpu_quota(root), 6U);
  write("/sys/fs/cgroup/unified/user/cpu.max", "500000 100000");
  EXPECT_EQ(cpu_quota(root), 5U);
}

TEST_F(CpuQuota, CountsWholeCpusAndNeverNone) {
  write("/proc/self/cgroup", "0::/a");
  write("/sys/fs/cgroup/a/cpu.max", "150000 100000");
  EXPECT_EQ(cpu_quota(root), 1U);
  write("/sys/fs/cgroup/a/cpu.max", "20000 100000");
  EXPECT_EQ(cpu_quota(root), 1U);
  write("/sys/fs/cgroup/a/cpu.max", "rubbish");
  EXPECT_EQ(cpu_quota(root), 0U);
}

unsigned allocated(const std::map<std::string, std::string>& variables) {
  return allocated_cpus(Environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  }));
}

TEST(AllocatedCpus, AreThoseOfThisHost) {
  EXPECT_EQ(allocated({}), 0U);
  EXPECT_EQ(allocated({{"SLURM_CPUS_ON_NODE", "1"}}), 1U);
  EXPECT_EQ(allocated({{"SLURM_JOB_ID", "7"}, {"SLURM_CPUS_ON_NODE", "12"}}), 12U);
  EXPECT_EQ(allocated({{"PBS_JOBID", "7"}, {"NCPUS", "4"}}), 4U);
  EXPECT_EQ(allocated({{"PBS_JOBID", "7"}, {"PBS_NUM_PPN", "8"}}), 8U);
  EXPECT_EQ(allocated({{"NCPUS", "4"}}), 0U) << "not of a batch system";
  EXPECT_EQ(allocated({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "hosta 6"}}), 6U);
  EXPECT_EQ(allocated({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "hosta 6 hostb 2"}}), 0U);
  EXPECT_EQ(allocated({{"NHOSTS", "1"}, {"NSLOTS", "3"}}), 3U);
  EXPECT_EQ(allocated({{"NHOSTS", "2"}, {"NSLOTS", "3"}}), 0U) << "slots of both hosts";
}

TEST(AllocatedCpus, AreIgnoredWhereTheyAreNoNumber) {
  for (const char* text : {"", "many", "4(x2)", "-1", "0"})
    EXPECT_EQ(allocated({{"SLURM_CPUS_ON_NODE", text}}), 0U) << text;
}

TEST(UsableCpus, AreAtMostTheAffinity) {
  cpu_set_t set, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_LE(usable_cpus(), static_cast<unsigned>(CPU_COUNT(&set)));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &set)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cpus(), 1U);
  ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}

}  // namespace
}  // namespace troupe::usable_cpus_test
