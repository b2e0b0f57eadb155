// Tests the writer of log files on disks that are good, full, slow and hanging.
#include "troupe/runtime/agent/log_writer.hpp"

#include "tests/eventually.hpp"
#include "tests/runtime/agent/faulty_files.hpp"
#include "troupe/runtime/wire/log_batch.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

struct Rig {
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  LogWriter writer{std::make_unique<FaultyFiles>(faults), {}, "node-7"};

  void say(const std::string& text, const std::string& job = "a") {
    std::string line;
    wire::LogRecord record;
    record.time_unix_ns = 1;
    record.pid = 2;
    record.name = "f";
    record.text = text;
    wire::write_record(record, line);
    writer.write({job, line, 1});
  }
  bool settles(const std::string& job = "a") {
    return eventually([&] { return writer.is_written(job); });
  }
  LogWriter::Read read(std::uint64_t offset, const std::string& job = "a") {
    writer.read({9, job, offset, 1 << 20});
    std::vector<LogWriter::Read> reads;
    EXPECT_TRUE(eventually([&] {
      for (auto& one : writer.take()) reads.push_back(std::move(one));
      return !reads.empty();
    }));
    return reads.empty() ? LogWriter::Read() : reads.front();
  }
};

TEST(LogWriter, WritesInOrderAndReadsByOffset) {
  Rig rig;
  for (int i = 0; i < 1000; ++i) rig.say(std::to_string(i));
  ASSERT_TRUE(rig.settles());
  const std::vector<std::string> texts = texts_of(rig.faults->text_of("a"));
  ASSERT_EQ(texts.size(), 1000U);
  EXPECT_EQ(texts[999], "999");
  const LogWriter::Read all = rig.read(0);
  EXPECT_EQ(texts_of(all.bytes), texts);
  EXPECT_EQ(rig.writer.end("a"), all.bytes.size());
  EXPECT_EQ(rig.read(all.bytes.size()).bytes, "");
  EXPECT_EQ(rig.read(0, "b").bytes, "");
}

TEST(LogWriter, TellsOnceHowManyLinesAFullDiskHasCost) {
  Rig rig;
  rig.say("before");
  ASSERT_TRUE(rig.settles());
  rig.faults->set(true, false);
  for (int i = 0; i < 7; ++i) rig.say("lost");
  ASSERT_TRUE(rig.settles());
  rig.faults->set(false, false);
  rig.say("after");
  rig.say("later");
  ASSERT_TRUE(rig.settles());
  EXPECT_EQ(texts_of(rig.faults->text_of("a")),
            (std::vector<std::string>{
                "before", "7 lines of this job are lost on node-7: No space left on device",
                "after", "later"}));
}

TEST(LogWriter, TellsOfLinesThatOthersDropped) {
  Rig rig;
  rig.writer.lost("a", 1, "their file took none for 5 s");
  ASSERT_TRUE(rig.settles());
  EXPECT_EQ(texts_of(rig.faults->text_of("a")),
            (std::vector<std::string>{
                "1 line of this job is lost on node-7: their file took none for 5 s"}));
}

TEST(LogWriter, HasNoRoomWhileTheDiskHangsAndTellsWhenItGoesOn) {
  Rig rig;
  rig.faults->set(false, true);
  const std::string line(1 << 16, 'x');
  for (int i = 0; rig.writer.has_room(); ++i) {
    ASSERT_LT(i, 1000);
    rig.say(line);
  }
  EXPECT_FALSE(rig.writer.is_written("a"));
  (void)rig.writer.take();
  rig.faults->set(false, false);
  pollfd entry{rig.writer.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 10'000), 1);
  EXPECT_TRUE(eventually([&] { return rig.writer.has_room(); }));
  EXPECT_TRUE(rig.settles());
}

TEST(LogWriter, EndsWhileTheDiskHangs) {
  const auto faults = std::make_shared<Faults>();
  const Time begin = steady_now();
  {
    LogWriter writer(std::make_unique<FaultyFiles>(faults), {}, "node-7");
    faults->set(false, true);
    writer.write({"a", "1\t2\to\tf\tx\n", 1});
    std::unique_lock lock(faults->mutex);
    EXPECT_TRUE(faults->changed.wait_for(lock, 10s, [&] { return faults->is_inside; }));
  }
  EXPECT_LT(steady_now() - begin, 9s);
  faults->set(false, false);  // the thread that was left ends
}

TEST(LogWriter, KeepsFilesForItsUserAloneAndPassesOverThoseThatAreGone) {
  std::string folder = testing::TempDir() + "troupe-logs-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    LogWriter writer(log_files_in(folder + "/cluster/node-0"), {}, "node-0");
    writer.write({"a", "1\t2\to\tf\tx\n", 1});
    ASSERT_TRUE(eventually([&] { return writer.is_written("a"); }));
    const fs::path file = folder + "/cluster/node-0/a.1.log";
    std::ifstream in(file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "1\t2\to\tf\tx\n");
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    fs::resize_file(file, 0);
    writer.read({9, "a", 0, 1 << 20});
    std::vector<LogWriter::Read> reads;
    ASSERT_TRUE(eventually([&] {
      reads = writer.take();
      return !reads.empty();
    }));
    EXPECT_EQ(reads[0].bytes, "");
    EXPECT_EQ(reads[0].offset, writer.end("a")) << "a reader comes to what follows";
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace troupe::agent
