// Tests the NCCL back end beyond the contract of all back ends: its operations run on the device,
// and every failure below becomes an error of the group. A library of the tests stands in for
// NCCL and threads for the GPU; **neither NCCL nor a GPU takes part**.
#include "troupe/actors/collective/nccl/nccl.hpp"
#include "tests/actors/children.hpp"
#include "tests/actors/contract.hpp"
#include "troupe/actors/collective/mesh.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <stdlib.h>
#include <barrier>
#include <span>

namespace troupe::collective {
namespace {

using kernels::HostDevice;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A group of ranks whose devices are apart from the host.
struct Nccl : testing::Test {
  std::vector<HostDevice> devices;
  Group group;
  int violations = fake_nccl().count("violations");

  void make(std::size_t size, Duration timeout = seconds(20),
            Duration delay = std::chrono::microseconds(20)) {
    devices.clear();
    for (std::size_t i = 0; i < size; ++i)
      devices.emplace_back(kernels::HostDeviceOptions{.delay = delay});
    group = over_fake_nccl(local_group(static_cast<int>(size), {.timeout = timeout}), &devices);
  }
  ~Nccl() override {
    fake_nccl().hold(0);
    group.clear();
    EXPECT_EQ(fake_nccl().count("alive"), 0);
    EXPECT_EQ(fake_nccl().count("violations"), violations)
        << "two threads in a communicator, or a call before it was ready";
  }
  kernels::Device& device(const Communicator& c) {
    return devices[static_cast<std::size_t>(c.rank())].device();
  }
  std::vector<std::string> on_all(const std::function<void(Communicator&)>& f) {
    return collective::on_all(group, f);
  }
};

/// Numbers in memory of a device.
class OnDevice {
 public:
  OnDevice(kernels::Device& device, std::int64_t n, float value)
      : device_(device),
        n_(n),
        memory_(device.allocate(static_cast<std::size_t>(4 * n))),
        seen_(device.allocate(static_cast<std::size_t>(4 * n), kernels::Where::pinned)) {
    fill(value);
  }
  void fill(float value) {
    device_.kernels().fill(device_.compute(), {.n = n_, .out = memory_.data(), .factor = value});
  }
  Buffer buffer() const { return {memory_.data(), DType::f32, n_}; }
  /// Returns the last number, after all operations of compute().
  float last() {
    device_.copy(device_.compute(), seen_.data(), memory_.data(), static_cast<std::size_t>(4 * n_));
    device_.compute().synchronize();
    return static_cast<const float*>(seen_.data())[n_ - 1];
  }

 private:
  kernels::Device& device_;
  std::int64_t n_;
  kernels::Memory memory_, seen_;
};

TEST_F(Nccl, AnOperationBeginsAfterWhatComputeHoldsAndComputeGoesOnAfterIt) {
  make(2, seconds(20), milliseconds(1));
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 1000, 0);
    for (int i = 1; i <= 5; ++i) {
      // The last of these operations has not run when the next call is made. It also runs later
      // than the first operation of another queue.
      for (int late = 4; late >= 0; --late) x.fill(static_cast<float>(100 * late + i));
      c.all_reduce(x.buffer()).wait(device(c));
      device(c).kernels().scale(
          device(c).compute(),
          {.n = 1000, .a = x.buffer().data, .out = x.buffer().data, .factor = 10});
      ASSERT_EQ(x.last(), static_cast<float>(20 * i));
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  for (const HostDevice& device : devices) {
    EXPECT_EQ(device.host_waits(), 0);
    EXPECT_EQ(device.strays(), "");
  }
}

TEST_F(Nccl, ACallReturnsBeforeTheDeviceHasDoneIt) {
  make(2);
  fake_nccl().hold(3);
  std::barrier together(2);
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    Work first = c.all_reduce(x.buffer()), second = c.all_reduce(x.buffer());
    EXPECT_FALSE(first.is_done() || second.done().has_happened());
    EXPECT_NE(second.done().of_device(), nullptr);
    EXPECT_TRUE(c.progress()[static_cast<std::size_t>(c.rank())].inside);
    EXPECT_EQ(c.traffic().all_reduce, 0u);
    together.arrive_and_wait();
    fake_nccl().hold(0);
    second.wait();
    EXPECT_TRUE(first.is_done());
    EXPECT_EQ(x.last(), 4);
    EXPECT_EQ(c.traffic().all_reduce, 80u);
    EXPECT_FALSE(c.progress()[static_cast<std::size_t>(c.rank())].inside);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST_F(Nccl, ADeviceWaitsForTheEventThatAnOperationIsToBeginAfter) {
  make(2, seconds(20), milliseconds(1));
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 1000, 0), wrong(device(c), 1000, 7), right(device(c), 1000, 3);
    device(c).compute().synchronize();
    kernels::Queue& copies = device(c).copies();
    for (int late = 4; late >= 0; --late)
      device(c).copy(copies, x.buffer().data, (late > 0 ? wrong : right).buffer().data, 4000);
    c.all_reduce(x.buffer(), Reduce::sum, {.after = device(c).record(copies)}).wait();
    EXPECT_EQ(x.last(), 6);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// An input that depends on a Work of another group can only be awaited by the host, within the
// call.
TEST_F(Nccl, AnEventOfTheHostIsWaitedForWithinTheTimeout) {
  make(2);
  auto gate = local_group(2, {.progress = Progress::thread});
  std::vector<float> y{1}, z{1};
  const Work opened = gate[0]->receive(y, 1);
  group[0]->set_timeout(milliseconds(100));
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    c.all_reduce(x.buffer(), Reduce::sum, {.after = c.rank() == 0 ? opened.done() : Event()})
        .wait();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("the input of rank 0 was not ready within 100 ms"), std::string::npos)
        << error;
  gate[1]->send(z, 0).wait();
}

TEST_F(Nccl, MemoryOfTheHostGoesOverTheGroupBelow) {
  make(3);
  const int before = fake_nccl().count("operations");
  const auto errors = on_all([&](Communicator& c) {
    std::vector<std::int64_t> count{c.rank() + 1}, all(3), in(1);
    c.all_reduce(count).wait();
    EXPECT_EQ(count[0], 6);
    const std::vector<std::int64_t> mine{c.rank()};
    c.all_gather(mine, all).wait();
    EXPECT_EQ(all, (std::vector<std::int64_t>{0, 1, 2}));
    c.exchange(mine, (c.rank() + 1) % 3, in, (c.rank() + 2) % 3).wait();
    EXPECT_EQ(in[0], (c.rank() + 2) % 3);
    EXPECT_EQ(c.traffic().all_reduce, 2u * 2 * 8 / 3);
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_EQ(fake_nccl().count("operations"), before);
}

TEST_F(Nccl, HostMemoryOnOneRankAndADevicesOnAnotherIsRefused) {
  make(2);
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    std::vector<float> y(10);
    c.all_reduce(c.rank() == 0 ? x.buffer() : Buffer(y)).wait();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("rank 1 made another call"), std::string::npos) << error;
}

// Both ranks have agreed on the operation, but rank 1's device does not begin it.
TEST_F(Nccl, ADeviceThatDoesNotEndAnOperationEndsTheGroupInTime) {
  make(2);
  const int aborted = fake_nccl().count("aborted");
  fake_nccl().hold(2);
  group[1]->set_timeout(milliseconds(200));
  const Time start = steady_now();
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    c.all_reduce(x.buffer()).wait();
  });
  EXPECT_LT(steady_now() - start, seconds(10));
  for (std::size_t r = 0; r < 2; ++r)
    EXPECT_EQ(errors[r],
              "timed_out: all_reduce #1 on rank " + std::to_string(r) +
                  " of 2: the device of rank 1 did not end all_reduce #1 within 200 ms; ranks 0, 1 "
                  "in all_reduce #1");
  EXPECT_EQ(fake_nccl().count("aborted"), aborted + 2);
}

TEST_F(Nccl, ADeadlineEndsTheWaitForTheDevice) {
  make(2);
  fake_nccl().hold(3);
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    Work work = c.all_reduce(x.buffer());
    if (c.rank() == 0) return work.wait(steady_now() + milliseconds(50));
    work.wait();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("the device of rank 0 did not end all_reduce #1 by the deadline"),
              std::string::npos)
        << error;
}

// The compute queue waits for an operation that never ends. The abort releases it, and the next
// call reports why.
TEST_F(Nccl, WhatADeviceWaitedForIsToldByTheNextCall) {
  make(2, milliseconds(200));
  fake_nccl().hold(1);
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    c.all_reduce(x.buffer()).wait(device(c));
    device(c).compute().synchronize();
    EXPECT_TRUE(c.is_over());
    c.barrier();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("did not end all_reduce #1 within 200 ms"), std::string::npos) << error;
}

TEST_F(Nccl, AnErrorOfNcclEndsTheWorldAndAllItsSplits) {
  make(4);
  constexpr int kRemoteError = 6;
  const int aborted = fake_nccl().count("aborted");
  std::barrier together(4);
  const auto errors = on_all([&](Communicator& c) {
    const auto half = c.split(c.rank() / 2, 0);
    OnDevice x(device(c), 10, 1);
    half->all_reduce(x.buffer()).wait();
    together.arrive_and_wait();
    if (c.rank() == 3) {
      fake_nccl().fail(1, kRemoteError);  // rank 1 of a split
      half->all_reduce(x.buffer()).wait();
    } else if (c.rank() == 2) {
      half->all_reduce(x.buffer()).wait();
    } else {
      c.barrier();
    }
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error.find("cancelled: "), 0u) << error;
    EXPECT_NE(error.find("NCCL on rank 1 of a split (3 of the whole): remote process exited or "
                         "there was a network error"),
              std::string::npos)
        << error;
  }
  for (const auto& rank : group) EXPECT_TRUE(rank->is_over());
  group.clear();
  EXPECT_EQ(fake_nccl().count("aborted"), aborted + 8);
}

TEST_F(Nccl, AbortEndsAnOperationThatIsOnTheDevice) {
  make(2);
  fake_nccl().hold(3);
  std::barrier together(2);
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    Work work = c.all_reduce(x.buffer());
    together.arrive_and_wait();
    if (c.rank() == 1) c.abort("enough");
    work.wait();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("rank 1 ended the group: enough"), std::string::npos) << error;
  EXPECT_TRUE(group[1]->was_given_up());
  EXPECT_FALSE(group[0]->was_given_up());
}

TEST_F(Nccl, ACommunicatorThatGoesEndsItsOperations) {
  make(2);
  fake_nccl().hold(3);
  std::barrier together(2);
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    Work work = c.all_reduce(x.buffer());
    together.arrive_and_wait();
    if (c.rank() == 1) return work.wait();
    group[0].reset();
    EXPECT_TRUE(work.is_done());
    work.wait();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("rank 0 ended the group: it left with operations under way"),
              std::string::npos)
        << error;
}

// Every operation of a queue is delayed, so neither device has begun when its rank leaves.
TEST_F(Nccl, ACommunicatorThatGoesWaitsForWhatItLeftToTheDevice) {
  make(2, seconds(20), milliseconds(5));
  const auto errors = on_all([&](Communicator& c) {
    const auto rank = static_cast<std::size_t>(c.rank());
    OnDevice x(device(c), 10, 1);
    c.all_reduce(x.buffer()).wait(device(c));
    c.all_reduce(x.buffer()).wait(device(c));
    group[rank].reset();
    EXPECT_EQ(x.last(), 4);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST_F(Nccl, WhatItLeftToTheDeviceKeepsACommunicatorForTheTimeoutAtMost) {
  make(2);
  fake_nccl().hold(1);
  group[0]->set_timeout(milliseconds(200));
  const Time start = steady_now();
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    c.all_reduce(x.buffer()).wait(device(c));
    if (c.rank() == 1) return c.barrier();
    group[0].reset();
    EXPECT_GE(steady_now() - start, milliseconds(200));
  });
  EXPECT_LT(steady_now() - start, seconds(10));
  EXPECT_EQ(errors[0], "");
  EXPECT_NE(errors[1].find("the device of rank 0 did not end all_reduce #1 within 200 ms"),
            std::string::npos)
      << errors[1];
}

TEST_F(Nccl, AnExceptionThatPassesAWorkEndsTheGroup) {
  make(2);
  fake_nccl().hold(3);
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, 1);
    Work work = c.all_reduce(x.buffer());
    if (c.rank() == 0) throw InvalidArgument(Code::invalid_argument, "my own");
    work.wait();
  });
  EXPECT_EQ(errors[0], "invalid_argument: my own");
  EXPECT_NE(errors[1].find("rank 0 ended the group: an exception passed"), std::string::npos)
      << errors[1];
}

TEST_F(Nccl, ASendToOneselfAloneIsRefused) {
  make(2);
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 10, static_cast<float>(c.rank() + 5)), y(device(c), 10, 0);
    c.exchange(x.buffer(), c.rank(), y.buffer(), c.rank()).wait();
    EXPECT_EQ(y.last(), static_cast<float>(c.rank() + 5));
    if (c.rank() == 0) c.send(x.buffer(), 0).wait();
    c.barrier();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("rank 0 sends to itself or receives from itself alone"), std::string::npos)
        << error;
}

TEST_F(Nccl, AMeshHasGroupsOfTheDevice) {
  make(4);
  const int before = fake_nccl().count("operations");
  const auto errors = on_all([&](Communicator& c) {
    const int rank = c.rank();
    kernels::Device& device = devices[static_cast<std::size_t>(rank)].device();
    Mesh mesh = make_mesh(std::move(group[static_cast<std::size_t>(rank)]), {.dp = 2, .tp = 2});
    OnDevice x(device, 10, static_cast<float>(1 << rank)), y(device, 10, x.last());
    Work sum = mesh.dp->all_reduce(x.buffer());
    mesh.tp->all_reduce(y.buffer()).wait(device);
    sum.wait(device);
    EXPECT_EQ(x.last(), rank % 2 == 0 ? 5.0f : 10.0f);
    EXPECT_EQ(y.last(), rank / 2 == 0 ? 3.0f : 12.0f);
  });
  EXPECT_EQ(errors, std::vector<std::string>(4));
  EXPECT_EQ(fake_nccl().count("operations"), before + 8);
}

// The variable is for two ranks on one device, whose kernels must not run beside a collective.
TEST_F(Nccl, WithTheSwitchAnOperationEndsInItsCall) {
  ::setenv("TROUPE_NCCL_SYNCHRONIZE", "1", 1);
  make(2);
  ::unsetenv("TROUPE_NCCL_SYNCHRONIZE");
  const auto errors = on_all([&](Communicator& c) {
    OnDevice x(device(c), 1000, 1);
    const Work work = c.all_reduce(x.buffer());
    EXPECT_TRUE(work.is_done());
    EXPECT_EQ(x.last(), 2);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST_F(Nccl, AGroupThatCannotBeMadeIsRefused) {
  auto host = local_group(2, {.timeout = milliseconds(100)});
  EXPECT_THROW(static_cast<void>(join_fake_nccl(std::move(host[0]), kernels::cpu_device())),
               InvalidArgument);
  host = local_group(2, {.timeout = milliseconds(100)});
  try {
    static_cast<void>(join_fake_nccl(std::move(host[0]), HostDevice().device()));
    FAIL() << "rank 1 has not come";
  } catch (const TimedOut& e) {
    EXPECT_NE(e.message().find("rank 1 did not arrive within 100 ms"), std::string::npos)
        << e.message();
  }
  host = local_group(1);
  auto* same = host[0].get();
  EXPECT_EQ(join_device_group(std::move(host[0]), kernels::cpu_device()).get(), same);
}

TEST_F(Nccl, WithoutNcclAllRanksAreTold) {
  ::setenv("TROUPE_NCCL", "/no/such/libnccl.so.2", 1);
  Group host = local_group(2);
  const auto errors = collective::on_all(host, [&](Communicator& c) {
    if (c.rank() == 1) return c.barrier();
    static_cast<void>(join_nccl_group(std::move(host[0]), HostDevice().device()));
  });
  EXPECT_EQ(errors[0].find("unavailable: NCCL is not there"), 0u) << errors[0];
  EXPECT_NE(errors[1].find("rank 0 ended the group: NCCL is not there"), std::string::npos)
      << errors[1];
  ::unsetenv("TROUPE_NCCL");
}

// The last resort when the abort hangs: a device whose operations cannot be ended still uses the
// memory of its process.
TEST(NcclDeathTest, AnAbortThatHangsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    Group group;
    HostDevice gpu({.takes_all = true});
    for (auto& rank : local_group(1))
      group.push_back(join_fake_nccl(std::move(rank), gpu.device(), milliseconds(100)));
    fake_nccl().hold(1);
    fake_nccl().stick(1);
    std::vector<float> x(10);
    Work work = group[0]->all_reduce(x);
    group[0]->abort("enough");
    work.wait();
  };
  EXPECT_EXIT(hang(), testing::KilledBySignal(SIGKILL),
              "NCCL did not abort an operation within 100 ms");
}

// A rank's process dies while NCCL waits for it. NCCL itself does not report that.
TEST(NcclProcesses, ADeadProcessIsNamed) {
  const Fd memory = create_shm_group({.size = 2});
  Child other = start_child([&] {
    auto host = join_shm_group(memory, 1, 1, seconds(60));
    std::vector<std::byte> id(sizeof(nccl::UniqueId));
    host->broadcast(std::span<std::byte>(id), 0).wait();  // as if it joined
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  try {
    static_cast<void>(
        join_fake_nccl(join_shm_group(memory, 0, 1, seconds(60)), HostDevice().device()));
    ADD_FAILURE() << "the other rank is dead";
  } catch (const WorkerDied& e) {
    EXPECT_NE(e.message().find("rank 1 (process " + std::to_string(other.pid()) + ") died"),
              std::string::npos)
        << e.message();
  }
}

}  // namespace
}  // namespace troupe::collective
