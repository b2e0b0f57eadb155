// Tests pages of shared memory, by counts of page faults: memory that is written again is warm,
// and large pages are requested.
#include "tests/objectstore/node.hpp"

#include <sys/resource.h>
#include <filesystem>
#include <fstream>

namespace troupe::objectstore {
namespace {

long faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

HostOptions with_large_extents() {
  HostOptions options = Node::small();
  options.arena = Bytes{64 << 20};
  options.extent = Bytes{4 << 20};
  return options;
}

constexpr std::uint64_t kObject = 1 << 20, kPages = kObject / 4096;

TEST(Pages, MemoryThatIsUsedAgainFaultsNoMore) {
  Node node;
  Client& writer = node.join();
  const auto write_one = [&] {
    Allocation made = node.create(writer, kObject).value();
    std::memset(made.bytes().data(), 1, made.bytes().size());
    EXPECT_TRUE(writer.drop(writer.seal(std::move(made))).value());
  };
  write_one();
  const long before = faults();
  for (int i = 0; i < 50; ++i) write_one();
  EXPECT_LT(faults() - before, static_cast<long>(kPages))
      << "of " << 50 * kPages << " pages written";
  EXPECT_EQ(writer.stats().extents, 1u);
}

TEST(Pages, AFreedObjectsMemoryIsWarmForTheNext) {
  Node node;
  Client& writer = node.join();
  const std::string text(kObject / 2, 'x');
  const auto write_one = [&] {
    const Location at = node.put_shared(writer, text);
    node.host->free(at).value();
    node.pump();
  };
  write_one();
  const long before = faults();
  for (int i = 0; i < 50; ++i) write_one();
  EXPECT_LT(faults() - before, static_cast<long>(kPages));
}

TEST(Pages, LargeOnesAreAskedForWhereTheMachineHasThem) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))
    GTEST_SKIP() << "this kernel has none";
  Node node(with_large_extents());
  Client &writer = node.join(), &reader = node.join();
  const Location at = node.put_shared(writer, "x");
  EXPECT_EQ(node.read(reader, at), "x");
  int extents = 0, asked = 0;
  bool is_extent = false;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("troupe-extent") != std::string::npos) is_extent = true;
    if (line.rfind("VmFlags:", 0) != 0) continue;
    extents += is_extent ? 1 : 0;
    asked += is_extent && line.find(" hg") != std::string::npos ? 1 : 0;
    is_extent = false;
  }
  EXPECT_EQ(extents, 2) << "the writer's mapping and the reader's";
  EXPECT_EQ(asked, extents);
}

}  // namespace
}  // namespace troupe::objectstore
