// Tests WorkerLease: WORKER-LEASE-1 and WORKER-LEASE-2.
#include "troupe/runtime/client/worker_lease.hpp"

#include <gtest/gtest.h>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace troupe::client::worker_lease_test {
namespace {

constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";

struct WorkerLeaseTest : testing::Test {
  WorkerLeaseTest() {
    if (const char* value = std::getenv(kVariable)) before = value;
    ::setenv(kVariable, "4,6", 1);
  }
  ~WorkerLeaseTest() override {
    if (before)
      ::setenv(kVariable, before->c_str(), 1);
    else
      ::unsetenv(kVariable);
  }
  static std::string shown() { return std::getenv(kVariable); }

  std::optional<std::string> before;
  WorkerLease lease;
};

wire::LeaseGranted devices(std::vector<std::int32_t> gpus) {
  wire::LeaseGranted message;
  message.gpus = std::move(gpus);
  return message;
}

wire::LeaseGranted cpus(std::int64_t amount) {
  wire::LeaseGranted message;
  message.demand.emplace().cpus = amount;
  return message;
}

TEST_F(WorkerLeaseTest, EnvironmentChangesWhenDevicesAreShown) {
  lease.show_devices();
  EXPECT_EQ(shown(), "4,6") << "no lease, no news";
  lease.granted(devices({1}));
  EXPECT_EQ(shown(), "4,6");
  lease.show_devices();
  EXPECT_EQ(shown(), "6");
  lease.granted(devices({0, 1}));
  lease.show_devices();
  EXPECT_EQ(shown(), "4,6") << "by the names of before the first change";
  lease.granted(devices({}));
  lease.show_devices();
  EXPECT_EQ(shown(), "");
}

TEST_F(WorkerLeaseTest, GrantWithoutDevicesLeavesThemAsTheyAre) {
  lease.granted(devices({1}));
  lease.granted(cpus(20'000));
  EXPECT_EQ(lease.devices(), std::vector<int>{1});
  wire::LeaseGranted message = cpus(20'000);
  message.has_devices = true;
  lease.granted(message);
  EXPECT_TRUE(lease.devices().empty());
}

TEST_F(WorkerLeaseTest, CoversWhatTheAgentHasGranted) {
  wire::ResourceDemand demand;
  demand.cpus = 10'000;
  EXPECT_FALSE(lease.covers(demand, NodeId{}));
  lease.granted(cpus(10'000));
  EXPECT_TRUE(lease.covers(demand, NodeId{}));
  demand.cpus = 10'001;
  EXPECT_FALSE(lease.covers(demand, NodeId{}));
}

}  // namespace
}  // namespace troupe::client::worker_lease_test
