// Tests gangs whose ranks reserve GPUs, on devices that the node only claims to have: which rank
// sees which device, and the errors where there is none. **No GPU takes part.**
#include "tests/eventually.hpp"
#include "troupe/kernels/device/cuda.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace fit_gpus {

namespace train = troupe::train;

/// Returns this process's device ids. Throws unless CUDA_VISIBLE_DEVICES lists the same.
std::vector<int> own_gpus(train::Worker& w) {
  const std::vector<int> ids = w.context().gpu_ids();
  std::string text;
  for (const int id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr || visible != text)
    throw std::runtime_error("gpu_ids() are '" + text + "' and CUDA_VISIBLE_DEVICES is '" +
                             (visible == nullptr ? "not set" : visible) + "'");
  return ids;
}

/// Throws unless each rank has `own` devices and each device is used by `uses` ranks.
void share(train::Worker& w, int devices, int own, int uses) {
  const std::vector<int> ids = own_gpus(w);
  if (static_cast<int>(ids.size()) != own)
    throw std::runtime_error("it has " + std::to_string(ids.size()) + " devices");
  for (int device = 0; device < devices; ++device) {
    std::int64_t mine = 0;
    for (const int id : ids) mine += id == device ? 1 : 0;
    const std::int64_t all = w.all_reduce_sum(mine);
    if (all != uses)
      throw std::runtime_error("device " + std::to_string(device) + " has " + std::to_string(all) +
                               " ranks");
  }
  w.next_step();
  w.report({.step = w.step()});
}

TEST(FitGpus, EachRankSeesItsOwnDevicesAndNoOthers) {
  troupe::Session session({.cpus = 2, .gpus = 4});
  troupe::Context ctx = session.context();
  EXPECT_EQ(train::fit<share>(ctx, {.workers = 4, .gpus_per_worker = 1}, 4, 1, 1).last().step, 1);
  EXPECT_EQ(train::fit<share>(ctx, {.workers = 2, .gpus_per_worker = 2}, 4, 2, 1).last().step, 1);
}

// Each node numbers its devices from 0, so each number has a rank on each node.
TEST(FitGpus, AGangTakesTheDevicesOfSeveralNodes) {
  troupe::Session session({.cpus = 2, .nodes = 2, .gpus = 2});
  troupe::Context ctx = session.context();
  ASSERT_TRUE(eventually([&] { return ctx.cluster().nodes.size() == 2; }));
  train::Gang gang;
  const train::FitOptions options{.workers = 4,
                                  .gpus_per_worker = 1,
                                  .on_gang = [&](const train::Gang& begun) { gang = begun; }};
  EXPECT_EQ(train::fit<share>(ctx, options, 2, 1, 2).last().step, 1);
  ASSERT_EQ(gang.ranks.size(), 4U);
  EXPECT_EQ(gang.ranks[0].node, gang.ranks[1].node);
  EXPECT_EQ(gang.ranks[2].node, gang.ranks[3].node);
  EXPECT_NE(gang.ranks[0].node, gang.ranks[2].node);
}

TEST(FitGpus, RanksWithFractionsShareADevice) {
  troupe::Session session({.cpus = 2, .gpus = 2});
  troupe::Context ctx = session.context();
  EXPECT_EQ(train::fit<share>(ctx, {.workers = 4, .gpus_per_worker = 0.5}, 2, 1, 2).last().step, 1);
}

/// Kills the first gang.
void dies_once(train::Worker& w) {
  static_cast<void>(own_gpus(w));
  w.all_reduce_sum(1.0);
  if (w.incarnation() == 0 && w.rank() == 1) ::raise(SIGKILL);
  share(w, 2, 1, 1);
}

TEST(FitGpus, AGangThatBeginsAgainHasDevicesAgain) {
  troupe::Session session({.cpus = 2, .gpus = 2});
  troupe::Context ctx = session.context();
  const auto fit =
      train::fit<dies_once>(ctx, {.workers = 2, .gpus_per_worker = 1, .max_restarts = 1});
  EXPECT_EQ(fit.restarts(), 1);
  EXPECT_EQ(fit.last().step, 1);
}

void asks_for_its_device(train::Worker& w) {
  static_cast<void>(w.device());
}
void trains_on_a_cpu(train::Worker& w) {
  if (!w.device().is_cpu() || w.mesh().dp->size() != 2) throw std::runtime_error("no CPU");
  w.next_step();
  w.report({.step = w.step()});
}

std::string infeasible(troupe::Context& ctx, const train::FitOptions& options) {
  try {
    train::fit<trains_on_a_cpu>(ctx, options);
  } catch (const troupe::Infeasible& e) {
    return e.message();
  }
  return "it went through";
}

TEST(FitGpus, WhereTheClusterHasNoneTheRunIsRefusedWithWhatToChange) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  EXPECT_EQ(infeasible(ctx, {.workers = 2, .gpus_per_worker = 1}),
            "train: gpus_per_worker is 1 and the cluster has no GPU: add a node with GPUs, or set "
            "gpus_per_worker to 0 or cpus_if_no_gpu to train on CPUs");
  const train::FitOptions anyway{.workers = 2, .gpus_per_worker = 1, .cpus_if_no_gpu = true};
  EXPECT_EQ(train::fit<trains_on_a_cpu>(ctx, anyway).last().step, 1);
}

TEST(FitGpus, WhereNoNodeHasEnoughTheRunIsRefused) {
  troupe::Session session({.cpus = 2, .gpus = 1});
  troupe::Context ctx = session.context();
  const std::string why = infeasible(ctx, {.workers = 2, .gpus_per_worker = 1});
  EXPECT_EQ(why,
            "train: a gang of 2 needs 2 GPU, no node has more than 1: use fewer workers, reserve "
            "less for each of them, or add a larger node");
  EXPECT_THROW(train::fit<share>(ctx, {.gpus_per_worker = 1.5}, 1, 1, 1), troupe::InvalidArgument);
}

// The node claims to have a device, and CUDA finds none.
TEST(FitGpus, AReservedDeviceThatCudaDoesNotFindEndsTheRun) {
  if (troupe::kernels::cuda_table() != nullptr) GTEST_SKIP() << "there is a device";
  troupe::Session session({.cpus = 2, .gpus = 1});
  troupe::Context ctx = session.context();
  try {
    train::fit<asks_for_its_device>(ctx, {.gpus_per_worker = 1, .max_restarts = 3});
    FAIL() << "there is no device";
  } catch (const troupe::TaskFailed& e) {
    EXPECT_NE(e.message().find("a GPU is reserved for rank 0, and there is no CUDA device: "),
              std::string::npos)
        << e.message();
    EXPECT_NE(e.message().find("set gpus_per_worker to 0"), std::string::npos) << e.message();
  }
}

}  // namespace fit_gpus
