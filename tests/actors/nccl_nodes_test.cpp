// Tests groups of NCCL whose ranks lie on two nodes of two ranks. A library of the tests stands in
// for NCCL and threads for the GPUs and the nodes; **neither NCCL nor a GPU takes part**.
#include "tests/actors/nodes_group.hpp"
#include "tests/actors/on_all.hpp"
#include "tests/device/nccl_group.hpp"
#include "troupe/actors/collective/mesh.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <barrier>

namespace troupe::collective {
namespace {

using namespace std::chrono_literals;

struct NcclOverNodes : testing::Test {
  Group group;
  int violations = fake_nccl().count("violations");

  void make(Duration timeout = 20s) {
    group = over_fake_nccl(nodes_group(two_a_node(4)));
    for (const auto& rank : group) rank->set_timeout(timeout);
  }
  ~NcclOverNodes() override {
    fake_nccl().hold(0);
    group.clear();
    EXPECT_EQ(fake_nccl().count("alive"), 0);
    EXPECT_EQ(fake_nccl().count("violations"), violations);
  }
  std::vector<std::string> on_all(const std::function<void(Communicator&)>& f) {
    return collective::on_all(group, f);
  }
  /// Expects that each error has this beginning and this part.
  static void expect_all(const std::vector<std::string>& errors, const std::string& begin,
                         const std::string& part) {
    for (const std::string& error : errors) {
      EXPECT_EQ(error.find(begin), 0u) << error;
      EXPECT_NE(error.find(part), std::string::npos) << error;
    }
  }
};

void add_on_device(Communicator& c, Reduce reduce = Reduce::sum) {
  std::vector<float> x(10, 1);
  c.all_reduce(x, reduce).wait();
}

TEST_F(NcclOverNodes, AMeshHasGroupsOfTheDeviceOnANodeAndOverNodes) {
  make();
  const int before = fake_nccl().count("operations");
  expect_none(on_all([&](Communicator& c) {
    const int rank = c.rank();
    Mesh mesh = make_mesh(std::move(group[static_cast<std::size_t>(rank)]), {.dp = 2, .tp = 2});
    std::vector<float> x(10, static_cast<float>(1 << rank)), y = x;
    mesh.dp->all_reduce(x).wait();
    mesh.tp->all_reduce(y).wait();
    EXPECT_EQ(x[9], rank % 2 == 0 ? 5.0f : 10.0f);
    EXPECT_EQ(y[9], rank / 2 == 0 ? 3.0f : 12.0f);
  }));
  EXPECT_EQ(fake_nccl().count("operations"), before + 8);
}

TEST_F(NcclOverNodes, OtherOperationsOfANodesDevicesAreNamedWhereTheHostsMeetNext) {
  make();
  const auto errors = on_all([](Communicator& c) {
    add_on_device(c, c.rank() < 2 ? Reduce::sum : Reduce::max);
    c.barrier();
  });
  expect_all(errors, "invalid_argument: barrier #2",
             "the device of rank 2 had other operations before than that of rank 0");
}

TEST_F(NcclOverNodes, AMessageThatDoesNotFitIsNamedBeforeTheDevicesBegin) {
  make();
  const int before = fake_nccl().count("operations");
  const auto errors = on_all([](Communicator& c) {
    std::vector<float> x(c.rank() == 1 ? 10 : 11);
    if (c.rank() == 1) return c.send(x, 3).wait();
    if (c.rank() == 3) return c.receive(x, 1).wait();
    c.barrier();
  });
  expect_all(errors, "invalid_argument: ", "rank 1 sends 10 x f32 where it should send 11 x f32");
  EXPECT_EQ(fake_nccl().count("operations"), before);
}

// The late rank is no head, so its node's head tells the other node.
TEST_F(NcclOverNodes, ADeviceThatDoesNotEndAnOperationEndsAllNodes) {
  make();
  fake_nccl().hold(1u << 3);
  group[3]->set_timeout(200ms);
  const Time start = steady_now();
  const auto errors = on_all([](Communicator& c) { add_on_device(c); });
  EXPECT_LT(steady_now() - start, 10s);
  expect_all(errors, "timed_out: all_reduce #1",
             "the device of rank 3 did not end all_reduce #1 within 200 ms");
}

TEST_F(NcclOverNodes, AnAbortEndsOperationsOnTheDevicesOfAllNodes) {
  make();
  fake_nccl().hold(0xf);
  std::barrier together(4);
  const auto errors = on_all([&](Communicator& c) {
    std::vector<float> x(10);
    Work work = c.all_reduce(x);
    together.arrive_and_wait();
    if (c.rank() == 3) c.abort("enough");
    work.wait();
  });
  expect_all(errors, "cancelled: all_reduce #1", "rank 3 ended the group: enough");
}

TEST_F(NcclOverNodes, AnErrorInASplitOfANodeEndsTheOtherNode) {
  make();
  constexpr int kRemoteError = 6;
  std::barrier together(4);
  const auto errors = on_all([&](Communicator& c) {
    const auto half = c.split(c.rank() / 2, 0);
    together.arrive_and_wait();
    if (c.rank() == 3) fake_nccl().fail(1, kRemoteError);  // rank 1 of the split
    if (c.rank() < 2) return c.barrier();
    add_on_device(*half);
  });
  expect_all(errors, "cancelled: ", "NCCL on rank 1 of a split (3 of the whole): ");
}

TEST_F(NcclOverNodes, ALinkThatEndsIsADeathAlsoWhileDevicesWork) {
  const auto links = std::make_shared<PlainLinks>();
  group = over_fake_nccl(
      nodes_group_over([&](int rank) { return links->source(rank); }, two_a_node(4)));
  fake_nccl().hold(0xf);
  std::barrier together(4);
  const auto errors = on_all([&](Communicator& c) {
    std::vector<float> x(10);
    Work work = c.all_reduce(x);
    together.arrive_and_wait();
    if (c.rank() == 0) links->cut();
    work.wait();
  });
  expect_all(errors, "worker_died: all_reduce #1", " died: its stream ended");
}

}  // namespace
}  // namespace troupe::collective
