// Tests Objects on a real store, with the parts around it: OBJECT-1 to OBJECT-4.
#include "troupe/runtime/agent/objects.hpp"

#include "tests/runtime/agent/played_objects.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe::agent::objects_test {
namespace {

using namespace std::chrono_literals;
constexpr NodeId kHere{0, 1}, kOther{0, 2};
constexpr ObjectId kObject{0, 16}, kWithCopies{1, 5 | wire::kHasCopies};

struct ObjectsTest : testing::Test, PlayedObjects {
  /// Returns a process with tables in the store and a socket.
  Process& process() {
    peers.push_back(connect());
    Process& one = of(peers.back());
    one.speaks_as = Talker::worker;
    one.kind = wire::ProcessKind::worker;
    one.introduced = true;  // without a ring: it gets messages over its socket
    one.store_index = host->register_process().value().process;
    EXPECT_TRUE(host->confirm_process(one.store_index).ok());
    return one;
  }
  void say(Process& from, wire::NodeMessage message) { objects.on_store(from, message); }
  void pass(bool read_all = true) {
    objects.pass_begins();
    objects.pass_ended(read_all);
    objects.carry_out_deferred();
  }
  /// Returns the next message of this kind on the process's socket; nullopt: none.
  template <class Message>
  std::optional<Message> read(const Process& at, std::vector<Fd>* descriptors = nullptr) {
    return peers.at(at.index.value - 1).read<Message>(descriptors);
  }
  /// Returns the place of a sealed object in the store.
  wire::Location sealed(std::uint64_t bytes) {
    auto memory = host->create_local(bytes, false);
    EXPECT_TRUE(memory.ok());
    return wire::wire_location(host->local().seal(*std::move(memory), 0, bytes));
  }
  static wire::Location place(std::uint32_t slot) {
    wire::Location at;
    at.slot = slot;
    at.length = 8;
    return at;
  }
  template <class Message>
  std::vector<NodeId> asked() {
    std::vector<NodeId> nodes;
    for (const auto& sent : to_nodes)
      if (std::holds_alternative<Message>(sent.message)) nodes.push_back(sent.to);
    to_nodes.clear();
    return nodes;
  }

  std::vector<Peer> peers;
};

TEST_F(ObjectsTest, FreeWaitsUntilAllThatWasReadyHasBeenRead) {
  objects.pass_begins();
  objects.free(place(1));
  objects.pass_ended(false);
  objects.carry_out_deferred();
  EXPECT_TRUE(objects.has_frees()) << "an Adopt may still be unread";
  pass();
  EXPECT_FALSE(objects.has_frees());
}

TEST_F(ObjectsTest, FreeWaitsWhileTheRingOfAnEndingProcessIsUnread) {
  Process& one = process();
  objects.free(place(1));
  processes.break_off(one, "a test ends it");
  pass();
  EXPECT_TRUE(objects.has_frees());
  processes.remove(one.index);
  pass();
  EXPECT_FALSE(objects.has_frees());
}

TEST_F(ObjectsTest, ReaderOfMemoryThatDoesNotComeGetsAnErrorInTheEnd) {
  Process& one = process();
  wire::NeedReader request;
  request.is_segment = false;
  request.id = 12345;
  say(one, request);
  EXPECT_TRUE(objects.has_readers());
  int passes = 0;
  for (; objects.has_readers() && passes < 10; ++passes) pass();
  EXPECT_LE(passes, 4);
  const auto answer = read<wire::GiveReader>(one);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->id, 12345u);
  EXPECT_TRUE(answer->error);
  EXPECT_FALSE(read<wire::GiveReader>(one)) << "one answer";
}

TEST_F(ObjectsTest, ReaderGetsTheMemoryWithItsDescriptor) {
  Process& maker = process();
  Process& reader = process();
  auto grant = host->grant(maker.store_index, 1000);
  ASSERT_TRUE(grant.ok());
  ASSERT_TRUE(host->confirm_extent(maker.store_index, grant.value().id).ok());
  wire::NeedReader request;
  request.id = grant.value().id.value;
  say(reader, request);
  pass();
  std::vector<Fd> descriptors;
  const auto answer = read<wire::GiveReader>(reader, &descriptors);
  ASSERT_TRUE(answer);
  EXPECT_FALSE(answer->error);
  EXPECT_EQ(descriptors.size(), 1u);
}

TEST_F(ObjectsTest, ProcessesOfTheStoreAloneForgetAnExtent) {
  Process& maker = process();
  Process& reader = process();
  Process& observer = process();
  observer.store_index = 0;
  auto grant = host->grant(maker.store_index, 1000);
  ASSERT_TRUE(grant.ok());
  ASSERT_TRUE(host->confirm_extent(maker.store_index, grant.value().id).ok());
  wire::GiveBack back;
  back.extent = grant.value().id.value;
  say(maker, back);
  objects.send_notices();
  const auto told = read<wire::Forget>(reader);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->id, back.extent);
  EXPECT_FALSE(read<wire::Forget>(observer));
}

TEST_F(ObjectsTest, ReaderThatHasEndedIsForgotten) {
  Process& one = process();
  say(one, wire::NeedReader{});
  EXPECT_TRUE(objects.has_readers());
  processes.remove(one.index);
  pass();
  EXPECT_FALSE(objects.has_readers());
}

TEST_F(ObjectsTest, ObjectOfADeadProcessIsFreedOnceUnlessTheTableOwnsIt) {
  InFlightRefs& in_flight = objects.in_flight_refs();
  in_flight.adopted(5, 5, {}, place(1));
  in_flight.adopted(5, 5, {}, place(2));
  wire::Value value;
  value.kind = wire::Value::Kind::shared;
  value.location = place(2);
  objects.counted(value);
  EXPECT_EQ(in_flight.objects(), 2u);
  objects.process_died(5, {});
  objects.process_died(5, {});
  pass();
  EXPECT_EQ(in_flight.objects(), 1u) << "the table frees the other";
  objects.free(place(2));
  pass();
  EXPECT_EQ(in_flight.objects(), 0u);
}

TEST_F(ObjectsTest, AdoptedObjectCountsForItsMakerAndItsMemoryIsFreed) {
  options.job_bytes = Bytes{1 << 20};  // else nobody asks who made it
  Process& maker = process();
  maker.store_index = 0;  // as the agent's own objects, which a test can make
  maker.job_number = 7;
  wire::Adopt message;
  message.location = sealed(1000);
  say(maker, message);
  EXPECT_EQ(objects.in_flight_refs().objects(), 1u);
  EXPECT_EQ(host->stats().objects, 1u);
  EXPECT_EQ(memory.accounting().bytes_of(7), message.location.length);
  EXPECT_EQ(maker.objections, 0u);
  objects.process_died(maker.index, {});
  EXPECT_EQ(host->stats().objects, 1u) << "an Adopt may still be unread";
  pass();
  EXPECT_EQ(host->stats().objects, 0u);
  EXPECT_EQ(objects.in_flight_refs().objects(), 0u);
  EXPECT_EQ(memory.accounting().bytes_of(7), 0u);
}

TEST_F(ObjectsTest, PlaceThatTheStoreDoesNotHaveIsNotAdopted) {
  Process& one = process();
  wire::Adopt message;
  message.location = place(3);
  message.location.segment = 77;
  say(one, message);
  EXPECT_EQ(objects.in_flight_refs().objects(), 0u);
  EXPECT_EQ(memory.site_of(message.location), nullptr);
}

TEST_F(ObjectsTest, FloodOfPlacesThatTheStoreDoesNotHaveLeavesFewEvents) {
  Process& one = process();
  wire::Adopt message;
  message.location = place(3);
  message.location.segment = 77;
  for (int i = 0; i < 1000; ++i) say(one, message);
  EXPECT_EQ(one.objections, 1000u);
  EXPECT_EQ(events.log().size(), 10u) << "of the 1st, 2nd, 4th … 512th";
}

TEST_F(ObjectsTest, ValueGoesToTheProcessOrNodeThatAwaitsIt) {
  Process& one = process();
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  objects.ready(one.index, kObject, value, {});
  const auto told = read<wire::Ready>(one);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->object, kObject);
  objects.ready(owners.index_of(kOther), kObject, value, {});
  EXPECT_EQ(asked<wire::PeerReady>(), std::vector<NodeId>{kOther});
}

TEST_F(ObjectsTest, OwnersNodeIsAskedWhileItIsInReach) {
  const ProcessIndex owner = owners.index_of_owner(kOther);
  objects.peer_await(owner, kObject);
  EXPECT_EQ(asked<wire::PeerAwait>(), std::vector<NodeId>{kOther});
  objects.peer_hold(owner, kObject, kSelf, +1);
  ASSERT_EQ(to_nodes.size(), 1u);
  EXPECT_EQ(std::get<wire::PeerHold>(to_nodes[0].message).holder, kHere);
  to_nodes.clear();
  ErrorInfo why;
  why.code = Code::unavailable;
  owners.node_lost(kOther, why);
  objects.peer_await(owner, kWithCopies);
  EXPECT_TRUE(asked<wire::PeerAwait>().empty()) << "replicas are looked for";
}

}  // namespace
}  // namespace troupe::agent::objects_test
