// Tests FolderCopies on two nodes that share a folder: FOLDER-1 to FOLDER-3, and that a lost node's
// values and bytes are read from its copies.
#include "troupe/runtime/agent/folder_copies.hpp"

#include "tests/runtime/agent/quiet_tables.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <gtest/gtest.h>

#include <poll.h>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace troupe::agent::folder_copies_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
constexpr NodeId kA{0, 1}, kB{0, 2};
constexpr ProcessIndex kProcess = 1;
constexpr ObjectId kObject{7, 1}, kMissing{7, 2};

objectstore::HostOptions small_store() {
  objectstore::HostOptions options;
  options.arena = Bytes{4 << 20};
  options.extent = Bytes{1 << 20};
  options.layout = {8, 256, 64};
  return options;
}

struct OneNode : ReferenceTable::Out, FolderCopies::Store {
  OneNode(NodeId node, const fs::path& folder) : owners(node, references, remote) {
    objectstore::SharedOptions options;
    options.folders = {folder.string()};
    options.cluster = ClusterId{1, 2};
    options.node = node;
    copies.open(std::move(options));
  }
  // ReferenceTable::Out
  void ready(ProcessIndex, ObjectId, const wire::Value& value, BlobView bytes) override {
    answers.push_back(value.kind);
    payload.assign(bytes.begin(), bytes.end());
  }
  void free(const wire::Location&) override {}
  void unreferenced(ActorId) override {}
  void wants_copy(ObjectId object) override { copies.wants(object, now); }
  void copy_over(ObjectId object) override { copies.over(object); }
  void peer_await(ProcessIndex owner, ObjectId object) override {
    if (owners.is_lost(owner)) copies.look_for(owner, object, now);
  }
  void pull(ProcessIndex owner, ObjectId object, std::uint64_t bytes) override {
    if (owners.is_lost(owner)) copies.want(owner, object, bytes, now);
  }
  // FolderCopies::Store
  std::optional<objectstore::Location> where(const objectstore::Location& name) override {
    return name;
  }
  void bring_back(ObjectId, const objectstore::Location&, Time) override {}
  bool need_room(ObjectId, std::uint64_t, Time) override { return false; }
  void may_spill(const wire::Location&) override {}

  /// Waits for a result of the disk's thread, and takes it.
  void take_result() {
    pollfd entry{copies.fd(), POLLIN, 0};
    ASSERT_GT(wait_for({&entry, 1}, 20s), 0);
    copies.note_ready(true);
    copies.serve(now);
  }
  /// The process holds the object of a node that is lost.
  void hold_lost(NodeId owner, ObjectId object) {
    owners.take_in(owner, {object, owner});
    references.hold(object, kProcess, +1);
    ErrorInfo why;
    why.message = "it died";
    owners.node_lost(owner, why);
    references.await(object, kProcess, true);
  }

  const std::string name = "node";
  Time now{100s};
  std::unique_ptr<objectstore::Host> host = objectstore::Host::create(small_store()).value();
  QuietRemote quiet_remote;
  ProcessIndex next = 10;
  ReferenceTable references{*this};
  RemoteTable remote{quiet_remote, [this] { return next++; }};
  Owners owners;
  FolderCopies copies{{name, *host, references, owners, *this}};
  std::vector<wire::Value::Kind> answers;
  Blob payload;
};

struct FolderCopiesTest : testing::Test {
  FolderCopiesTest() {
    std::string name = (fs::temp_directory_path() / "troupe-copies-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = fs::canonical(name);
    a = std::make_unique<OneNode>(kA, folder);
    b = std::make_unique<OneNode>(kB, folder);
  }
  ~FolderCopiesTest() override {
    a.reset();
    b.reset();
    fs::remove_all(folder);
  }
  /// Node A writes a copy, since node B holds its object.
  void write(const wire::Value& value, BlobView bytes, ObjectId object = kObject) {
    const std::uint64_t before = a->copies.stats().copies;
    a->references.promote(kProcess, object, value, bytes);
    a->references.hold(object, a->owners.index_of(kB), +1);
    a->now = a->copies.next_deadline();
    a->copies.serve(a->now);
    a->take_result();
    EXPECT_EQ(a->copies.stats().copies, before + 1);
  }
  /// The same for an object in memory.
  void write_large(std::uint64_t bytes, ObjectId object = kObject) {
    auto memory = a->host->create_local(bytes, true);
    ASSERT_TRUE(memory.ok());
    const objectstore::Location at = a->host->local().seal(*std::move(memory), 0, bytes);
    ASSERT_TRUE(a->host->adopt(0, at).ok());
    wire::Value value;
    value.kind = wire::Value::Kind::shared;
    value.location = wire::wire_location(at);
    write(value, {}, object);
  }
  std::uint64_t used_at_b() { return b->host->local().stats().used; }

  fs::path folder;
  std::unique_ptr<OneNode> a, b;
};

TEST_F(FolderCopiesTest, SmallValueOfALostNodeComesFromItsCopy) {
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  value.payload_size = 3;
  const Blob bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  write(value, bytes);
  b->hold_lost(kA, kObject);
  b->take_result();
  ASSERT_EQ(b->answers, std::vector{wire::Value::Kind::inline_bytes});
  EXPECT_EQ(b->payload, bytes);
}

TEST_F(FolderCopiesTest, BytesOfALostNodeAreReadIntoMemory) {
  write_large(1000);
  b->hold_lost(kA, kObject);
  b->take_result();
  EXPECT_TRUE(b->copies.is_reading(kObject));
  b->copies.serve(b->now);
  b->take_result();
  EXPECT_FALSE(b->copies.is_reading(kObject));
  ASSERT_EQ(b->answers, std::vector{wire::Value::Kind::shared});
}

TEST_F(FolderCopiesTest, MemoryOfAReadThatIsGivenUpStaysUntilTheDiskHasFinished) {
  write_large(1000);
  b->hold_lost(kA, kObject);
  b->take_result();
  b->copies.serve(b->now);
  const std::uint64_t reading = used_at_b();
  EXPECT_GE(reading, 1000u);
  b->now += 30s;
  b->copies.serve(b->now);
  EXPECT_EQ(used_at_b(), reading) << "its wait has ended, and the disk may still write";
  EXPECT_TRUE(b->copies.is_reading(kObject));
  b->take_result();
  EXPECT_LT(used_at_b(), reading);
  EXPECT_FALSE(b->copies.is_reading(kObject));
}

TEST_F(FolderCopiesTest, ReadsUnderWayHaveAQuarterOfTheArena) {
  constexpr ObjectId kSecond{7, 3};
  constexpr std::uint64_t kBytes = 600 << 10;  // two of them exceed a quarter of 4 MiB
  write_large(kBytes);
  write_large(kBytes, kSecond);
  b->hold_lost(kA, kObject);
  b->take_result();
  b->copies.want(b->owners.index_of_owner(kA), kSecond, kBytes, b->now);
  b->copies.serve(b->now);
  EXPECT_TRUE(b->copies.is_reading(kObject));
  EXPECT_TRUE(b->copies.is_reading(kSecond));
  EXPECT_LT(used_at_b(), 2 * kBytes) << "the second one waits";
  EXPECT_NE(b->copies.next_deadline(), Time{});
  b->take_result();
  EXPECT_FALSE(b->copies.is_reading(kObject));
  EXPECT_TRUE(b->copies.is_reading(kSecond));
  EXPECT_GE(used_at_b(), 2 * kBytes);
  b->take_result();
  EXPECT_FALSE(b->copies.is_reading(kSecond));
}

TEST_F(FolderCopiesTest, LookForAMissingCopyEndsInOneError) {
  b->hold_lost(kA, kMissing);
  b->take_result();
  EXPECT_EQ(b->answers, std::vector{wire::Value::Kind::error});
  b->now += 60s;
  b->copies.serve(b->now);
  EXPECT_EQ(b->answers.size(), 1u);
}

TEST_F(FolderCopiesTest, LookEndsInAnErrorWhenTheFolderDoesNotAnswer) {
  b->hold_lost(kA, kMissing);
  EXPECT_EQ(b->copies.next_deadline(), b->now + 30s);
  b->now += 30s;
  b->copies.serve(b->now);
  EXPECT_EQ(b->answers, std::vector{wire::Value::Kind::error});
  b->take_result();  // it comes late
  EXPECT_EQ(b->answers.size(), 1u);
}

TEST_F(FolderCopiesTest, CopyIsDroppedWithItsObject) {
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  write(value, {});
  a->references.hold(kObject, kProcess, -1);
  a->references.hold(kObject, a->owners.index_of(kB), -1);
  for (int i = 0; i < 10; ++i) a->references.settle();
  EXPECT_EQ(a->copies.stats().copies, 0u);
}

}  // namespace
}  // namespace troupe::agent::folder_copies_test
