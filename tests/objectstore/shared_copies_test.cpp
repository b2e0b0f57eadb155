// Tests copies that outlive their node. Another node reads them unchanged or not at all. Files of
// a dead node are soon removed. A folder that is full or damaged gives a typed error.
#include "troupe/objectstore/shared_copies.hpp"

#include "tests/eventually.hpp"
#include "tests/objectstore/pattern.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>

namespace troupe::objectstore::shared_copies_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

const ClusterId kCluster{1, 2};
const NodeId kA{0xa, 1}, kB{0xb, 1};
const ObjectId kX{7, 1}, kY{7, 2};

struct SharedCopiesTest : testing::Test {
  SharedCopiesTest() {
    std::string name = (fs::temp_directory_path() / "troupe-shared-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path = fs::canonical(name);
  }
  ~SharedCopiesTest() override {
    fs::permissions(path, fs::perms::owner_all);
    fs::remove_all(path);
  }
  SharedOptions options(NodeId node, ClusterId cluster = kCluster) const {
    SharedOptions o;
    o.folders = {path.string()};
    o.cluster = cluster;
    o.node = node;
    return o;
  }
  std::unique_ptr<SharedCopies> open(NodeId node, ClusterId cluster = kCluster) const {
    return SharedCopies::open(options(node, cluster)).value();
  }
  fs::path file(NodeId node, ObjectId object, ClusterId cluster = kCluster) const {
    return path / ("troupe-" + cluster.str()) / node.str() / object.str();
  }
  bool empty() const { return fs::is_empty(path); }
  fs::path path;
};

CopyDone wait(SharedCopies& copies, Time now = {}) {
  const Time until = steady_now() + 20s;
  while (steady_now() < until) {
    pollfd set{copies.fd(), POLLIN, 0};
    poll(&set, 1, 100);
    std::vector<CopyDone> done = copies.take_done(now);
    EXPECT_LE(done.size(), 1u);
    if (!done.empty()) return std::move(done.front());
  }
  ADD_FAILURE() << "no end of what was asked";
  return {};
}

void write(SharedCopies& copies, ObjectId object, const Blob& note, const Blob& bytes) {
  ASSERT_TRUE(copies.write(object, note, bytes, {}).ok());
  const CopyDone done = wait(copies);
  EXPECT_FALSE(done.error) << done.error->what();
  EXPECT_TRUE(done.object == object && done.kind == CopyDone::Kind::wrote);
}

Result<Blob> read(SharedCopies& copies, NodeId node, ObjectId object, std::size_t size) {
  Blob bytes(size);
  copies.read(node, object, bytes);
  const CopyDone done = wait(copies);
  if (done.error) return *done.error;
  return bytes;
}

TEST_F(SharedCopiesTest, AnotherNodeReadsWhatADeadOneWrote) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer starts no thread after a fork";
#endif
  const Blob note = pattern(100, 1), bytes = pattern(300'000, 2);
  const pid_t child = fork();
  if (child == 0) {  // a node that is killed once its copies are written
    const auto a = open(kA);
    write(*a, kX, note, bytes);
    write(*a, kY, {}, {});
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const auto b = open(kB);
  b->look(kA, kX);
  const CopyDone seen = wait(*b);
  ASSERT_FALSE(seen.error) << seen.error->what();
  EXPECT_EQ(seen.note, note);
  EXPECT_EQ(seen.size, bytes.size());
  EXPECT_EQ(read(*b, kA, kX, bytes.size()).value(), bytes);
  EXPECT_TRUE(read(*b, kA, kY, 0).value().empty());
  EXPECT_EQ(read(*b, kA, kX, 10).error().code(), Code::object_lost) << "of another size";
  EXPECT_EQ(read(*b, kB, kX, 10).error().code(), Code::object_lost) << "it has none";
}

TEST_F(SharedCopiesTest, ADroppedCopyIsGone) {
  const auto a = open(kA), b = open(kB);
  const Blob bytes = pattern(5000, 3);
  write(*a, kX, {}, bytes);
  EXPECT_TRUE(fs::exists(file(kA, kX)));
  EXPECT_EQ(a->stats().copies, 1u);
  a->drop(kX);
  a->drop(kX);
  EXPECT_EQ(a->stats().copies, 0u);
  EXPECT_EQ(a->stats().bytes, 0u);
  ASSERT_TRUE(a->write(kX, {}, bytes, {}).ok());
  a->drop(kX);  // while it is being written
  EXPECT_FALSE(wait(*a).error);
  EXPECT_TRUE(eventually([&] { return fs::is_empty(file(kA, kX).parent_path()); }));
  EXPECT_EQ(read(*b, kA, kX, bytes.size()).error().code(), Code::object_lost);
}

TEST_F(SharedCopiesTest, DamageIsFoundWhereverItIs) {
  const auto a = open(kA), b = open(kB);
  const Blob note = pattern(64, 1), bytes = pattern(9000, 4);
  write(*a, kX, note, bytes);
  write(*a, kY, note, pattern(9000, 5));
  const fs::path at = file(kA, kX);
  fs::copy_file(at, path / "good");
  const auto size = fs::file_size(at);
  for (const std::uint64_t offset :
       {0ul, 8ul, 20ul, 35ul, 50ul, 63ul, 100ul, 128ul, 5000ul, size - 1}) {
    fs::copy_file(path / "good", at, fs::copy_options::overwrite_existing);
    std::fstream(at).seekp(static_cast<std::streamoff>(offset)).put('#');
    b->look(kA, kX);
    const bool found = wait(*b).error.has_value();
    const auto got = read(*b, kA, kX, bytes.size());
    EXPECT_TRUE(found || !got || offset >= 64) << offset;
    if (offset >= 64 + note.size()) {
      ASSERT_FALSE(got) << offset;
      EXPECT_EQ(got.error().code(), Code::object_lost);
      EXPECT_NE(got.error().message().find("is bad"), std::string::npos) << got.error().message();
    }
    if (offset < 64 + note.size()) {
      EXPECT_TRUE(found) << offset;
    }
  }
  for (const std::uint64_t left : {size - 1, size / 2, std::uint64_t{70}, std::uint64_t{10}}) {
    fs::copy_file(path / "good", at, fs::copy_options::overwrite_existing);
    fs::resize_file(at, left);
    EXPECT_FALSE(read(*b, kA, kX, bytes.size())) << left;
  }
  fs::copy_file(file(kA, kY), at, fs::copy_options::overwrite_existing);
  const auto swapped = read(*b, kA, kX, bytes.size());
  ASSERT_FALSE(swapped);
  EXPECT_NE(swapped.error().message().find("another object"), std::string::npos);
  fs::remove(at);
  fs::create_symlink(file(kA, kY), at);
  EXPECT_FALSE(read(*b, kA, kX, bytes.size())) << "links are not followed";
  fs::remove(path / "good");
}

TEST_F(SharedCopiesTest, TheLastOfAClusterTakesEverythingAlong) {
  auto a = open(kA), b = open(kB);
  const Blob bytes = pattern(5000, 6);
  write(*a, kX, {}, bytes);
  a.reset();
  EXPECT_EQ(read(*b, kA, kX, bytes.size()).value(), bytes) << "its node ended in order";
  b.reset();
  EXPECT_TRUE(empty());
}

TEST_F(SharedCopiesTest, WhatAKilledClusterLeftIsSweptByTheNext) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer starts no thread after a fork";
#endif
  const ClusterId other{3, 4};
  const pid_t child = fork();
  if (child == 0) {
    const auto a = open(kA, other);
    write(*a, kX, {}, pattern(5000, 7));
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(fs::exists(file(kA, kX, other)));
  fs::create_directory(path / ("troupe-" + ClusterId{5, 6}.str() + ".gone"));
  fs::create_directory(path / "troupe-of-somebody-else");
  {
    const auto alive = open(kA, ClusterId{8, 9});
    write(*alive, kX, {}, pattern(5000, 8));
    const auto b = open(kB);
    EXPECT_TRUE(eventually([&] {
      return !fs::exists(file(kA, kX, other).parent_path().parent_path()) &&
             !fs::exists(path / ("troupe-" + ClusterId{5, 6}.str() + ".gone"));
    }));
    write(*b, kX, {}, {});  // also while it removes the files of dead nodes
    EXPECT_TRUE(fs::exists(file(kA, kX, ClusterId{8, 9}))) << "that cluster lives";
  }
  EXPECT_TRUE(fs::remove(path / "troupe-of-somebody-else"));
  EXPECT_TRUE(empty());
}

std::atomic<int> fails{0};
ssize_t full_disk(int fd, const void* data, std::size_t size, off_t offset) {
  if (fails.load() == 0) return ::pwrite(fd, data, size, offset);
  errno = fails.load();
  return -1;
}

TEST_F(SharedCopiesTest, AFolderThatTakesNothingIsATypedErrorAndLeavesNothing) {
  for (const int error : {ENOSPC, EIO, EROFS}) {
    SharedOptions o = options(kA);
    o.pwrite = full_disk;
    o.full = 0s;
    const auto a = SharedCopies::open(o).value();
    const Blob bytes = pattern(5000, 9);
    fails = error;
    ASSERT_TRUE(a->write(kX, {}, bytes, {}).ok());
    const CopyDone done = wait(*a);
    ASSERT_TRUE(done.error);
    EXPECT_EQ(done.error->code(), Code::out_of_disk);
    EXPECT_NE(done.error->message().find(path.string()), std::string::npos);
    EXPECT_TRUE(fs::is_empty(file(kA, kX).parent_path()));
    EXPECT_EQ(a->stats().bytes, 0u);
    fails = 0;
    if (error != ENOSPC) {
      EXPECT_EQ(a->stats().quarantined, 1u);
      continue;
    }
    write(*a, kX, {}, bytes);  // there is room again
    EXPECT_EQ(a->stats().errors, 0u) << "a full disk is none";
  }
}

ssize_t bad_disk(int fd, void* data, std::size_t size, off_t offset) {
  if (fails.load() == 0) return ::pread(fd, data, size, offset);
  errno = fails.load();
  return -1;
}

TEST_F(SharedCopiesTest, AFolderThatCannotBeReadMayHaveTheCopyAndIsWrittenTo) {
  SharedOptions o = options(kA);
  o.pread = bad_disk;
  const auto a = SharedCopies::open(o).value();
  const Blob bytes = pattern(5000, 11);
  write(*a, kX, {}, bytes);
  fails = EIO;
  for (int tries = 0; tries < 5; ++tries) {
    a->look(kA, kX);
    const CopyDone seen = wait(*a);
    ASSERT_TRUE(seen.error);
    EXPECT_EQ(seen.error->code(), Code::unavailable) << "it is not known whether there is one";
  }
  EXPECT_EQ(a->stats().errors, 5u);
  EXPECT_EQ(a->stats().quarantined, 0u);
  fails = 0;
  write(*a, kY, {}, bytes);
  EXPECT_EQ(read(*a, kA, kX, bytes.size()).value(), bytes);
  fs::permissions(file(kA, kX).parent_path(), fs::perms::none);
  if (geteuid() == 0) return;  // root may read everything
  a->look(kA, kX);
  EXPECT_EQ(wait(*a).error->code(), Code::unavailable) << "its node's folder cannot be opened";
}

TEST_F(SharedCopiesTest, WhetherThereIsRoomIsKnownBeforeAnythingIsRead) {
  SharedOptions o = options(kA);
  o.quota = 16_KiB;
  const auto a = SharedCopies::open(o).value();
  EXPECT_TRUE(a->has_room(8000, {}).ok());
  EXPECT_EQ(a->has_room(20'000, {}).error().code(), Code::out_of_disk);
  EXPECT_EQ(a->stats().bytes, 0u) << "nothing was taken";
}

TEST_F(SharedCopiesTest, AFullFolderIsFollowedByTheNext) {
  const fs::path second = path / "second";
  fs::create_directory(second);
  SharedOptions o = options(kA);
  o.folders.push_back(second.string());
  o.quota = 16_KiB;
  const auto a = SharedCopies::open(o).value();
  const Blob bytes = pattern(5000, 10);
  fs::remove(file(kA, kX).parent_path());  // nothing can be written there any more
  write(*a, kX, {}, bytes);
  EXPECT_TRUE(fs::exists(second / ("troupe-" + kCluster.str()) / kA.str() / kX.str()));
  EXPECT_EQ(read(*a, kA, kX, bytes.size()).value(), bytes);
  const auto more = a->write(kY, {}, bytes, {});
  EXPECT_TRUE(more.ok());
  wait(*a);
  EXPECT_EQ(a->write(ObjectId{7, 3}, {}, bytes, {}).error().code(), Code::out_of_disk) << "quota";
}

TEST_F(SharedCopiesTest, AFolderThatIsNoneOrCannotBeWrittenIsNamed) {
  SharedOptions o = options(kA);
  o.folders = {(path / "none").string()};
  const auto none = SharedCopies::open(o);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), Code::invalid_argument);
  EXPECT_NE(none.error().message().find((path / "none").string()), std::string::npos);
  if (geteuid() == 0) return;  // root may write everywhere
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(SharedCopies::open(options(kA)).error().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace troupe::objectstore::shared_copies_test
