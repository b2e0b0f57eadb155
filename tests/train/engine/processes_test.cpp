// Tests that ranks in processes over shared memory give the same bits as ranks in threads.
#include "tests/actors/children.hpp"
#include "tests/train/engine/ranks.hpp"

#include <sys/mman.h>

#include <new>

namespace troupe::train::testing {
namespace {

/// Runs every rank as a process. Their hashes of moments must be those of the same run on
/// threads.
void expect_bits_of_threads(const Layout& layout) {
  Experiment e;
  e.layout = layout;
  const int ranks = layout.ranks();
  void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* hashes = new (shared) std::uint64_t[8]{};
  const Fd memory = collective::create_shm_group({.size = ranks});
  std::vector<collective::Child> children;
  for (int rank = 0; rank < ranks; ++rank)
    children.push_back(collective::start_child([&, rank] {
      RankContext context{
          collective::make_mesh(collective::join_shm_group(memory, rank, 1), mesh_of(layout)),
          kernels::cpu_device()};
      hashes[rank] = run_on(context, e).moments;
      return 0;
    }));
  for (collective::Child& child : children) EXPECT_EQ(child.wait(), 0);
  const std::vector<Record> threads = run(e);
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(hashes[rank], threads[static_cast<std::size_t>(rank)].moments) << "rank " << rank;
  ::munmap(shared, 4096);
}

TEST(Processes, GiveTheBitsOfThreads) {
  expect_bits_of_threads({.dp = 2, .zero = 3, .micro = 2});
}

TEST(Processes, OfAWholeMeshGiveTheBitsOfThreads) {
  expect_bits_of_threads({.dp = 2, .tp = 2, .pp = 2, .zero = 1, .micro = 2, .sequence = true});
}

}  // namespace
}  // namespace troupe::train::testing
