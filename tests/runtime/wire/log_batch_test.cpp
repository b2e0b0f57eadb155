// Tests the pieces of logs, and the lines inside, also those that no troupe has written.
#include "troupe/runtime/wire/log_batch.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <cstring>
#include <string>
#include <vector>

namespace troupe::wire {
namespace {

TEST(LogBatch, ArrivesAsItWasSent) {
  LogBatch batch;
  batch.begin = 1'234'567'890'123;
  batch.complete = true;
  batch.text = "1\t2\to\tf\tx\n";
  const LogBatch got = decode_log_batch(encode(batch)).value();
  EXPECT_EQ(got.begin, batch.begin);
  EXPECT_EQ(got.next(), batch.begin + batch.text.size());
  EXPECT_TRUE(got.complete);
  EXPECT_EQ(got.text, batch.text);
  EXPECT_TRUE(decode_log_batch(encode(LogBatch())));
}

TEST(LogBatch, RefusesWhatIsNone) {
  const Blob good = encode({.begin = 7, .complete = false, .text = "x\n"});
  for (std::size_t size = 0; size < 16; ++size)
    EXPECT_FALSE(decode_log_batch(BlobView(good).first(size))) << size;
  Blob bad = good;
  std::memset(bad.data(), 0xff, 8);  // the offset after it would overflow
  EXPECT_FALSE(decode_log_batch(bad));
  bad = good;
  bad[8] = std::byte{2};
  EXPECT_FALSE(decode_log_batch(bad));
  EXPECT_FALSE(decode_log_batch(Blob(kMaxLogBatch + 17)));
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    Blob bytes(random.below(64));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    (void)decode_log_batch(bytes);
  }
}

TEST(LogBatch, ReadsTheLinesThatItWrites) {
  LogRecord record;
  record.time_unix_ns = 1'700'000'000'123'456'789;
  record.pid = 8185;
  record.is_error = true;
  record.name = "mix";
  record.text = "a\ttab, \x1b and \xff";
  std::string text;
  write_record(record, text);
  record.text = "";
  write_record(record, text);
  std::vector<std::string> texts;
  each_record(text, [&](const LogRecord& one) {
    EXPECT_EQ(one.time_unix_ns, record.time_unix_ns);
    EXPECT_EQ(one.pid, 8185);
    EXPECT_TRUE(one.is_error);
    EXPECT_EQ(one.name, "mix");
    texts.emplace_back(one.text);
  });
  EXPECT_EQ(texts, (std::vector<std::string>{"a\ttab, \x1b and \xff", ""}));
}

TEST(LogBatch, PassesOverLinesThatAreNone) {
  for (const char* line : {"", "\t\t\t\t", "1\t2\to\tname", "x\t2\to\tf\tt", "1\ty\to\tf\tt",
                           "1\t2\tz\tf\tt", "99999999999999999999\t2\to\tf\tt"})
    EXPECT_FALSE(read_record(line)) << line;
  int found = 0;
  each_record("broken\n1\t2\to\tf\tt\n1\t2", [&](const LogRecord&) { ++found; });
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace troupe::wire
