// Tests Leases on a real lease table: LEASES-1 to LEASES-4.
#include "troupe/runtime/agent/leases.hpp"

#include "tests/runtime/agent/played_outgoing.hpp"
#include "tests/runtime/agent/quiet_tables.hpp"
#include "troupe/runtime/agent/resource_demand.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace troupe::agent::leases_test {
namespace {

using namespace std::chrono_literals;
constexpr NodeId kHere{0, 1};
constexpr ProcessIndex kOwner = 1, kWorker = 5;
constexpr JobNumber kJob = 7;

scheduling::LeaseOptions two_cpus() {
  scheduling::LeaseOptions options;
  options.total.cpus = scheduling::amount_of(2);
  options.max_workers = 2;
  return options;
}

struct LeasesTest : testing::Test, PlayedOutgoing, Leases::Processes {
  struct Actors : QuietActors {
    explicit Actors(LeasesTest& t) : test(t) {}
    void release_worker(std::uint64_t life) override { test.leases.release_worker(life, test.now); }
    LeasesTest& test;
  };
  struct Remote : QuietRemote {
    explicit Remote(LeasesTest& t) : test(t) {}
    void send(NodeId, const wire::PeerMessage& message) override { said.push_back(message); }
    void request(ProcessIndex proxy_process, LeaseKey key, const wire::ResourceDemand& demand,
                 std::uint32_t backlog, JobId job, bool no_faster) override {
      test.leases.request(proxy_process, key, demand, backlog, job, no_faster, test.now);
    }
    LeasesTest& test;
    std::vector<wire::PeerMessage> said;
  };
  // Leases::Processes
  void start_worker(bool dedicated, JobNumber job) override { starts.emplace_back(dedicated, job); }
  void end_worker(ProcessIndex worker) override { stops.push_back(worker); }
  void connect(ProcessIndex owner, ProcessIndex worker) override {
    told_at_connect = to_processes.size();
    connections.emplace_back(owner, worker);
  }
  std::optional<std::pair<JobId, JobNumber>> job_of(ProcessIndex process) override {
    if (!is_alive(process)) return std::nullopt;
    return std::pair(JobId{}, kJob);
  }
  JobNumber number_of(JobId) override { return kJob; }
  std::string why_none_starts(JobId) override { return failed; }
  std::optional<ProcessIndex> lasting_process(JobNumber) override { return lasting; }

  void carry_out() {
    for (auto events = table.take_events(); !events.empty(); events = table.take_events())
      for (auto& event : events) leases.carry_out(event, now);
  }
  void request(std::uint32_t backlog, std::int64_t cpus = 1) {
    wire::RequestLease message;
    message.key = LeaseKey::of(9);
    message.demand.cpus = scheduling::amount_of(static_cast<double>(cpus));
    message.backlog = backlog;
    leases.on_request(kOwner, kJob, message, now);
    carry_out();
  }
  void start(ProcessIndex worker, bool dedicated = false) {
    table.worker_started(worker, now, dedicated, kJob);
    carry_out();
  }
  /// Returns the lease that the owner was told of. Precondition: there is one.
  LeaseId granted() {
    for (const auto& [to, grant] : take<wire::LeaseGranted>())
      if (to == kOwner) return grant.lease;
    ADD_FAILURE() << "no lease";
    return {};
  }

  Time now{1s};
  QuietReferences quiet;
  Remote quiet_remote{*this};
  ProcessIndex next = 100;
  scheduling::LeaseTable table{two_cpus(), kHere};
  ReferenceTable references{quiet};
  RemoteTable remote{quiet_remote, [this] { return next++; }};
  Actors quiet_actors{*this};
  ActorHost actors{quiet_actors, quiet_actors, kHere};
  Leases leases{kHere, false, {table, remote, actors, lineage, *this, *this}};
  LineageCache lineage{references, leases, Bytes{1 << 20}};
  std::vector<std::pair<bool, JobNumber>> starts;
  std::vector<ProcessIndex> stops;
  std::vector<std::pair<ProcessIndex, ProcessIndex>> connections;
  std::size_t told_at_connect = 0;
  std::optional<ProcessIndex> lasting;
  std::string failed;  ///< why no worker of the job starts here
};

TEST_F(LeasesTest, WorkerIsToldBeforeTheOwnerHearsOfTheLease) {
  request(1);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0], std::pair(false, kJob));
  start(kWorker);
  ASSERT_EQ(connections.size(), 1u);
  EXPECT_EQ(connections[0], std::pair(kOwner, kWorker));
  EXPECT_EQ(told_at_connect, 1u);
  const auto told = take<wire::LeaseGranted>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].first, kWorker);
  EXPECT_EQ(told[1].first, kOwner);
  EXPECT_EQ(told[1].second.worker, kWorker);
}

TEST_F(LeasesTest, WorkerIsToldAgainOnlyOfAnotherReservation) {
  request(1);
  start(kWorker);
  leases.on_returned(kOwner, granted(), now);
  carry_out();
  request(1);
  EXPECT_EQ(take<wire::LeaseGranted>().size(), 1u) << "the owner alone";
  leases.on_returned(kOwner, LeaseId{2}, now);
  leases.process_died(kWorker);
}

TEST_F(LeasesTest, LeaseOfAnOwnerThatIsGoneIsReturnedAtOnce) {
  request(1);
  ended.insert(kOwner);
  start(kWorker);
  EXPECT_TRUE(connections.empty());
  EXPECT_EQ(table.lease_count(), 0u);
}

TEST_F(LeasesTest, LeaseIsTakenBackFromItsOwnerAlone) {
  request(1);
  start(kWorker);
  const LeaseId lease = granted();
  leases.on_returned(kWorker, lease, now);
  EXPECT_EQ(table.lease_count(), 1u) << "nobody has asked the worker in the owner's place";
  leases.on_returned(kOwner, lease, now);
  EXPECT_EQ(table.lease_count(), 0u);
}

TEST_F(LeasesTest, OwnerHearsWhyTheOnlyNodeOfItsRequestNeverStartsAWorker) {
  scheduling::NodeView other;
  other.id = NodeId{0, 2};
  other.total.cpus = other.free.cpus = scheduling::amount_of(2);
  table.update_node(other, now);
  wire::RequestLease message;
  message.key = LeaseKey::of(9);
  message.backlog = 1;
  message.demand = wire_demand({.placement = scheduling::Placement::node, .node = other.id});
  leases.on_request(kOwner, kJob, message, now);
  carry_out();
  ASSERT_EQ(remote.asked_node(kOwner, message.key), other.id);
  leases.job_refused(kOwner, other.id, "no program", now);
  leases.spill_failed(kOwner, message.key, message.demand, 1, other.id, now);
  carry_out();
  const auto told = take<wire::LeaseRefused>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, kOwner);
  EXPECT_EQ(told[0].second.key, message.key);
  EXPECT_EQ(told[0].second.why, "no program");
}

TEST_F(LeasesTest, ABusyNodeRefusesAtOnceAJobOfWhichItStartsNoWorker) {
  constexpr NodeId kOther{0, 2};
  request(1, 2);
  start(kWorker);
  starts.clear();
  remote.on_message(kOther, wire::PeerLeaseRequest{3, 9, 1, JobId{}, {}});
  carry_out();
  EXPECT_TRUE(quiet_remote.said.empty()) << "the node is busy";
  remote.on_message(kOther, wire::PeerLeaseWithdraw{3, 9});
  failed = "no program";
  remote.on_message(kOther, wire::PeerLeaseRequest{3, 9, 2, JobId{}, {}});
  carry_out();
  ASSERT_EQ(quiet_remote.said.size(), 1u);
  const auto& refused = std::get<wire::PeerLeaseRefused>(quiet_remote.said[0]);
  EXPECT_EQ(refused.key, LeaseKey::of(9));
  EXPECT_EQ(refused.count, 2u);
  EXPECT_EQ(refused.why, "no program");
  EXPECT_TRUE(refused.for_ever);
  EXPECT_FALSE(table.is_wanted(kJob));
  EXPECT_EQ(remote.proxy_process_count(), 0u);
}

TEST_F(LeasesTest, LifeOfAnActorWaitsOrHasALease) {
  constexpr std::uint64_t kLife = 3;
  leases.need_worker(kLife, {}, kJob, now);
  carry_out();
  EXPECT_TRUE(leases.has_waiting_life(kJob));
  EXPECT_EQ(leases.waiting_lives(kJob), std::vector<std::uint64_t>{kLife});
  EXPECT_FALSE(leases.has_waiting_life(JobNumber{8}));
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_TRUE(starts[0].first) << "an actor has a worker of its own";
  start(kWorker, true);
  EXPECT_FALSE(leases.has_waiting_life(kJob));
  leases.release_worker(kLife, now);
  carry_out();
  EXPECT_EQ(table.lease_count(), 0u);
}

TEST_F(LeasesTest, WithdrawnLifeNeedsNoWorker) {
  leases.need_worker(3, {}, kJob, now);
  leases.release_worker(3, now);
  EXPECT_FALSE(leases.has_waiting_life(kJob));
  EXPECT_FALSE(table.is_wanted(kJob));
}

TEST_F(LeasesTest, CallsOfTheDeadGetALastingProcessOrAWorker) {
  lasting = kOwner;
  EXPECT_EQ(leases.find_process(kJob), kOwner);
  EXPECT_FALSE(table.is_wanted(kJob));
  lasting.reset();
  leases.pass_begins(now);
  EXPECT_EQ(leases.find_process(kJob), std::nullopt);
  EXPECT_TRUE(table.is_wanted(kJob));
  carry_out();
  start(kWorker);
  EXPECT_EQ(table.lease_count(), 0u) << "it serves them without a lease";
}

}  // namespace
}  // namespace troupe::agent::leases_test
