// Tests the store in one process. A reader reads in place what a writer publishes. A free waits
// for views, and a slot's next life is never taken for the last one. Deaths lose no object that
// others can name, and misuse gives an error without damage.
#include "node.hpp"
#include "tests/runtime/base/fake_root.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <cerrno>
#include <cstdio>

namespace troupe::objectstore {
namespace {

TEST(Store, ReadsInPlaceWhatAnotherWrote) {
  Node node;
  Client& writer = node.join();
  Client& reader = node.join();
  const Location at = node.put_shared(writer, "hello");
  EXPECT_EQ(at.offset % 64, 0u);
  EXPECT_EQ(node.read(reader, at), "hello");
  EXPECT_EQ(node.read(writer, at), "hello");
  EXPECT_EQ(Node::text(node.host->open_local(at).value()), "hello");
  const Opened mine = node.open(writer, at), theirs = node.open(reader, at);
  EXPECT_NE(mine.pinned.bytes().data(), theirs.pinned.bytes().data()) << "two mappings of one page";
}

TEST(Store, EmptyAndShortenedObjects) {
  Node node;
  Client& writer = node.join();
  EXPECT_EQ(node.read(writer, node.put(writer, "")), "");
  Allocation made = node.create(writer, 1000).value();
  std::memcpy(made.bytes().data(), "abc", 3);
  const Location at = writer.seal(std::move(made), 7, 3);
  EXPECT_EQ(at.tag, 7u);
  EXPECT_EQ(node.read(writer, at), "abc");
}

TEST(Store, AbortedMemoryIsUsedAgain) {
  Node node;
  Client& writer = node.join();
  const std::byte* first = node.create(writer, 5000).value().bytes().data();
  Allocation second = node.create(writer, 5000).value();
  EXPECT_EQ(second.bytes().data(), first);
  EXPECT_EQ(writer.stats().objects, 1u);
}

TEST(Store, ObjectsLargerThanAnExtentGetTheirOwn) {
  Node node;
  Client& writer = node.join();
  Client& reader = node.join();
  const std::string large(3'000'001, 'x');
  const Location at = node.put_shared(writer, large);
  EXPECT_EQ(node.read(reader, at), large);
  node.host->free(at).value();
  node.pump();
  const Location again = node.put_shared(writer, large);
  EXPECT_EQ(again.extent, at.extent) << "a warm extent of the same size is used again";
}

TEST(Store, FreeWaitsForTheLastViewAndThenRecycles) {
  Node node;
  Client& writer = node.join();
  Client& reader = node.join();
  const Location at = node.put_shared(writer, "first");
  Opened view = node.open(reader, at);
  Pinned second = view.pinned.clone();
  EXPECT_EQ(node.host->free(at).value(), Freed::waits);
  EXPECT_EQ(reader.open(at).status, OpenStatus::moved) << "no new view after the free";
  node.pump();
  view.pinned = Pinned();
  node.pump();
  EXPECT_EQ(Node::text(second), "first");
  EXPECT_EQ(node.host->stats().waiting, 1u);
  second = Pinned();
  node.pump();
  EXPECT_EQ(node.host->stats().waiting, 0u);
  EXPECT_EQ(writer.stats().objects, 0u);
}

TEST(Store, TheNextLifeOfASlotIsNotTakenForTheLast) {
  Node node;
  Client& writer = node.join();
  Client& reader = node.join();
  const Location old = node.put_shared(writer, "old");
  EXPECT_EQ(node.read(reader, old), "old");
  EXPECT_EQ(node.host->free(old).value(), Freed::done);
  node.pump();
  const Location fresh = node.put_shared(writer, "new");
  EXPECT_EQ(fresh.slot, old.slot);
  EXPECT_GT(fresh.generation, old.generation);
  EXPECT_EQ(reader.open(old).status, OpenStatus::moved);
  EXPECT_EQ(node.read(reader, fresh), "new");
}

TEST(Store, AViewByTheAgentItselfIsSeenByAFree) {
  int woken = 0;
  HostOptions options = Node::small();
  options.on_local_unpin = [&] { ++woken; };
  Node node(options);
  Client& writer = node.join();
  const Location at = node.put_shared(writer, "x");
  {
    const Pinned view = node.host->open_local(at).value();
    EXPECT_EQ(node.host->free(at).value(), Freed::waits);
    EXPECT_EQ(woken, 0);
  }
  EXPECT_EQ(woken, 1);
  node.pump();
  EXPECT_EQ(node.host->stats().waiting, 0u);
  EXPECT_EQ(node.host->open_local(at).error().code(), Code::object_lost);
}

TEST(Store, TheAgentsOwnObjects) {
  Node node;
  Client& reader = node.join();
  Allocation made = node.host->create_local(3).value();
  std::memcpy(made.bytes().data(), "abc", 3);
  const Location at = node.host->local().seal(std::move(made));
  node.host->adopt(0, at).value();
  EXPECT_EQ(node.read(reader, at), "abc");
  EXPECT_EQ(node.host->free(at).value(), Freed::done);
  EXPECT_EQ(node.host->local().stats().objects, 0u);
}

TEST(Store, DropFreesWithoutTheAgent) {
  Node node;
  Client& writer = node.join();
  const Location at = node.put(writer, "private");
  EXPECT_TRUE(writer.drop(at).value());
  EXPECT_EQ(writer.open(at).status, OpenStatus::moved);
  EXPECT_FALSE(writer.drop(at).ok()) << "once";
  const Location held = node.put(writer, "held");
  {
    const Opened view = node.open(writer, held);
    EXPECT_FALSE(writer.drop(held).value());
    EXPECT_EQ(writer.open(held).status, OpenStatus::moved);
    EXPECT_EQ(Node::text(view.pinned), "held");
    EXPECT_EQ(writer.stats().objects, 1u);
  }
  EXPECT_EQ(writer.stats().objects, 0u);
}

TEST(Store, MisuseIsRefused) {
  Node node;
  Client& writer = node.join();
  Client& other = node.join();
  const Location at = node.put(writer, "x");
  EXPECT_FALSE(node.host->adopt(other.process(), at).ok()) << "not the sender's";
  EXPECT_FALSE(node.host->free(at).ok()) << "not adopted";
  for (Location lie : {at, at, at, at, at}) {
    static int n = 0;
    switch (n++) {
      case 0: lie.length = 1 << 20; break;
      case 1: lie.offset = ~std::uint64_t{63}; break;
      case 2: lie.generation += 1; break;
      case 3: lie.slot = 1u << 31; break;
      default: lie.extent.value += 1; break;
    }
    EXPECT_FALSE(node.host->adopt(writer.process(), lie).ok()) << n;
    EXPECT_NE(node.open(other, lie).status, OpenStatus::pinned) << n;
  }
  node.host->adopt(writer.process(), at).value();
  EXPECT_FALSE(node.host->adopt(writer.process(), at).ok()) << "twice";
  node.host->free(at).value();
  EXPECT_FALSE(node.host->free(at).ok()) << "double free";
  node.pump();
  EXPECT_FALSE(writer.recycle(at.slot, at.generation).ok()) << "double recycle";
  EXPECT_FALSE(node.host->grant(77, 1).ok());
  EXPECT_FALSE(node.host->confirm_extent(other.process(), at.extent).ok()) << "not its own";
  EXPECT_FALSE(node.host->release_extent(other.process(), at.extent).ok());
}

TEST(Store, AFullArenaSaysWhoHoldsItAndRecovers) {
  Node node;
  Client& writer = node.join();
  std::vector<Location> all;
  const std::string half(512 << 10, 'h');
  Result<Allocation> made = node.create(writer, half.size());
  for (; made; made = node.create(writer, half.size())) {
    all.push_back(writer.seal(*std::move(made)));
    node.host->adopt(writer.process(), all.back()).value();
  }
  EXPECT_EQ(all.size(), 32u);
  EXPECT_EQ(made.error().code(), Code::out_of_memory);
  EXPECT_NE(made.error().message().find("process 1 holds most"), std::string::npos)
      << made.error().message();
  const auto too_large = node.host->grant(1, ~std::uint64_t{0});
  ASSERT_FALSE(too_large.ok()) << "no overflow";
  EXPECT_NE(too_large.error().message().find("18446744073709551615 bytes in one object"),
            std::string::npos)
      << too_large.error().message();
  node.host->free(all.front()).value();
  node.pump();
  EXPECT_TRUE(node.create(writer, half.size()).ok());
}

TEST(Store, TooManyObjectsIsAnError) {
  Node node;
  Client& writer = node.join();
  for (std::uint32_t i = 0; i < kSmallLayout.slots; ++i) node.put(writer, "x");
  const auto made = node.create(writer, 1);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code(), Code::out_of_memory);
}

TEST(Store, TooManyProcessesIsAnError) {
  Node node;
  for (std::uint32_t i = 1; i < kSmallLayout.processes; ++i) node.join();
  const auto membership = node.host->register_process();
  ASSERT_FALSE(membership.ok());
  EXPECT_EQ(membership.error().code(), Code::overloaded);
}

TEST(Store, ADeadWritersAdoptedObjectsLiveOn) {
  Node node;
  Client& writer = node.join();
  Client& reader = node.join();
  const std::uint32_t process = writer.process();
  const Location kept = node.put_shared(writer, "kept");
  const Location own = node.put(writer, "nobody else knows me");
  node.create(writer, 100).value();
  node.kill(process);
  EXPECT_EQ(node.read(reader, kept), "kept");
  EXPECT_EQ(node.open(reader, own).status, OpenStatus::moved);
  EXPECT_EQ(node.host->stats().extents, 1u);
  EXPECT_EQ(node.host->free(kept).value(), Freed::done);
  node.pump();
  EXPECT_EQ(node.host->stats().extents, 0u);
  EXPECT_EQ(node.host->stats().committed, 0u);
  EXPECT_EQ(reader.stats().reader_extents, 0u) << "told to forget it";
  EXPECT_EQ(node.open(reader, kept).status, OpenStatus::moved);
}

TEST(Store, ADeadWritersLastObjectWaitsForItsReader) {
  Node node;
  Client& writer = node.join();
  Client& reader = node.join();
  const Location at = node.put(writer, "seen, not adopted");
  Opened view = node.open(reader, at);
  node.kill(writer.process());
  EXPECT_EQ(Node::text(view.pinned), "seen, not adopted");
  EXPECT_EQ(node.host->stats().extents, 1u);
  view.pinned = Pinned();
  node.pump();
  EXPECT_EQ(node.host->stats().extents, 0u);
}

TEST(Store, WhoDiesBeforeItHasAttachedLeavesNothing) {
  Node node;
  const std::size_t processes = node.host->stats().processes.size();
  for (std::uint32_t i = 0; i < 2 * kSmallLayout.processes; ++i) {
    auto membership = node.host->register_process();
    ASSERT_TRUE(membership.ok()) << "after " << i << " of them";
    ASSERT_TRUE(node.host->grant(membership->process, 1 << 10).ok());
    EXPECT_EQ(node.host->stats().processes.size(), processes + 1);
    node.host->process_died(membership->process);
  }
  EXPECT_EQ(node.host->stats().processes.size(), processes);
  EXPECT_EQ(node.host->stats().extents, 0u);
}

TEST(Store, ADeadReadersPinsCountNoMore) {
  Node node;
  Client& writer = node.join();
  const std::uint32_t reader = node.join().process();
  const Location at = node.put_shared(writer, "x");
  static Opened* view = nullptr;  // never destroyed
  view = new Opened(node.open(*node.clients[reader], at));
  ASSERT_EQ(view->status, OpenStatus::pinned);
  EXPECT_EQ(node.host->free(at).value(), Freed::waits);
  node.kill(reader);
  EXPECT_EQ(node.host->stats().waiting, 0u);
  EXPECT_EQ(writer.stats().objects, 0u);
}

TEST(Store, AProcessIndexIsUsedAgainWithoutConfusion) {
  Node node;
  Client& reader = node.join();
  std::vector<Location> old;
  for (int life = 0; life < 20; ++life) {
    Client& writer = node.join();
    const Location at = node.put_shared(writer, "life " + std::to_string(life));
    EXPECT_EQ(node.read(reader, at), "life " + std::to_string(life));
    for (const Location& other : old)
      EXPECT_EQ(node.open(reader, other).status, OpenStatus::moved) << life;
    node.kill(writer.process());
    node.host->free(at).value();
    node.pump();
    old.push_back(at);
  }
  EXPECT_LE(reader.stats().reader_extents, 1u);
  EXPECT_EQ(node.host->stats().committed, 0u);
}

TEST(Store, AnExtentIndexIsUsedAgainAtAnySize) {
  HostOptions options = Node::small();
  options.layout.extents = 1;
  Node node(options);
  Client& reader = node.join();
  for (const std::size_t size : {100, 3'000'000, 100, 2'000'000, 100}) {
    Client& writer = node.join();
    const std::string text(size, static_cast<char>('a' + size % 26));
    const Location at = node.put_shared(writer, text);
    EXPECT_FALSE(node.host->grant(writer.process(), 1).ok()) << "no index is left";
    EXPECT_EQ(node.read(reader, at), text);
    EXPECT_EQ(reader.stats().reader_bytes, node.host->stats().committed);
    node.kill(writer.process());
    EXPECT_EQ(node.read(reader, at), text);
    node.host->free(at).value();
    node.pump();
    EXPECT_EQ(reader.stats().reader_bytes, 0u);
  }
}

TEST(Store, TrimGivesEmptyExtentsBack) {
  Node node;
  Client& writer = node.join();
  Client& reader = node.join();
  const Location a = node.put_shared(writer, std::string(900'000, 'a'));
  const Location b = node.put_shared(writer, std::string(900'000, 'b'));
  node.read(reader, a);
  EXPECT_FALSE(node.host->release_extent(writer.process(), a.extent).ok()) << "it holds an object";
  node.host->free(a).value();
  node.pump();
  const std::vector<ExtentId> gone = writer.trim(Bytes{0});
  ASSERT_EQ(gone, std::vector<ExtentId>{a.extent});
  node.host->release_extent(writer.process(), gone[0]).value();
  node.pump();
  EXPECT_EQ(reader.stats().reader_extents, 0u);
  EXPECT_EQ(node.host->stats().extents, 1u);
  EXPECT_EQ(node.read(reader, b), std::string(900'000, 'b'));
}

TEST(Store, PrefaultStaysWithinItsBudgetAndIsGranted) {
  HostOptions options = Node::small();
  options.ahead = Bytes{2 << 20};
  Node node(options);
  while (node.host->prefault(Bytes{256 << 10})) {
  }
  EXPECT_EQ(node.host->stats().prefaulted, 2u << 20);
  Client& writer = node.join();
  node.put(writer, "x");
  EXPECT_EQ(node.host->stats().prefaulted, 1u << 20);
  EXPECT_TRUE(node.host->grant(writer.process(), 15 << 20).ok()) << "the ready one makes room";
}

// -- sealed memory
// --------------------------------------------------------------------------------

void expect_nobody_can_write(int fd, std::uint64_t bytes) {
  const std::string again = "/proc/self/fd/" + std::to_string(fd);
  const Fd reopened(open(again.c_str(), O_RDWR | O_CLOEXEC));
  for (const int at : {fd, reopened.get()}) {
    if (at < 0) continue;
    EXPECT_EQ(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, at, 0), MAP_FAILED);
    EXPECT_EQ(errno, EPERM);
    void* readable = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, at, 0);
    ASSERT_NE(readable, MAP_FAILED);
    EXPECT_NE(mprotect(readable, bytes, PROT_READ | PROT_WRITE), 0);
    munmap(readable, bytes);
    EXPECT_LT(pwrite(at, "x", 1, 0), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(ftruncate(at, 0), 0);
    EXPECT_NE(ftruncate(at, static_cast<off_t>(bytes) * 2), 0);
    EXPECT_NE(fallocate(at, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    EXPECT_NE(fcntl(at, F_ADD_SEALS, F_SEAL_WRITE), 0);
  }
}

TEST(Store, NobodyButTheWriterCanWriteSealedMemory) {
  Node node;
  Client& writer = node.join();
  const Location at = node.put_shared(writer, "x");
  const ReaderExtent extent = node.host->extent_for_reader(at.extent).value();
  expect_nobody_can_write(extent.memory.get(), extent.bytes);
  const ReaderSegment segment = node.host->segment_for_reader(writer.process()).value();
  expect_nobody_can_write(segment.memory.get(), std::uint64_t{kSmallLayout.slots} * 64);
  const Membership membership = node.host->register_process().value();
  expect_nobody_can_write(membership.retirements.get(),
                          std::uint64_t{kSmallLayout.slots} * kSmallLayout.processes * 8);
}

TEST(Store, NoReaderGetsOrTakesUnsealedMemory) {
  Node node;
  Client& writer = node.join();
  Client& reader = node.join();
  ExtentGrant grant = node.host->grant(writer.process(), 1).value();
  const auto early = node.host->extent_for_reader(grant.id);
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code(), Code::unavailable);
  EXPECT_FALSE(
      reader.add_reader_extent(ReaderExtent{grant.id, grant.bytes, Fd(dup(grant.memory.get()))})
          .ok());
  const Membership membership = node.host->register_process().value();
  EXPECT_EQ(node.host->segment_for_reader(membership.process).error().code(), Code::unavailable);
}

TEST(Store, DescriptorsOfTheWrongKindOrSizeAreRefused) {
  Node node;
  Client& reader = node.join();
  const ExtentId id = ExtentId::make(9, 3);
  EXPECT_FALSE(reader.add_reader_extent(ReaderExtent{id, 4096, Fd(dup(0))}).ok());
  EXPECT_FALSE(reader.add_reader_extent(ReaderExtent{id, 4096, Fd()}).ok());
  EXPECT_FALSE(reader.add_extent(ExtentGrant{ExtentId{}, 4096, Fd()}).ok());
  EXPECT_FALSE(reader.add_segment(ReaderSegment{99, 1, Fd()}).ok());
  EXPECT_FALSE(Client::attach(Membership{}, {}).ok());
}

// -- the size of the arena ------------------------------------------------------------------------

class Cgroups : public FakeRoot {};

TEST_F(Cgroups, NoLimit) {
  EXPECT_EQ(cgroup_memory_limit(root).count, 0u);
  write("/proc/self/cgroup", "0::/a/b\n4:memory:/x");
  write("/sys/fs/cgroup/a/b/memory.max", "max");
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(cgroup_memory_limit(root).count, 0u);
}
TEST_F(Cgroups, TheLeastLimitOfAnyAncestorCounts) {
  write("/proc/self/cgroup", "0::/a/b");
  write("/sys/fs/cgroup/a/b/memory.max", "5000");
  write("/sys/fs/cgroup/a/memory.max", "4000");
  EXPECT_EQ(cgroup_memory_limit(root).count, 4000u);
}
TEST_F(Cgroups, VersionOneAndTheViewFromInsideAContainer) {
  write("/proc/self/cgroup", "7:cpu,memory:/docker/abc");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000");
  EXPECT_EQ(cgroup_memory_limit(root).count, 3000u);
}
TEST(Arena, DefaultIsWithinItsBounds) {
  EXPECT_GE(default_arena_bytes().count, 64u << 20);
  EXPECT_LE(default_arena_bytes().count, std::uint64_t{256} << 30);
}

}  // namespace
}  // namespace troupe::objectstore
