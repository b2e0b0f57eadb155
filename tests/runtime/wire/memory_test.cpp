// Tests reports of memory: they are read as they were written, they are bounded, and malformed
// bytes are refused.
#include "troupe/runtime/wire/memory.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>

namespace troupe::wire {
namespace {

MemoryReport report_of(std::size_t rows) {
  MemoryReport report;
  report.node = NodeId::random();
  report.name = "node-1";
  report.arena_bytes = 1u << 30;
  report.spilled = 7;
  report.spilled_bytes = 1u << 29;
  report.spills = true;
  report.processes.push_back(
      {MemoryUser::driver, 12, JobId::random(), 5, 2, 1u << 27, 9, 1u << 20});
  report.job_quota_bytes = 1u << 28;
  report.jobs.push_back({JobId::random(), 77});
  report.copies = true;
  report.copied = 5;
  report.copy_bytes = 40960;
  report.sites.push_back({"main.cpp:12", 3, 4, 5, true});
  for (std::size_t i = 0; i < rows; ++i) {
    MemoryObject& row = report.rows.emplace_back();
    row.id = ObjectId::random();
    row.state = MemoryObject::State::disk;
    row.bytes = i;
    row.pins = 1;
    row.age_ns = 3;
    row.held = -1;
    row.site = "main.cpp:12";
    row.holders.push_back({MemoryUser::actor, 13, NodeId::random(), 2, 4});
  }
  report.rows_in_all = rows + 1;
  return report;
}

TEST(MemoryReport, KeepsWhatItSays) {
  const MemoryReport out = report_of(kMaxMemoryRows);
  const auto in = decode_memory(encode(out));
  ASSERT_TRUE(in.ok()) << in.error().message();
  EXPECT_EQ(in->node, out.node);
  EXPECT_EQ(in->name, "node-1");
  EXPECT_EQ(in->spilled_bytes, out.spilled_bytes);
  EXPECT_TRUE(in->spills);
  EXPECT_EQ(in->job_quota_bytes, 1u << 28);
  ASSERT_EQ(in->jobs.size(), 1u);
  EXPECT_EQ(in->jobs[0].job, out.jobs[0].job);
  EXPECT_EQ(in->jobs[0].bytes, 77u);
  EXPECT_TRUE(in->copies && in->copied == 5 && in->copy_bytes == 40960);
  EXPECT_EQ(in->processes[0].job, out.processes[0].job);
  EXPECT_EQ(in->processes[0].extent_bytes, 1u << 27);
  ASSERT_EQ(in->rows.size(), kMaxMemoryRows);
  EXPECT_EQ(in->rows_in_all, kMaxMemoryRows + 1);
  const MemoryObject& row = in->rows.back();
  EXPECT_EQ(row.id, out.rows.back().id);
  EXPECT_EQ(row.state, MemoryObject::State::disk);
  EXPECT_EQ(row.bytes, kMaxMemoryRows - 1);
  EXPECT_EQ(row.held, -1);
  EXPECT_EQ(row.site, "main.cpp:12");
  ASSERT_EQ(in->sites.size(), 1u);
  EXPECT_EQ(in->sites[0].text, "main.cpp:12");
  EXPECT_EQ(in->sites[0].bytes, 4u);
  EXPECT_TRUE(in->sites[0].grows);
  ASSERT_EQ(row.holders.size(), 1u);
  EXPECT_EQ(row.holders[0].node, out.rows.back().holders[0].node);
  EXPECT_EQ(row.holders[0].refs, 2);
}

TEST(MemoryReport, HostileBytesAreRefusedOrHarmless) {
  EXPECT_FALSE(decode_memory({}).ok());
  EXPECT_FALSE(decode_memory(Blob(7)).ok());
  const Blob good = encode(report_of(3));
  for (std::size_t size = 0; size < good.size(); size += 8)
    (void)decode_memory(BlobView(good).first(size));
  std::uint64_t seed = 1;
  for (int i = 0; i < 3000; ++i) {
    Blob bad = good;
    for (int flips = 0; flips < 3; ++flips)
      bad[splitmix64(seed) % bad.size()] = static_cast<std::byte>(splitmix64(seed));
    (void)decode_memory(bad);
  }
}

}  // namespace
}  // namespace troupe::wire
