// Tests make_mesh: a world that is divided along three axes.
#include "troupe/actors/collective/mesh.hpp"

#include "troupe/actors/collective/local/local.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace troupe::collective {
namespace {

/// Returns the mesh of every rank of a world.
std::vector<Mesh> meshes(const MeshShape& shape) {
  auto world = local_group(shape.ranks(), {.slot = {4096}});
  std::vector<Mesh> all(world.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < world.size(); ++rank)
    threads.emplace_back([&, rank] { all[rank] = make_mesh(std::move(world[rank]), shape); });
  for (std::thread& thread : threads) thread.join();
  return all;
}

/// Returns, for each rank, the ranks of the world that its group has, as a sum of bits.
std::vector<int> members(std::vector<Mesh>& all, std::unique_ptr<Communicator> Mesh::* group) {
  std::vector<int> bits(all.size(), 0);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    threads.emplace_back([&, rank] {
      std::vector<std::int32_t> mask{1 << rank};
      if (!(all[rank].*group)) return;
      (all[rank].*group)->all_reduce(mask).wait();
      bits[rank] = mask[0];
    });
  for (std::thread& thread : threads) thread.join();
  return bits;
}

std::string refusal(std::unique_ptr<Communicator> world, const MeshShape& shape) {
  try {
    (void)make_mesh(std::move(world), shape);
  } catch (const InvalidArgument& e) {
    return e.message();
  }
  return "";
}

TEST(Mesh, EachAxisHasTheRanksThatDifferOnItAlone) {
  std::vector<Mesh> all = meshes({.dp = 2, .tp = 2, .pp = 2});
  EXPECT_EQ(members(all, &Mesh::tp), (std::vector{3, 3, 12, 12, 48, 48, 192, 192}));
  EXPECT_EQ(members(all, &Mesh::dp), (std::vector{5, 10, 5, 10, 80, 160, 80, 160}));
  EXPECT_EQ(members(all, &Mesh::pp), (std::vector{17, 34, 68, 136, 17, 34, 68, 136}));
  EXPECT_EQ(members(all, &Mesh::tied), (std::vector{17, 34, 68, 136, 17, 34, 68, 136}));
  EXPECT_EQ(members(all, &Mesh::world), std::vector<int>(8, 255));
  for (int rank = 0; rank < 8; ++rank) {
    const Mesh& mesh = all[static_cast<std::size_t>(rank)];
    EXPECT_EQ(mesh.rank(), rank);
    EXPECT_EQ(mesh.world->rank(), rank);
    EXPECT_EQ(mesh.tp->rank(), mesh.tp_rank);
    EXPECT_EQ(mesh.dp->rank(), mesh.dp_rank);
    EXPECT_EQ(mesh.pp->rank(), mesh.pp_rank);
  }
}

TEST(Mesh, OnlyTheEndsOfAPipelineAreTied) {
  std::vector<Mesh> all = meshes({.pp = 3});
  EXPECT_EQ(members(all, &Mesh::tied), (std::vector{5, 0, 5}));
  EXPECT_EQ(members(all, &Mesh::pp), (std::vector{7, 7, 7}));
  EXPECT_EQ(all[1].tied, nullptr);
}

TEST(Mesh, AGroupOfOneRankAloneIsNull) {
  std::vector<Mesh> all = meshes({.dp = 2});
  for (const Mesh& mesh : all) {
    EXPECT_NE(mesh.dp, nullptr);
    EXPECT_EQ(mesh.tp, nullptr);
    EXPECT_EQ(mesh.pp, nullptr);
    EXPECT_EQ(mesh.tied, nullptr);
  }
  EXPECT_EQ(meshes({})[0].world, nullptr);
  EXPECT_EQ(make_mesh(nullptr, {}).rank(), 0);
}

// On the calling thread the call itself would wait for the other rank.
TEST(Mesh, DataParallelOperationsRunBesideTheCaller) {
  std::vector<Mesh> all = meshes({.dp = 2});
  std::vector<float> a{1}, b{2};
  Work first = all[0].dp->all_reduce(a);
  Work second = all[1].dp->all_reduce(b);
  first.wait();
  second.wait();
  EXPECT_EQ(a[0], 3);
  EXPECT_EQ(b[0], 3);
}

TEST(Mesh, AnErrorInOneGroupEndsAllOfThemOnEveryRank) {
  std::vector<Mesh> all = meshes({.dp = 2, .tp = 2});
  for (const Mesh& mesh : all) EXPECT_FALSE(mesh.world->is_over() || mesh.dp->is_over());
  all[0].tp->abort("a test");
  for (const Mesh& mesh : all)
    EXPECT_TRUE(mesh.world->is_over() && mesh.dp->is_over() && mesh.tp->is_over());
}

TEST(Mesh, AShapeThatDoesNotDivideTheRanksIsRefusedBeforeAnySplit) {
  auto world = local_group(3, {.slot = {4096}});
  EXPECT_EQ(refusal(std::move(world[0]), {.dp = 2, .tp = 2}),
            "the mesh dp=2 tp=2 pp=1 does not divide 3 ranks: choose sizes whose product is 3");
  for (const MeshShape& shape :
       {MeshShape{.dp = 0}, MeshShape{.dp = -1, .tp = -1}, MeshShape{.dp = 65536, .tp = 65536}})
    EXPECT_NE(refusal(nullptr, shape), "");
}

}  // namespace
}  // namespace troupe::collective
