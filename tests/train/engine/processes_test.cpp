// The same bits when ranks are processes over shared memory.
#include "tests/actors/children.hpp"
#include "tests/train/engine/ranks.hpp"

#include <sys/mman.h>

#include <new>

namespace troupe::train::testing {
namespace {

TEST(Processes, GiveTheBitsOfThreads) {
  Experiment e;
  e.layout = {.dp = 2, .zero = 3, .micro = 2};
  void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* hashes = new (shared) std::uint64_t[2]{};
  const Fd memory = collective::create_shm_group({.size = 2});
  std::vector<collective::Child> children;
  for (int rank = 0; rank < 2; ++rank)
    children.push_back(collective::start_child([&, rank] {
      RankContext context{
          collective::make_mesh(collective::join_shm_group(memory, rank, 1), {.dp = 2}),
          kernels::cpu_device()};
      hashes[rank] = run_on(context, e).moments;
      return 0;
    }));
  for (collective::Child& child : children) EXPECT_EQ(child.wait(), 0);
  const std::vector<Record> threads = run(e);
  EXPECT_EQ(hashes[0], threads[0].moments);
  EXPECT_EQ(hashes[1], threads[1].moments);
  ::munmap(shared, 4096);
}

}  // namespace
}  // namespace troupe::train::testing
