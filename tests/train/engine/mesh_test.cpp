// Tests all three axes at once: dp, tp and pp, with ZeRO-1.
#include "tests/actors/children.hpp"
#include "tests/train/engine/divided_layers.hpp"
#include "tests/train/engine/ranks.hpp"
#include "troupe/train/engine/check_layouts.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <new>

namespace troupe::train::testing {
namespace {

Experiment on_mesh_of(const Layout& layout) {
  Experiment e{.layout = layout, .ignored = 0.3};
  e.shape.layers = 4;
  e.shape.dropout = 0.1f;
  return e;
}

constexpr int kMeshMicros = 2;
Layout cube(int zero = 0, bool sequence = false) {
  return {.dp = 2, .tp = 2, .pp = 2, .zero = zero, .micro = kMeshMicros, .sequence = sequence};
}

double farthest(const Record& a, const Record& b) {
  double difference = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    difference = std::max({difference, std::abs(a.losses[i] / b.losses[i] - 1),
                           std::abs(a.norms[i] / b.norms[i] - 1)});
  return difference;
}

class Meshes : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::use_blas(kernels::Blas::builtin)); }
};

TEST_F(Meshes, OfEightRanksAreCloseToOneRankAndTheSameOnAllRanks) {
  Layout alone;
  alone.micro = kMeshMicros;
  const Record plain = run(on_mesh_of(alone)).front();
  for (const bool sequence : {false, true})
    for (const int zero : {0, 1}) {
      const std::vector<Record> ranks = run(on_mesh_of(cube(zero, sequence)));
      EXPECT_LT(farthest(ranks.front(), plain), 1e-5) << "zero " << zero;
      for (const Record& record : ranks) EXPECT_EQ(record, ranks.front());
    }
}

// The norm is summed in one order for every pp, so stages change no bit, also beside tp and zero.
TEST_F(Meshes, StagesAndZero1GiveTheBitsOfTheSameTensorParallelRun) {
  for (const bool sequence : {false, true}) {
    Layout flat = cube(0, sequence);
    flat.pp = 1;
    const Record plain = run(on_mesh_of(flat)).front();
    for (const double norm : plain.norms) EXPECT_GT(norm, 0.25) << "the clip is active";
    for (const int zero : {0, 1})
      for (const Record& record : run(on_mesh_of(cube(zero, sequence)))) EXPECT_EQ(record, plain);
  }
}

/// Restores `from`, or makes a step without it, and takes a snapshot. Expects the same snapshot
/// on all ranks.
Snapshot through(const Layout& layout, const Snapshot* from, std::uint64_t& hash) {
  std::vector<Snapshot> all(static_cast<std::size_t>(layout.ranks()));
  std::vector<std::uint64_t> hashes(all.size());
  const Experiment e = on_mesh_of(layout);
  on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
    Engine engine(gpt(e.shape), layout, context.mesh, context.device, e.optimizer);
    engine.initialize(1);
    if (from != nullptr) engine.restore(*from);
    std::vector<Rows> parts =
        share_of(e.shape, 0, 8, context.mesh.dp_rank, layout.dp, layout.micro);
    if (from == nullptr) engine.step(micros_of(parts));
    const auto rank = static_cast<std::size_t>(context.mesh.rank());
    all[rank] = engine.snapshot();
    hashes[rank] = engine.weights_hash();
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    EXPECT_EQ(hash_of(all[rank]), hash_of(all.front())) << "rank " << rank;
    EXPECT_EQ(hashes[rank], hashes.front()) << "rank " << rank;
  }
  hash = hashes.front();
  return std::move(all.front());
}

TEST_F(Meshes, SnapshotsGoThroughEveryLayoutAndBackByteByByte) {
  std::uint64_t start_hash = 0, hash = 0;
  const Snapshot start = through({.dp = 4}, nullptr, start_hash);
  EXPECT_EQ(start.step, 1);
  Layout interleaved{.dp = 2, .pp = 2, .micro = 2, .schedule = "interleaved:2"};
  for (const Layout& layout :
       {cube(), cube(1, true), Layout{.tp = 2, .pp = 2, .micro = 2}, Layout{.pp = 4, .micro = 4},
        interleaved, Layout{.dp = 4, .tp = 2, .zero = 3}, Layout{}}) {
    const Snapshot there = through(layout, &start, hash);
    EXPECT_EQ(difference(there.tensors, start.tensors), "");
    EXPECT_EQ(hash_of(there), hash_of(start));
    EXPECT_EQ(hash, start_hash);
    EXPECT_EQ(hash_of(through({.dp = 4}, &there, hash)), hash_of(start));
  }
}

TEST_F(Meshes, EightProcessesGiveTheBitsOfEightThreads) {
  const Experiment e = on_mesh_of(cube(1));
  void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* hashes = new (shared) std::uint64_t[8]{};
  const Fd memory = collective::create_shm_group({.size = 8});
  std::vector<collective::Child> children;
  for (int rank = 0; rank < 8; ++rank)
    children.push_back(collective::start_child([&, rank] {
      RankContext context{
          collective::make_mesh(collective::join_shm_group(memory, rank, 1), mesh_of(e.layout)),
          kernels::cpu_device()};
      hashes[rank] = run_on(context, e).moments;
      return 0;
    }));
  for (collective::Child& child : children) EXPECT_EQ(child.wait(), 0);
  const Record threads = run(e).front();
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(hashes[rank], threads.moments) << "rank " << rank;
  ::munmap(shared, 4096);
}

LayoutCheckOptions words(std::int64_t vocabulary) {
  return {.input = {DType::i32, {8, 16}}, .ids = vocabulary, .classes = vocabulary};
}

// The vocabulary, heads and rows divide evenly or not, with a tied head and dropout.
TEST_F(Meshes, CheckLayoutsPassesGptInEveryLayoutOfEightRanks) {
  GptShape shape;
  shape.layers = 4;
  shape.heads = 4;
  shape.dropout = 0.1f;
  LayoutCheckOptions options = words(shape.vocabulary);
  options.ranks = {2, 8};
  const LayoutReport report = check_layouts([&] { return gpt(shape); }, options);
  int ran = 0, cubes = 0;
  for (const LayoutDifference& each : report.layouts) {
    ran += each.refused.empty();
    cubes += each.refused.empty() && each.layout.dp == 2 && each.layout.tp == 2;
  }
  EXPECT_GE(cubes, 4) << report.text();
  EXPECT_GE(ran, 24) << report.text();
}

TEST_F(Meshes, CheckLayoutsFindsAFaultBesideStages) {
  const Spec rows{DType::f32, {8, kDividedChannels}};
  LayoutCheckOptions options{.input = rows, .targets = rows};
  options.layouts = {{.tp = 2, .pp = 3, .micro = 2}};
  EXPECT_NO_THROW(check_layouts([] { return divided_model(); }, options));
  EXPECT_THROW(check_layouts([] { return divided_model(Fault::no_sum_backward); }, options),
               InvalidArgument);
}

}  // namespace
}  // namespace troupe::train::testing
