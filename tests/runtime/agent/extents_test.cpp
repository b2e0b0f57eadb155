// Tests Extents on a real store: EXTENT-1 to EXTENT-3.
#include "troupe/runtime/agent/extents.hpp"

#include "tests/runtime/agent/played_outgoing.hpp"
#include "tests/runtime/agent/quiet_tables.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace troupe::agent::extents_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
constexpr NodeId kHere{0, 1};
constexpr ProcessIndex kProcess = 1;
constexpr JobNumber kJob = 7;
constexpr std::uint64_t kMiB = 1 << 20;

objectstore::HostOptions small_store() {
  objectstore::HostOptions options;
  options.arena = Bytes{4 * kMiB};
  options.extent = Bytes{kMiB};
  options.layout = {8, 256, 64};
  return options;
}

struct ExtentsTest : testing::Test, PlayedOutgoing, Extents::Out {
  struct NoStore : ReplicaHost::Store {
    void pull_copy(NodeId, ObjectId, std::uint64_t) override {}
    bool look_in_folders(ProcessIndex, ObjectId, std::optional<std::uint64_t>) override {
      return false;
    }
    bool is_on_disk(const wire::Location&) const override { return false; }
  };
  ExtentsTest() {
    membership = host->register_process().value();
    asker = {kProcess, membership.process, JobId{}, kJob};
  }
  ~ExtentsTest() override {
    if (!folder.empty()) fs::remove_all(folder);
  }
  // Extents::Out
  void send_with(ProcessIndex to, const wire::NodeMessage& message,
                 std::vector<int> descriptors) override {
    EXPECT_EQ(descriptors.size(), 1u);
    send(to, message, {});
  }
  void press() override { ++pressed; }
  void memory_answer(const std::optional<Error>& why) override { answers.push_back(!why); }
  void restored(NodeId, const wire::PullRequest&) override {}

  void open_spiller() {
    std::string name = (fs::temp_directory_path() / "troupe-extents-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    objectstore::SpillOptions disk;
    disk.folders = {name};
    extents.open(objectstore::SpillFiles::open(std::move(disk)).value());
  }
  void need(std::uint64_t bytes) { extents.need(asker, {bytes, ++request}, now); }
  /// Returns the answers since the last call.
  std::vector<wire::GiveExtent> given() {
    std::vector<wire::GiveExtent> all;
    for (const auto& [to, answer] : take<wire::GiveExtent>()) {
      EXPECT_EQ(to, kProcess);
      all.push_back(answer);
    }
    return all;
  }

  Time now{100s};
  const std::string name = "node";
  AgentOptions options;
  std::unique_ptr<objectstore::Host> host = objectstore::Host::create(small_store()).value();
  objectstore::Membership membership;
  fs::path folder;
  ObjectAccounting accounting;
  PrefaultPolicy prefault;
  QuietReferences quiet;
  QuietRemote quiet_remote;
  QuietActors quiet_control;
  NoStore no_store;
  ProcessIndex next = 10;
  ReferenceTable references{quiet};
  RemoteTable remote{quiet_remote, [this] { return next++; }};
  Owners owners{kHere, references, remote};
  scheduling::LeaseTable table{{}, kHere};
  ClusterLink cluster{kHere, table};
  Inquiries inquiries{*this};
  ReplicaHost replica_host{
      kHere, {references, owners, cluster, inquiries, quiet_control, *this, no_store}};
  Extents extents{
      {name, options, *host, references, accounting, prefault, copies, replica_host, *this, *this}};
  FolderCopies copies{{name, *host, references, owners, extents}};
  Extents::Asker asker;
  std::uint64_t request = 0;
  int pressed = 0;
  std::vector<bool> answers;  ///< to transfers: whether memory came
};

TEST_F(ExtentsTest, EachRequestIsAnsweredWithMemoryOrAnError) {
  need(kMiB / 2);
  auto got = given();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].request, 1u);
  EXPECT_EQ(got[0].error, nullptr);
  EXPECT_GE(got[0].bytes, kMiB / 2);
  need(100 * kMiB);
  got = given();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].request, 2u);
  EXPECT_NE(got[0].error, nullptr);
}

TEST_F(ExtentsTest, ProcessThatHasEndedGetsNoAnswer) {
  ended.insert(kProcess);
  need(100 * kMiB);
  EXPECT_TRUE(to_processes.empty());
}

TEST_F(ExtentsTest, ObjectWithoutSpillerIsLostWhenItIsNotInMemory) {
  extents.where_is(kProcess, {}, now);
  const auto told = take<wire::NowAt>();
  ASSERT_EQ(told.size(), 1u);
  ASSERT_NE(told[0].second.error, nullptr);
  EXPECT_EQ(told[0].second.error->code, Code::object_lost);
}

TEST_F(ExtentsTest, JobAtItsQuotaAsksAgainUntilItsPatienceIsOver) {
  options.job_bytes = Bytes{kMiB};
  options.spill_patience = 1s;
  accounting.made(kJob, 0, 2 * kMiB, now);
  need(1000);
  EXPECT_EQ(take<wire::MemoryPressure>().size(), 1u);
  EXPECT_EQ(extents.next_deadline(), now + 10ms);
  extents.answer_quota(now + 9ms);
  EXPECT_TRUE(given().empty());
  now += 10ms;
  extents.answer_quota(now);
  auto got = given();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].error, nullptr);
  EXPECT_EQ(got[0].bytes, 0u) << "it is told to ask again";
  for (int i = 0; i < 10; ++i) {
    need(1000);
    now += 100ms;
  }
  extents.answer_quota(now);
  given();
  need(1000);
  got = given();
  ASSERT_EQ(got.size(), 1u);
  ASSERT_NE(got[0].error, nullptr);
  EXPECT_EQ(got[0].error->code, Code::out_of_memory);
}

TEST_F(ExtentsTest, JobBelowItsQuotaGetsMemory) {
  options.job_bytes = Bytes{3 * kMiB};
  accounting.made(kJob, 0, kMiB, now);
  need(1000);
  const auto got = given();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_NE(got[0].bytes, 0u);
}

TEST_F(ExtentsTest, TransfersAreToldOnceAndNotWithinTheirRequest) {
  extents.short_of_memory(1000, now);
  extents.tell();
  EXPECT_TRUE(answers.empty()) << "nothing can be spilled";
  open_spiller();
  extents.short_of_memory(1000, now);
  EXPECT_TRUE(answers.empty());
  extents.tell();
  extents.tell();
  EXPECT_EQ(answers, std::vector<bool>{true});
  extents.short_of_memory(100 * kMiB, now);
  extents.tell();
  EXPECT_EQ(answers, (std::vector<bool>{true, false}));
}

TEST_F(ExtentsTest, OneRequestForTransfersIsOpen) {
  options.spill_patience = 10s;  // else it is refused at once, since nothing can be spilled
  open_spiller();
  while (host->grant(membership.process, kMiB).ok()) {
  }
  extents.short_of_memory(1000, now);
  extents.short_of_memory(1000, now);
  EXPECT_EQ(extents.spiller()->stats().waiting, 1u);
}

}  // namespace
}  // namespace troupe::agent::extents_test
