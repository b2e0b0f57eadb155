// Tests spilled objects: they are read back unchanged or not at all. Places never overlap and
// stay within the quota. Small objects share files and are removed one by one. A full or faulty
// disk gives a typed error, the checksum finds damage, and no file has a name on disk.
#include "troupe/objectstore/spill_files.hpp"

#include "tests/objectstore/pattern.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rapidcheck.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>

namespace troupe::objectstore::spill_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "troupe-spill-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path = fs::canonical(name);
  }
  ~Folder() { fs::remove_all(path); }
  bool empty() const { return fs::is_empty(path); }
  // Returns the unnamed files that this process has open in the folder.
  std::vector<std::string> open_files() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = fs::read_symlink(entry.path(), gone).string();
      if (target.rfind(path.string() + "/", 0) == 0) found.push_back(entry.path().string());
    }
    return found;
  }
  std::uint64_t bytes_on_disk() const {
    std::uint64_t sum = 0;
    for (const std::string& file : open_files()) {
      struct stat s{};
      if (stat(file.c_str(), &s) == 0) sum += static_cast<std::uint64_t>(s.st_blocks) * 512;
    }
    return sum;
  }
  fs::path path;
};

std::unique_ptr<SpillFiles> open(SpillOptions options) {
  return SpillFiles::open(std::move(options)).value();
}

// Waits for `count` ends; bounded.
std::vector<SpillDone> wait(SpillFiles& files, std::size_t count, Time now = {}) {
  std::vector<SpillDone> all;
  const Time until = steady_now() + 20s;
  while (all.size() < count && steady_now() < until) {
    pollfd set{files.fd(), POLLIN, 0};
    poll(&set, 1, 100);
    for (SpillDone& done : files.take_done(now)) all.push_back(std::move(done));
  }
  EXPECT_EQ(all.size(), count);
  return all;
}

SpillId write(SpillFiles& files, const Blob& bytes) {
  const SpillId id = files.write(bytes, {}).value();
  const auto done = wait(files, 1);
  EXPECT_TRUE(!done.empty() && !done[0].error && done[0].id == id);
  return id;
}

Result<Blob> read(SpillFiles& files, SpillId id) {
  Blob bytes(files.size_of(id));
  files.read(id, bytes);
  const auto done = wait(files, 1);
  if (done.empty()) return Error(Code::timed_out, "no end of the read");
  if (done[0].error) return *done[0].error;
  return bytes;
}

// -- the plan

TEST(SpillPlan, FusesSmallObjectsAndGivesLargeOnesAFile) {
  SpillPlan plan({.folders = 2, .quota = {}, .file = 1_MiB});
  const SpillPlace a = plan.place(5000, {}).value(), b = plan.place(1, {}).value();
  const SpillPlace large = plan.place(3 << 20, {}).value(), c = plan.place(9000, {}).value();
  EXPECT_EQ(a.file, b.file);
  EXPECT_EQ(a.file, c.file) << "a large one does not end a fused file";
  EXPECT_EQ(a.bytes, 8192u);
  EXPECT_EQ(b.offset, 8192u);
  EXPECT_NE(large.file, a.file);
  EXPECT_NE(large.folder, a.folder) << "folders in turn";
  EXPECT_FALSE(plan.release(a));
  EXPECT_FALSE(plan.release(c));
  EXPECT_TRUE(plan.release(b)) << "the last one takes the file along";
  EXPECT_TRUE(plan.release(large));
  EXPECT_EQ(plan.bytes(), 0u);
  EXPECT_EQ(plan.files(), 0u);
}

TEST(SpillPlan, TheQuotaIsOfWholePages) {
  SpillPlan plan({.folders = 1, .quota = 8_KiB, .file = 1_MiB});
  const SpillPlace a = plan.place(1, {}).value();
  EXPECT_EQ(plan.place(4097, {}).error().code(), Code::out_of_disk);
  EXPECT_EQ(plan.place(~std::uint64_t{0}, {}).error().code(), Code::out_of_disk) << "no overflow";
  EXPECT_TRUE(plan.place(4096, {}).ok());
  EXPECT_EQ(plan.place(1, {}).error().code(), Code::out_of_disk);
  plan.release(a);
  EXPECT_TRUE(plan.place(1, {}).ok());
}

TEST(SpillPlan, AFullFolderIsTriedAgainAFaultyOneIsNot) {
  SpillPlan plan({.folders = 2, .quota = {}, .file = 1_MiB});
  const Time now{};
  const SpillPlace first = plan.place(1, now).value();
  plan.full(first.folder, now);
  const SpillPlace second = plan.place(1, now).value();
  EXPECT_NE(second.folder, first.folder);
  EXPECT_FALSE(plan.failed(second.folder));
  EXPECT_FALSE(plan.failed(second.folder));
  EXPECT_NE(plan.place(1, now).value().file, second.file) << "what failed is not appended to";
  EXPECT_TRUE(plan.failed(second.folder)) << "the third error";
  EXPECT_TRUE(plan.quarantined(second.folder));
  const auto none = plan.place(1, now);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::out_of_disk);
  EXPECT_EQ(plan.place(1, now + 2s).value().folder, first.folder);
}

TEST(SpillPlan, PlacesOfTheLivingNeverOverlap) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint32_t>& steps) {
    SpillPlan plan({.folders = 3, .quota = 4_MiB, .file = 256_KiB});
    std::vector<SpillPlace> live;
    std::uint64_t sum = 0;
    for (const std::uint32_t step : steps) {
      if (step % 3 == 0 && !live.empty()) {
        const std::size_t i = step / 3 % live.size();
        const SpillPlace gone = live[i];
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
        const bool last =
            std::none_of(live.begin(), live.end(), [&](auto& p) { return p.file == gone.file; });
        RC_ASSERT(plan.release(gone) == last);
        sum -= gone.bytes;
      } else if (const auto place = plan.place(step % 600'000, {})) {
        RC_ASSERT(place->bytes >= step % 600'000 && place->offset % SpillPlan::kPage == 0);
        for (const SpillPlace& other : live)
          RC_ASSERT(other.file != place->file || (other.folder == place->folder &&
                                                  (other.offset + other.bytes <= place->offset ||
                                                   place->offset + place->bytes <= other.offset)));
        live.push_back(*place);
        sum += place->bytes;
      }
      RC_ASSERT(plan.bytes() == sum && sum <= (4u << 20));
    }
  }));
}

// -- the files

TEST(SpillFiles, ComesBackAsItWas) {
  const Folder a, b;
  auto files = open({.folders = {a.path, b.path}, .file = 64_KiB});
  std::vector<std::pair<SpillId, Blob>> all;
  for (unsigned i = 0; i < 24; ++i) {
    Blob bytes = pattern(i == 7 ? 3'000'000 : i * 1500, i);
    const SpillId id = write(*files, bytes);
    all.emplace_back(id, std::move(bytes));
  }
  EXPECT_TRUE(a.empty() && b.empty()) << "files have no names";
  EXPECT_FALSE(a.open_files().empty());
  EXPECT_FALSE(b.open_files().empty());
  for (int round = 0; round < 2; ++round)
    for (const auto& [id, bytes] : all) EXPECT_EQ(read(*files, id).value(), bytes);
  EXPECT_EQ(files->stats().written_objects, 24u);
  EXPECT_EQ(files->stats().read_objects, 48u);
  for (const auto& [id, bytes] : all) files->drop(id);
  EXPECT_EQ(files->stats().bytes, 0u);
  EXPECT_EQ(files->stats().files, 0u);
  files.reset();
  EXPECT_TRUE(a.open_files().empty() && b.open_files().empty());
}

TEST(SpillFiles, ADroppedObjectLeavesAHoleInItsFile) {
  const Folder folder;
  auto files = open({.folders = {folder.path}, .file = 1_MiB});
  const Blob one = pattern(200'000, 1), two = pattern(200'000, 2);
  const SpillId first = write(*files, one), second = write(*files, two);
  const std::uint64_t both = folder.bytes_on_disk();
  ASSERT_EQ(folder.open_files().size(), 1u);
  files->drop(first);
  EXPECT_EQ(read(*files, second).value(), two);
  write(*files, pattern(10, 3));  // the hole is punched before the write
  EXPECT_LE(folder.bytes_on_disk() + 150'000, both);
}

TEST(SpillFiles, DroppedWhileItIsWritten) {
  const Folder folder;
  auto files = open({.folders = {folder.path}});
  const Blob bytes = pattern(2'000'000, 1);
  const SpillId id = files->write(bytes, {}).value();
  files->drop(id);
  const auto done = wait(*files, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, id) << "who keeps the bytes must hear that they are needed no more";
  EXPECT_EQ(files->stats().objects, 0u);
  EXPECT_EQ(files->stats().bytes, 0u);
}

TEST(SpillFiles, AReadIsNotHurtByADropThatFollows) {
  const Folder folder;
  auto files = open({.folders = {folder.path}});
  for (unsigned i = 0; i < 20; ++i) {
    const Blob bytes = pattern(100'000, i);
    const SpillId id = write(*files, bytes);
    Blob into(bytes.size());
    files->read(id, into);
    files->drop(id);
    const auto done = wait(*files, 1);
    ASSERT_TRUE(!done.empty() && !done[0].error);
    EXPECT_EQ(into, bytes);
  }
}

TEST(SpillFiles, DamageIsFound) {
  const Folder folder;
  auto files = open({.folders = {folder.path}, .file = 1_MiB});
  const Blob bytes = pattern(100'000, 1), other = pattern(50'000, 2);
  const SpillId hurt = write(*files, bytes), sound = write(*files, other);
  const Fd file(::open(folder.open_files().at(0).c_str(), O_RDWR));
  ASSERT_TRUE(file);
  std::byte one{};
  ASSERT_EQ(pread(file.get(), &one, 1, 77'777), 1);
  one ^= std::byte{0x10};
  ASSERT_EQ(pwrite(file.get(), &one, 1, 77'777), 1);
  EXPECT_EQ(read(*files, hurt).error().code(), Code::object_lost);
  EXPECT_EQ(read(*files, sound).value(), other);
  one ^= std::byte{0x10};
  ASSERT_EQ(pwrite(file.get(), &one, 1, 77'777), 1);
  EXPECT_EQ(read(*files, hurt).value(), bytes);
  ASSERT_EQ(ftruncate(file.get(), 120'000), 0);
  EXPECT_EQ(read(*files, sound).error().code(), Code::object_lost) << "shortened";
  EXPECT_EQ(read(*files, hurt).value(), bytes);
  EXPECT_EQ(files->stats().errors, 2u);
}

TEST(SpillFiles, AnotherObjectsBytesAreNotTaken) {
  const Folder folder;
  auto files = open({.folders = {folder.path}, .file = 1_MiB});
  const Blob one = pattern(8192, 1), two = pattern(8192, 2);
  const SpillId first = write(*files, one), second = write(*files, two);
  const Fd file(::open(folder.open_files().at(0).c_str(), O_RDWR));
  ASSERT_EQ(pwrite(file.get(), two.data(), two.size(), 0), 8192);
  EXPECT_EQ(read(*files, first).error().code(), Code::object_lost);
  EXPECT_EQ(read(*files, second).value(), two);
}

TEST(SpillFiles, WhatIsNoFolderIsNamed) {
  const auto none = SpillFiles::open({.folders = {"/no/such/folder"}});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::invalid_argument);
  EXPECT_NE(none.error().message().find("/no/such/folder"), std::string::npos);
  EXPECT_EQ(SpillFiles::open({}).error().code(), Code::invalid_argument);
}

TEST(SpillFiles, AFullDiskIsSaidAndHealsItself) {
  const Folder folder;
  if (mount("tmpfs", folder.path.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "this process may not mount a small disk";
  auto files = open({.folders = {folder.path}, .file = 128_KiB, .full = 1s});
  ASSERT_EQ(umount2(folder.path.c_str(), MNT_DETACH), 0);  // the mount ends with its last open file
  std::map<SpillId, Blob> live;
  unsigned refused = 0;
  Time now{};
  for (unsigned i = 0; i < 200; ++i) {
    now += 2s;
    Blob bytes = pattern(60'000 + i * 800, i);
    const auto id = files->write(bytes, now);
    ASSERT_TRUE(id.ok());
    const auto done = wait(*files, 1, now);
    ASSERT_EQ(done.size(), 1u);
    if (!done[0].error) {
      live[*id] = std::move(bytes);
      continue;
    }
    EXPECT_EQ(done[0].error->code(), Code::out_of_disk);
    ++refused;
    for (const auto& [old, was] : live) EXPECT_EQ(read(*files, old).value(), was);
    while (!live.empty()) {  // space comes back
      files->drop(live.begin()->first);
      live.erase(live.begin());
    }
  }
  EXPECT_GE(refused, 10u);
  EXPECT_LE(refused, 60u) << "what a failed write had taken is given back";
  EXPECT_EQ(files->stats().quarantined, 0u) << "full is not faulty";
}

// -- faults of the system calls

std::atomic<unsigned> faults{0}, calls{0};  // if not 0, one call in `faults` fails

bool unlucky() {
  const unsigned every = faults.load();
  return every != 0 && ++calls % every == 0;
}

ssize_t faulty_write(int fd, const void* from, std::size_t size, off_t at) {
  if (!unlucky()) return ::pwrite(fd, from, size, at);
  if (calls % 2 == 0 && size > 1) return ::pwrite(fd, from, size / 2, at);  // a short write
  errno = EIO;
  return -1;
}

ssize_t faulty_read(int fd, void* into, std::size_t size, off_t at) {
  if (!unlucky()) return ::pread(fd, into, size, at);
  const ssize_t got = ::pread(fd, into, size, at);
  switch (calls / faults % 4) {
    case 0: errno = EIO; return -1;
    case 1: return 0;                            // as if the file ended here
    case 2: return std::min<ssize_t>(got, 100);  // a short read
    default: static_cast<std::byte*>(into)[size / 2] ^= std::byte{1}; return got;
  }
}

ssize_t full_write(int, const void*, std::size_t, off_t) {
  errno = ENOSPC;
  return -1;
}

TEST(SpillFiles, AFaultyFolderIsQuarantinedAndTheOthersGoOn) {
  const Folder folder;
  faults = 1, calls = 0;
  auto files = open(
      {.folders = {folder.path}, .pwrite = [](int, const void*, std::size_t, off_t) -> ssize_t {
         errno = EIO;
         return -1;
       }});
  const Blob bytes = pattern(5000, 1);
  (void)files->write(bytes, {}).value();
  const auto done = wait(*files, 1);
  ASSERT_TRUE(!done.empty() && done[0].error);
  EXPECT_EQ(done[0].error->code(), Code::out_of_disk);
  EXPECT_NE(done[0].error->message().find(folder.path.string()), std::string::npos);
  EXPECT_EQ(files->stats().quarantined, 1u);
  EXPECT_EQ(files->stats().errors, 3u);
  EXPECT_EQ(files->write(bytes, {}).error().code(), Code::out_of_disk) << "at once";
  EXPECT_EQ(files->stats().bytes, 0u);
}

TEST(SpillFiles, NoSpaceInAnyFolder) {
  const Folder a, b;
  auto files = open({.folders = {a.path, b.path}, .pwrite = full_write});
  const Blob bytes = pattern(5000, 1);
  (void)files->write(bytes, {}).value();
  const auto done = wait(*files, 1);
  ASSERT_TRUE(!done.empty() && done[0].error);
  EXPECT_EQ(done[0].error->code(), Code::out_of_disk);
  EXPECT_EQ(files->stats().quarantined, 0u);
}

// Compares with a store in memory while one system call in fifty fails. A read gives the right
// bytes or an error, and the used space is that of the live objects.
TEST(SpillFiles, NeverAWrongByteWhateverTheDiskDoes) {
  faults = 50;
  EXPECT_TRUE(rc::check([](const std::vector<std::uint16_t>& steps) {
    const Folder a, b, c;
    auto files = open({.folders = {a.path, b.path, c.path},
                       .quota = 384_KiB,
                       .file = 64_KiB,
                       .pwrite = faulty_write,
                       .pread = faulty_read});
    std::map<SpillId, Blob> live;
    for (const std::uint16_t step : steps) {
      auto at = live.begin();
      if (!live.empty()) std::advance(at, step / 4 % live.size());
      switch (step % 4) {
        case 0:
        case 1: {
          Blob bytes = pattern(step, step);
          const auto id = files->write(bytes, {});
          if (!id) {
            RC_ASSERT(id.error().code() == Code::out_of_disk);
            break;
          }
          const auto done = wait(*files, 1);
          RC_ASSERT(done.size() == 1u && done[0].id == *id);
          if (!done[0].error) live[*id] = std::move(bytes);
          break;
        }
        case 2:
          if (at == live.end()) break;
          if (const auto got = read(*files, at->first))
            RC_ASSERT(*got == at->second);
          else
            RC_ASSERT(got.error().code() == Code::object_lost);
          break;
        default:
          if (at == live.end()) break;
          files->drop(at->first);
          live.erase(at);
      }
      std::uint64_t pages = 0;
      for (const auto& [id, bytes] : live)
        pages += std::max<std::uint64_t>(1, (bytes.size() + 4095) / 4096) * 4096;
      RC_ASSERT(files->stats().bytes == pages && files->stats().objects == live.size());
    }
    RC_ASSERT(a.empty() && b.empty() && c.empty());
  }));
  faults = 0;
}

}  // namespace
}  // namespace troupe::objectstore::spill_test
