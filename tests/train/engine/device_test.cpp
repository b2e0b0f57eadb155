// Tests the engine on a device that is apart from the host: its queues run beside the host, and a
// host thread that touches its memory is killed. Its operations are the CPU's, so the results
// must have the CPU's bits. **No GPU takes part.**
#include "tests/actors/nodes_group.hpp"
#include "tests/device/nccl_group.hpp"
#include "tests/train/engine/ranks.hpp"

#include <barrier>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

namespace troupe::train::testing {
namespace {

using kernels::HostDevice;

/// The host group of the ranks.
collective::Group on_one_node(int ranks, Duration timeout) {
  return collective::local_group(ranks, {.timeout = timeout, .slot = {1 << 16}});
}
collective::Group on_two_nodes(int ranks, Duration timeout) {
  return collective::nodes_group({ranks / 2, ranks - ranks / 2}, {.timeout = timeout});
}
using MakeHosts = collective::Group (*)(int ranks, Duration timeout);

/// Runs the body on every rank, over the NCCL back end with a library of the tests. Returns the
/// text of each rank's exception.
std::vector<std::string> on_devices(const collective::MeshShape& shape,
                                    std::vector<HostDevice>& devices, const RankBody& body,
                                    MakeHosts make_hosts = on_one_node) {
  const int ranks = shape.ranks();
  devices = std::vector<HostDevice>(static_cast<std::size_t>(ranks));
  collective::Group worlds(devices.size());
  if (ranks > 1)
    worlds = collective::over_fake_nccl(make_hosts(ranks, std::chrono::seconds(60)), &devices);
  std::vector<std::string> errors(devices.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        RankContext context{collective::make_mesh(std::move(worlds[rank]), shape),
                            devices[rank].device()};
        body(context);
      } catch (const std::exception& e) {
        errors[rank] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<Record> run_on_devices(const Experiment& e, std::vector<HostDevice>& devices,
                                   MakeHosts make_hosts) {
  std::vector<Record> records(static_cast<std::size_t>(e.layout.ranks()));
  const auto body = [&](RankContext& context) {
    records[static_cast<std::size_t>(context.mesh.rank())] = run_on(context, e);
  };
  const auto errors = on_devices(mesh_of(e.layout), devices, body, make_hosts);
  EXPECT_EQ(errors, std::vector<std::string>(errors.size()));
  return records;
}

void expect_equal(const Experiment& e, MakeHosts make_hosts = on_one_node) {
  ASSERT_TRUE(kernels::use_blas(kernels::Blas::builtin));
  std::vector<HostDevice> devices;
  const std::vector<Record> on_cpu = run(e), on_devices = run_on_devices(e, devices, make_hosts);
  EXPECT_EQ(on_devices, on_cpu);
  for (const HostDevice& device : devices) {
    EXPECT_EQ(device.strays(), "");
    EXPECT_EQ(device.host_waits(), 0);
  }
}

// Where a compiler cannot clear padding, beta and the padding beside it may look like an address.
TEST(DeviceOfTheTests, ANumberBesidePaddingIsNoMemory) {
  HostDevice gpu;
  kernels::Device& device = gpu.device();
  constexpr std::size_t kStep = 8 << 20;  // of eight such addresses at least six are normal numbers
  const kernels::Memory zeros = device.allocate(4), memory = device.allocate(8 * kStep);
  kernels::Gemm product{.m = 1, .n = 1, .k = 1};
  product.a = product.b = zeros.data();
  product.lda = product.ldb = product.ldc = 1;
  static_assert(offsetof(kernels::Gemm, c) == offsetof(kernels::Gemm, beta) + 8);
  for (std::size_t i = 0; i < 8 && !std::isnormal(product.beta); ++i) {
    product.c = static_cast<char*>(memory.data()) + i * kStep;
    auto* bytes = reinterpret_cast<std::byte*>(&product);
    std::memcpy(bytes + offsetof(kernels::Gemm, beta), bytes + offsetof(kernels::Gemm, c), 8);
  }
  ASSERT_TRUE(std::isnormal(product.beta));
  device.kernels().fill(device.compute(), {.n = 1, .out = product.c, .factor = 1});
  device.kernels().gemm(device.compute(), product);
  device.compute().synchronize();
  EXPECT_EQ(*gpu.near(static_cast<const float*>(product.c)), product.beta);
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

// With two ranks, a sum has the same bits in either order.
TEST(EngineOnADevice, DataParallelAndEveryZeroStageHaveTheCpusBits) {
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE("zero " + std::to_string(zero));
    expect_equal({.layout = {.dp = 2, .zero = zero, .micro = 2}, .ignored = 0.3});
  }
}

TEST(EngineOnADevice, TensorAndSequenceParallelRanksHaveTheCpusBits) {
  for (const bool sequence : {false, true}) {
    SCOPED_TRACE(sequence ? "sequence" : "tensor");
    expect_equal({.layout = {.tp = 2, .micro = 2, .sequence = sequence}, .ignored = 0.3});
  }
}

TEST(EngineOnADevice, APipelineHasTheCpusBits) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    SCOPED_TRACE(schedule);
    expect_equal({.layout = {.pp = 2, .micro = 4, .schedule = schedule}, .ignored = 0.3});
  }
}

TEST(EngineOnADevice, SixteenBitTypesHaveTheCpusBits) {
  for (const DType type : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(kernels::name_of(type));
    expect_equal({.layout = {.micro = 2, .compute = type}, .ignored = 0.3});
    expect_equal({.layout = {.dp = 2, .zero = 2, .micro = 2, .compute = type}, .ignored = 0.3});
    expect_equal({.layout = {.tp = 2, .micro = 2, .sequence = true, .compute = type}});
    expect_equal({.layout = {.pp = 2, .micro = 4, .compute = type}, .ignored = 0.3});
  }
}

TEST(EngineOnADevice, AMeshOfAllAxesHasTheCpusBits) {
  expect_equal({.layout = {.dp = 2, .tp = 2, .pp = 2, .zero = 1, .micro = 2}, .steps = 2});
}

TEST(EngineOnADevice, TwoNodesOfTwoRanksHaveTheCpusBits) {
  expect_equal({.layout = {.dp = 2, .tp = 2, .zero = 3, .micro = 2}, .steps = 2}, on_two_nodes);
  expect_equal({.layout = {.tp = 2, .pp = 2, .micro = 4}, .steps = 2}, on_two_nodes);
}

// The host waits for no reduction. The device waits, and the end of the step reports that the
// reduction failed.
TEST(EngineOnADevice, AnOperationThatOnlyTheDeviceWaitsForFailsTheStep) {
  const GptShape shape;
  std::barrier together(2);
  std::vector<HostDevice> devices;
  const auto errors = on_devices({.tp = 2}, devices, [&](RankContext& context) {
    Engine engine(gpt(shape), {.tp = 2}, context.mesh, context.device, {});
    engine.initialize(1);
    std::vector<Rows> parts = share_of(shape, 0, 4, 0, 1, 1);
    (void)engine.step(micros_of(parts));
    together.arrive_and_wait();
    context.mesh.tp->set_timeout(std::chrono::milliseconds(200));
    collective::fake_nccl().hold(1);
    (void)engine.step(micros_of(parts));
  });
  collective::fake_nccl().hold(0);
  for (const std::string& error : errors)
    EXPECT_NE(error.find(" did not end "), std::string::npos) << error;
}

// The first stage has sent the last weights of the tied embedding, and only its device waits for
// that.
TEST(EngineOnADevice, ARankThatLeavesAfterItsLastCallEndsNoOther) {
  for (const bool hashes : {false, true}) {
    SCOPED_TRACE(hashes ? "weights_hash()" : "step()");
    std::vector<HostDevice> devices;
    collective::Mesh last;
    const auto errors = on_devices({.pp = 2}, devices, [&](RankContext& context) {
      {
        Engine engine(gpt({}), {.pp = 2, .micro = 2}, context.mesh, context.device, {});
        engine.initialize(1);
        std::vector<Rows> parts = share_of({}, 0, 4, 0, 1, 2);
        (void)engine.step(micros_of(parts));
        if (hashes) (void)engine.weights_hash();
      }
      if (context.mesh.rank() == 1) last = std::move(context.mesh);
    });
    ASSERT_EQ(errors, std::vector<std::string>(2));
    EXPECT_FALSE(last.world->is_over());
  }
}

}  // namespace
}  // namespace troupe::train::testing
