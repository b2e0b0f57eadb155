// The engine on a device that is apart from the host: its queues run beside it, and the host that
// touches its memory is killed. Its operations are the CPU's, so the bits must be the CPU's, too.
// **No GPU takes part.**
#include "tests/device/nccl_group.hpp"
#include "tests/train/engine/ranks.hpp"

namespace troupe::train::testing {
namespace {

using kernels::HostDevice;

/// On every rank; over the NCCL back end with a library of the tests.
std::vector<Record> run_on_devices(const Experiment& e, std::vector<HostDevice>& devices) {
  const int ranks = e.layout.dp;
  devices = std::vector<HostDevice>(static_cast<std::size_t>(ranks));
  std::vector<Record> records(devices.size());
  collective::Group worlds(devices.size());
  if (ranks > 1) worlds = collective::over_fake_nccl(collective::local_group(ranks), &devices);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        RankContext context{collective::make_mesh(std::move(worlds[rank]), {.dp = ranks}),
                            devices[rank].device()};
        records[rank] = run_on(context, e);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return records;
}

void expect_equal(const Experiment& e) {
  ASSERT_TRUE(kernels::use_blas(kernels::Blas::builtin));
  std::vector<HostDevice> devices;
  const std::vector<Record> on_cpu = run(e), on_devices = run_on_devices(e, devices);
  EXPECT_EQ(on_devices, on_cpu);
  for (const HostDevice& device : devices) EXPECT_EQ(device.strays(), "");
}

TEST(EngineOnADevice, AStepHasTheCpusBits) {
  expect_equal({.layout = {.micro = 2}, .ignored = 0.3});
}

TEST(EngineOnADevice, DropoutRecomputeAndOffloadHaveTheCpusBits) {
  Experiment e{.shape = {.dropout = 0.1f}, .layout = {.micro = 2}};
  e.layout.recompute = Recompute::full;
  e.layout.offload = Offload::optimizer;
  expect_equal(e);
}

// Two ranks: a sum has the same bits in either order.
TEST(EngineOnADevice, DataParallelAndEveryZeroStageHaveTheCpusBits) {
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE("zero " + std::to_string(zero));
    expect_equal({.layout = {.dp = 2, .zero = zero, .micro = 2}, .ignored = 0.3});
  }
}

}  // namespace
}  // namespace troupe::train::testing
