// Tests ReplicaHost on the real tables: KEEPING-1, KEEPING-3 and KEEPING-4.
#include "troupe/runtime/agent/replica_host.hpp"

#include "tests/runtime/agent/played_outgoing.hpp"
#include "tests/runtime/agent/quiet_tables.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace troupe::agent::replica_host_test {
namespace {

using namespace std::chrono_literals;
constexpr NodeId kHere{9, 1}, kOther{9, 2};
constexpr ProcessIndex kProcess = 1;
constexpr ObjectId kObject{1, 5 | wire::kHasCopies};

struct ReplicaHostTest : testing::Test,
                         ReferenceTable::Out,
                         ControlPort,
                         PlayedOutgoing,
                         ReplicaHost::Store {
  ReplicaHostTest() { host.join(); }
  // ReferenceTable::Out
  void ready(ProcessIndex to, ObjectId object, const wire::Value& value, BlobView) override {
    if (to == kSelf) return host.replicas().arrived(object, value);
    answers.push_back(value.kind);
  }
  void free(const wire::Location& at) override {
    if (!host.gave_back_lent(at)) freed.push_back(at.slot);
  }
  void unreferenced(ActorId) override {}
  void pull(ProcessIndex owner, ObjectId object, std::uint64_t bytes) override {
    if (owners.is_lost(owner)) host.replicas().fetch(owner, object, bytes);
  }
  void peer_await(ProcessIndex owner, ObjectId object) override {
    if (owners.is_lost(owner)) host.replicas().look(owner, object);
  }
  // ControlPort
  void send(control::ToControl message) override { asked.push_back(std::move(message)); }
  using PlayedOutgoing::send;
  // ReplicaHost::Store
  void pull_copy(NodeId, ObjectId, std::uint64_t) override {}
  bool look_in_folders(ProcessIndex, ObjectId, std::optional<std::uint64_t>) override {
    ++looks;
    return has_folders;
  }
  bool is_on_disk(const wire::Location&) const override { return on_disk; }

  ProcessIndex other() { return owners.index_of(kOther); }
  void lose(NodeId node) {
    ErrorInfo why;
    why.message = "it died";
    owners.node_lost(node, why);
    host.forget_name_questions();
    host.replicas().node_died(node, now);
  }
  /// The process holds the other node's object, whose bytes are there.
  void hold_object() {
    owners.take_in(kOther, {kObject, kOther});
    references.hold(kObject, kProcess, +1);
    say_value(kObject);
  }
  void say_value(ObjectId object) {
    wire::PeerReady ready;
    ready.object = object;
    ready.value.kind = wire::Value::Kind::remote;
    ready.value.remote_bytes = 100;
    EXPECT_TRUE(host.on_ready(kOther, ready, {}));
  }
  /// This node keeps a replica of the other's object, in slot 3.
  void keep() {
    host.on_message(kOther, wire::PeerKeep{kObject, true, 2}, now);
    say_value(wire::copy_of(kObject));
    wire::Location at;
    at.slot = 3;
    references.pulled(wire::copy_of(kObject), at);
    host.carry_out(now);
  }
  void settle() {
    for (int i = 0; i < 10; ++i) {
      references.settle();
      host.carry_out(now);
    }
  }
  /// Asks which object has the name, as a process does. Returns control's answer to it.
  control::NamedObject ask_for(const std::string& name) {
    host.on_name_object(kProcess, {}, {++request, wire::NameObject::Verb::find, name, {}, 0, ""});
    control::NamedObject reply;
    reply.request = std::get<control::NameObject>(asked.back()).request;
    reply.done = true;
    reply.what.name = name;
    reply.what.object = kObject;
    reply.what.owner = reply.what.keeper = kOther;
    return reply;
  }

  Time now{100s};
  QuietRemote quiet_remote;
  ProcessIndex next = 10;
  ReferenceTable references{*this};
  RemoteTable remote{quiet_remote, [this] { return next++; }};
  Owners owners{kHere, references, remote};
  scheduling::LeaseTable leases{{}, kHere};
  ClusterLink cluster{kHere, leases};
  Inquiries inquiries{*this};
  ReplicaHost host{kHere, {references, owners, cluster, inquiries, *this, *this, *this}};
  std::vector<wire::Value::Kind> answers;
  std::vector<std::uint32_t> freed;
  std::vector<control::ToControl> asked;
  int looks = 0;
  bool has_folders = false, on_disk = false;
  std::uint64_t request = 0;
};

TEST_F(ReplicaHostTest, LentReplicaOutlivesTheObjectThatUsesItsBytes) {
  hold_object();
  keep();
  lose(kOther);
  references.await(kObject, kProcess, true);
  settle();
  const wire::Value* value = references.value_of(kObject);
  ASSERT_NE(value, nullptr);
  EXPECT_EQ(value->kind, wire::Value::Kind::shared);
  EXPECT_EQ(value->location.slot, 3u);
  references.hold(kObject, kProcess, -1);
  settle();
  EXPECT_TRUE(freed.empty()) << "the replica still has these bytes";
  EXPECT_NE(references.value_of(wire::copy_of(kObject)), nullptr);
}

TEST_F(ReplicaHostTest, SearchWithoutReplicaGoesOnInTheFoldersOrEndsInAnError) {
  hold_object();
  lose(kOther);
  references.await(kObject, kProcess, true);
  for (int i = 0; i < 60; ++i, now += 250ms) host.carry_out(now);
  EXPECT_EQ(looks, 1);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0], wire::Value::Kind::error);
}

TEST_F(ReplicaHostTest, SearchThatGoesOnInTheFoldersHasNoErrorYet) {
  has_folders = true;
  hold_object();
  lose(kOther);
  references.await(kObject, kProcess, true);
  for (int i = 0; i < 60; ++i, now += 250ms) host.carry_out(now);
  EXPECT_EQ(looks, 1);
  EXPECT_TRUE(answers.empty());
}

TEST_F(ReplicaHostTest, ProcessHoldsAnObjectThatItFoundByNameBeforeItIsTold) {
  const control::NamedObject reply = ask_for("weights");
  host.on_named_object(reply, reply, now);
  const auto told = take<wire::NamedObject>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, kProcess);
  EXPECT_EQ(owners.owner_of(kObject), kOther);
  settle();
  EXPECT_TRUE(references.knows(kObject)) << "the process holds it";
}

TEST_F(ReplicaHostTest, ProcessThatHasEndedHoldsNothingThatItAskedFor) {
  const control::NamedObject reply = ask_for("weights");
  ended.insert(kProcess);
  host.on_named_object(reply, reply, now);
  EXPECT_TRUE(take<wire::NamedObject>().empty());
  EXPECT_FALSE(references.knows(kObject));
}

TEST_F(ReplicaHostTest, ReplicasAreRefusedWhereThereIsNothingToCopy) {
  host.on_replicate(kProcess, {7, kObject, 2, 0}, now);
  const auto told = take<wire::Replicated>();
  ASSERT_EQ(told.size(), 1u);
  ASSERT_NE(told[0].second.error, nullptr);
  EXPECT_EQ(told[0].second.error->code, Code::invalid_argument);
}

TEST_F(ReplicaHostTest, OwnerSendsItsOwnBytesForAReplicaThatAnotherKeeps) {
  EXPECT_EQ(host.served(wire::copy_of(kObject)), kObject);
  EXPECT_EQ(host.served(kObject), kObject);
  hold_object();
  keep();
  EXPECT_EQ(host.served(wire::copy_of(kObject)), wire::copy_of(kObject));
}

TEST_F(ReplicaHostTest, PlaceOfAnObjectNamesDiskAndMemory) {
  EXPECT_EQ(host.place_of(kObject).bytes, 0u);
  hold_object();
  EXPECT_FALSE(host.place_of(kObject).here);
  EXPECT_EQ(host.place_of(kObject).bytes, 100u);
  keep();
  EXPECT_TRUE(host.place_of(kObject).here) << "the replica's bytes are those of the object";
  EXPECT_FALSE(host.place_of(kObject).spilled);
  on_disk = true;
  EXPECT_TRUE(host.place_of(kObject).spilled);
}

}  // namespace
}  // namespace troupe::agent::replica_host_test
