// Tests how a job's program comes to a node: two Programs, joined by a queue of messages that a
// test can watch, alter and drop.
#include "troupe/runtime/agent/programs.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

namespace troupe::agent::programs_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string bytes_of(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at + 8 <= size; at += 8) {
    const std::uint64_t word = splitmix64(seed);
    std::memcpy(bytes.data() + at, &word, 8);
  }
  return bytes;
}
void write_file(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}
std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Message {
  NodeId from, to;
  wire::PeerMessage message;
  Blob payload;
};

struct Node final : Programs::Out {
  Node(NodeId i, std::deque<Message>& w, ProgramsOptions options) : id(i), wire(w) {
    programs.emplace(*this, id, std::move(options));
  }
  void send(NodeId to, const wire::PeerMessage& message, BlobView payload) override {
    wire.push_back({id, to, message, Blob(payload.begin(), payload.end())});
  }
  void described(JobId job, const Result<Programs::Files>& result) override {
    files.emplace(job, result);
  }
  void program(JobId job, const Result<os::Program>& result) override {
    ready.emplace(job, result);
  }
  NodeId id;
  std::deque<Message>& wire;
  std::optional<Programs> programs;
  std::map<JobId, Result<Programs::Files>> files;
  std::map<JobId, Result<os::Program>> ready;
};

class ProgramsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string text = testing::TempDir() + "troupe-programs-XXXXXX";
    ASSERT_NE(mkdtemp(text.data()), nullptr);
    folder = text;
    driver.emplace(NodeId{0, 1}, wire, ProgramsOptions{.cache = cache(1)});
    other.emplace(NodeId{0, 2}, wire, ProgramsOptions{.cache = cache(2)});
  }
  void TearDown() override {
    other.reset();
    driver.reset();
    fs::remove_all(folder);
  }
  std::string cache(int node) const { return (folder / ("cache" + std::to_string(node))).string(); }
  std::string program_path() const { return (folder / "home/bin/app").string(); }
  std::string library_path() const { return (folder / "home/lib/libown.so.1").string(); }

  /// Runs one step of everything; returns false when nothing happened.
  bool step() {
    pollfd set[2] = {{driver ? driver->programs->fd() : -1, POLLIN, 0},
                     {other->programs->fd(), POLLIN, 0}};
    bool any = !wire.empty();
    any = ::poll(set, 2, any ? 0 : 5) > 0 || any;
    if (driver) driver->programs->poll(now);
    other->programs->poll(now);
    for (auto batch = std::exchange(wire, {}); !batch.empty(); batch.pop_front()) {
      Message& m = batch.front();
      if (filter && !filter(m)) continue;
      ++carried;
      Node* to = m.to == NodeId{0, 2} ? &*other : driver ? &*driver : nullptr;
      if (to != nullptr) to->programs->on_message(m.from, m.message, m.payload, now);
    }
    return any;
  }
  bool run_until(const std::function<bool()>& done) {
    const Time limit = steady_now() + 20s;
    while (!done() && steady_now() < limit) step();
    return done();
  }
  /// Describes a program of 3 MB and a library of 300 kB at the driver's node.
  control::JobRecord make_job(std::uint64_t number = 7) {
    if (!fs::exists(program_path())) write_file(program_path(), bytes_of(3'000'000, 1));
    if (!fs::exists(library_path())) write_file(library_path(), bytes_of(300'000, 2));
    control::JobRecord job;
    job.id = JobId{0, number};
    job.node = driver->id;
    job.program = program_path();
    job.arguments = {"app", "--fast"};
    job.ignored_signals = 0x11000;
    job.blocked_signals = 2;
    driver->programs->describe(job.id, program_path(), {library_path()}, now);
    EXPECT_TRUE(run_until([&] { return driver->files.count(job.id) != 0; }));
    const auto files = driver->files.at(job.id);
    if (files)
      job.files = *files;
    else
      ADD_FAILURE() << files.error().what();
    return job;
  }
  Result<os::Program> want(const control::JobRecord& job) {
    other->ready.erase(job.id);
    other->programs->want(job, now);
    EXPECT_TRUE(run_until([&] { return other->ready.count(job.id) != 0; }));
    return other->ready.at(job.id);
  }
  /// Makes the other node see another disk, on which the files to fetch do not exist.
  void hide_files() const { fs::rename(folder / "home", folder / "elsewhere"); }
  std::size_t cached_files() const {
    std::size_t count = 0;
    if (!fs::exists(cache(2))) return 0;
    for (const auto& entry : fs::directory_iterator(cache(2))) count += entry.is_regular_file();
    return count;
  }

  fs::path folder;
  std::deque<Message> wire;
  std::function<bool(Message&)> filter;
  int carried = 0;
  Time now{1h};
  std::optional<Node> driver, other;
};

TEST_F(ProgramsTest, FilesThatLieAtTheSamePathAreUsedWhereTheyAre) {
  const auto program = want(make_job());
  ASSERT_TRUE(program);
  EXPECT_EQ(program->path, program_path());
  EXPECT_EQ(program->arguments, (std::vector<std::string>{"app", "--fast"}));
  EXPECT_EQ(program->signals, (os::SignalState{0x11000, 2})) << "as its driver began";
  EXPECT_EQ(fs::read_symlink(fs::path(program->libraries) / "libown.so.1"), library_path());
  EXPECT_EQ(carried, 0);
}

TEST_F(ProgramsTest, MissingFilesAreFetchedFromTheDriversOpenOnes) {
  const auto job = make_job();
  hide_files();
  const auto program = want(job);
  ASSERT_TRUE(program) << program.error().what();
  EXPECT_EQ(read_file(program->path), bytes_of(3'000'000, 1));
  struct stat status{};
  ASSERT_EQ(stat(program->path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0500u);
  ASSERT_EQ(stat(cache(2).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(read_file(fs::path(program->libraries) / "libown.so.1"), bytes_of(300'000, 2));
  EXPECT_EQ(carried, 2 * (12 + 2)) << "pieces of 256 KiB, one asked for at a time";
  EXPECT_EQ(cached_files(), 2u) << "no half file stays";
}

TEST_F(ProgramsTest, ASecondJobOfTheProgramFetchesNothing) {
  auto job = make_job();
  hide_files();
  ASSERT_TRUE(want(job));
  carried = 0;
  job.id = JobId{0, 8};
  const auto program = want(job);
  ASSERT_TRUE(program);
  EXPECT_EQ(carried, 0);
  EXPECT_EQ(read_file(fs::path(program->libraries) / "libown.so.1"), bytes_of(300'000, 2));
}

TEST_F(ProgramsTest, TwoJobsOfOneProgramMayBeFetchedAtOnce) {
  const auto a = make_job(7), b = make_job(8);
  hide_files();
  other->programs->want(a, now);
  other->programs->want(b, now);
  ASSERT_TRUE(run_until([&] { return other->ready.size() == 2; }));
  for (const auto& [id, program] : other->ready) {
    ASSERT_TRUE(program) << program.error().what();
    EXPECT_EQ(read_file(program->path), bytes_of(3'000'000, 1));
  }
  EXPECT_EQ(cached_files(), 2u);
}

TEST_F(ProgramsTest, ADamagedFileOfTheCacheIsFetchedAgain) {
  const auto job = make_job();
  hide_files();
  const std::string cached = want(job).value().path;
  fs::permissions(cached, fs::perms::owner_all);
  write_file(cached, "rubbish");
  const auto again = want(job);
  ASSERT_TRUE(again) << again.error().what();
  EXPECT_EQ(read_file(again->path), bytes_of(3'000'000, 1));
}

TEST_F(ProgramsTest, AnotherFileAtThePathIsNotTaken) {
  const auto job = make_job();
  hide_files();
  write_file(program_path(), "another program");
  const auto program = want(job);
  ASSERT_TRUE(program) << program.error().what();
  EXPECT_NE(program->path, program_path());
  EXPECT_EQ(read_file(program->path), bytes_of(3'000'000, 1));
}

TEST_F(ProgramsTest, ContentThatIsNotWhatTheRecordSaysIsRefused) {
  const auto job = make_job();
  hide_files();
  filter = [&](Message& m) {
    if (auto* data = std::get_if<wire::ProgramData>(&m.message); data && data->offset > 1'000'000)
      m.payload[17] ^= std::byte{1};
    return true;
  };
  const auto program = want(job);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code(), Code::unavailable) << program.error().what();
  EXPECT_EQ(cached_files(), 0u);
}

TEST_F(ProgramsTest, AFileThatChangedInItsPlaceWhileItIsServedIsRefused) {
  const auto job = make_job();
  write_file(program_path(), bytes_of(3'000'000, 99));  // the same file, other bytes
  const auto program = want(job);
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().message().find("changed"), std::string::npos);
  EXPECT_EQ(cached_files(), 0u);
}

TEST_F(ProgramsTest, TheEndOfTheDriversNodeInTheMiddleEndsTheFetch) {
  const auto job = make_job();
  hide_files();
  other->programs->want(job, now);
  int pieces = 0;
  filter = [&](Message& m) {
    return !std::holds_alternative<wire::ProgramData>(m.message) || ++pieces <= 4;
  };
  ASSERT_TRUE(run_until([&] { return pieces == 5; }));
  other->programs->node_died(driver->id, now);
  ASSERT_EQ(other->ready.count(job.id), 1u);
  EXPECT_EQ(other->ready.at(job.id).error().code(), Code::unavailable);
  filter = {};
  while (step()) {
  }
  EXPECT_EQ(cached_files(), 0u);
}

TEST_F(ProgramsTest, WhoComesBackIsServedThoughWhatItAskedBeforeWaitsForTheDisk) {
  const auto job = make_job();
  std::vector<std::uint64_t> offsets;
  filter = [&](Message& m) {
    if (const auto* data = std::get_if<wire::ProgramData>(&m.message))
      offsets.push_back(data->offset);
    return false;
  };
  const auto ask = [&](std::uint64_t offset) {
    driver->programs->on_message(other->id, wire::ProgramRequest{job.id, 0, offset}, {}, now);
  };
  ask(4096);
  driver->programs->node_died(other->id, now);
  ask(0);
  run_until([&] { return !offsets.empty() && offsets.back() == 0; });
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{4096, 0}));
}

TEST_F(ProgramsTest, SilenceEndsTheFetchAtItsDeadline) {
  const auto job = make_job();
  hide_files();
  filter = [](Message& m) { return !std::holds_alternative<wire::ProgramRequest>(m.message); };
  other->programs->want(job, now);
  ASSERT_TRUE(run_until([&] { return other->programs->next_deadline() < Time::max(); }));
  EXPECT_EQ(other->programs->next_deadline(), now + 10s);
  now += 10s;
  other->programs->poll(now);
  ASSERT_EQ(other->ready.count(job.id), 1u);
  EXPECT_NE(other->ready.at(job.id).error().message().find("10 s"), std::string::npos);
}

TEST_F(ProgramsTest, AnEndedJobIsServedForItsDetachedActors) {
  const auto job = make_job();
  hide_files();
  driver->programs->forget(job.id);
  EXPECT_TRUE(want(job));
  const auto local = driver->programs->local(job.id);
  ASSERT_TRUE(local.has_value());
  EXPECT_EQ(read_file(local->path), bytes_of(3'000'000, 1));
}

TEST_F(ProgramsTest, AProgramThatNobodyServesIsATypedError) {
  auto job = make_job();
  hide_files();
  job.id = JobId{0, 99};
  const auto program = want(job);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code(), Code::unavailable);
}

TEST_F(ProgramsTest, WhatCannotBeDescribedIsATypedError) {
  driver->programs->describe(JobId{0, 1}, "/nowhere/app", {}, now);
  driver->programs->describe(JobId{0, 2}, folder.string(), {}, now);
  driver->programs->describe(JobId{0, 3}, "/bin/sh", std::vector<std::string>(64, "/bin/sh"), now);
  ASSERT_TRUE(run_until([&] { return driver->files.size() == 3; }));
  EXPECT_EQ(driver->files.at(JobId{0, 1}).error().code(), Code::unavailable);
  EXPECT_EQ(driver->files.at(JobId{0, 2}).error().code(), Code::unavailable);
  EXPECT_EQ(driver->files.at(JobId{0, 3}).error().code(), Code::invalid_argument);
}

TEST_F(ProgramsTest, ADriverThatEndsWhileItIsDescribedLeavesNothingOpen) {
  write_file(program_path(), "app");
  driver->programs->describe(JobId{0, 1}, program_path(), {}, now);
  driver->programs->forget(JobId{0, 1});
  while (step()) {
  }
  EXPECT_TRUE(driver->files.empty());
  EXPECT_FALSE(driver->programs->local(JobId{0, 1}).has_value());
}

TEST_F(ProgramsTest, TheLeastRecentlyUsedFilesGoButNoneOfALivingJob) {
  other.reset();
  other.emplace(NodeId{0, 2}, wire, ProgramsOptions{.cache = cache(2), .cache_bytes = 3'400'000});
  write_file(fs::path(cache(2)) / std::string(64, 'a'), bytes_of(1'000'000, 5));
  fs::permissions(cache(2), fs::perms::owner_all);
  const auto job = make_job();
  hide_files();
  ASSERT_TRUE(want(job));
  EXPECT_FALSE(fs::exists(fs::path(cache(2)) / std::string(64, 'a')));
  EXPECT_EQ(cached_files(), 2u);
  // More bytes are in use than the cache may have. Files that a zygote may be started from stay.
  write_file(folder / "second/app", bytes_of(2'000'000, 6));
  driver->files.clear();
  driver->programs->describe(JobId{0, 8}, folder / "second/app", {}, now);
  ASSERT_TRUE(run_until([&] { return driver->files.count(JobId{0, 8}) != 0; }));
  auto second = job;
  second.id = JobId{0, 8};
  second.files = *driver->files.at(JobId{0, 8});
  fs::rename(folder / "second", folder / "hidden");
  ASSERT_TRUE(want(second));
  EXPECT_EQ(cached_files(), 3u);
  other->programs->forget(job.id);
  ASSERT_TRUE(want(second));
  EXPECT_LE(cached_files(), 2u) << "until their job is over";
}

TEST_F(ProgramsTest, ACacheThatOthersMayWriteIsNotUsed) {
  const auto job = make_job();
  hide_files();
  fs::create_directories(cache(2));
  fs::permissions(cache(2), fs::perms::all);
  const auto program = want(job);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code(), Code::invalid_argument);
}

TEST_F(ProgramsTest, RecordsThatNameNoFilesAreRefused) {
  const std::string digest(64, 'a');
  const std::vector<Programs::Files> bad = {
      {},
      {{"/bin/sh", "../../etc/passwd"}},
      {{"/bin/sh", digest.substr(1)}},
      {{"relative", digest}},
      {{"/", digest}},
      {{"/folder/", digest}},
      {{std::string("/a\0b", 4), digest}},
      Programs::Files(65, {"/bin/sh", digest}),
  };
  std::uint64_t number = 100;
  for (const Programs::Files& files : bad) {
    control::JobRecord job;
    job.id = JobId{0, ++number};
    job.node = driver->id;
    job.files = files;
    const auto program = want(job);
    ASSERT_FALSE(program);
    EXPECT_EQ(program.error().code(), Code::invalid_argument);
  }
}

TEST_F(ProgramsTest, LibrariesOfOneNameCannotBeShipped) {
  write_file(program_path(), "app");
  write_file(folder / "home/a/libx.so", "one");
  write_file(folder / "home/b/libx.so", "two");
  driver->programs->describe(JobId{0, 1}, program_path(),
                             {folder / "home/a/libx.so", folder / "home/b/libx.so"}, now);
  ASSERT_TRUE(run_until([&] { return !driver->files.empty(); }));
  control::JobRecord job;
  job.id = JobId{0, 1};
  job.node = driver->id;
  job.files = *driver->files.at(job.id);
  hide_files();
  const auto program = want(job);
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().message().find("libx.so"), std::string::npos);
}

TEST_F(ProgramsTest, StrangePiecesAndRequestsDoNoHarm) {
  const auto job = make_job();
  hide_files();
  int lost = 0;
  filter = [&](Message& m) {
    const bool data = std::holds_alternative<wire::ProgramData>(m.message);
    lost += data ? 1 : 0;
    return !data;
  };
  other->programs->want(job, now);
  ASSERT_TRUE(run_until([&] { return lost == 1; }));
  const auto piece = [&](std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) {
    wire::ProgramData data;
    data.job = job.id;
    data.file = file;
    data.offset = offset;
    data.bytes = bytes;
    return data;
  };
  const Blob some(100, std::byte{7});
  // Pieces that were not asked for: from a stranger, or of another file, job or place.
  other->programs->on_message(NodeId{0, 3}, piece(0, 0, 3'000'000), some, now);
  other->programs->on_message(driver->id, piece(1, 0, 3'000'000), some, now);
  other->programs->on_message(driver->id, piece(0, 4096, 3'000'000), some, now);
  auto unknown = piece(0, 0, 100);
  unknown.job = JobId{9, 9};
  other->programs->on_message(driver->id, unknown, some, now);
  EXPECT_TRUE(other->ready.empty());
  // A file larger than a program may be ends the fetch.
  other->programs->on_message(driver->id, piece(0, 0, ~std::uint64_t{0}), some, now);
  ASSERT_EQ(other->ready.count(job.id), 1u);
  EXPECT_EQ(other->ready.at(job.id).error().code(), Code::unavailable);
  other->programs->on_message(driver->id, piece(0, 0, 100), some, now);  // no fetch waits any more

  int answers = 0;
  std::uint64_t largest = 0;
  filter = [&](Message& m) {
    const auto* data = std::get_if<wire::ProgramData>(&m.message);
    if (data == nullptr) return false;
    ++answers;
    largest = std::max<std::uint64_t>(largest, m.payload.size());
    return false;
  };
  const auto ask = [&](JobId id, std::uint32_t file, std::uint64_t offset) {
    driver->programs->on_message(NodeId{0, 3}, wire::ProgramRequest{id, file, offset}, {}, now);
    const int before = answers;
    EXPECT_TRUE(run_until([&] { return answers > before; }));
  };
  ask(JobId{5, 5}, 0, 0);
  ask(job.id, 2, 0);
  ask(job.id, ~0u, 0);
  ask(job.id, 0, ~std::uint64_t{0});
  ask(job.id, 0, 3'000'001);
  EXPECT_EQ(largest, 0u);
  for (int i = 0; i < 1000; ++i)  // a flood of requests has one piece read at a time
    driver->programs->on_message(NodeId{0, 3}, wire::ProgramRequest{job.id, 0, 0}, {}, now);
  answers = 0;
  while (step()) {
  }
  EXPECT_GE(answers, 1);
  EXPECT_LE(answers, 2);
}

}  // namespace
}  // namespace troupe::agent::programs_test
