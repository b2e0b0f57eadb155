// Tests StoreUse: STORE-1 to STORE-4, against the store of a node that the test plays.
#include "troupe/runtime/client/store_use.hpp"

#include "troupe/objectstore/host.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <cstring>
#include <optional>
#include <utility>

namespace troupe::client::store_use_test {
namespace {

Fd copy_of(const Fd& descriptor) {
  return Fd(::dup(descriptor.get()));
}

struct StoreUseTest : testing::Test, StoreUse::Asks {
  StoreUseTest() {
    objectstore::HostOptions options;
    options.arena = Bytes{16 << 20};
    options.extent = Bytes{1 << 20};
    options.layout = {8, 256, 64};
    host = objectstore::Host::create(options).value();
    const auto membership = host->register_process().value();
    index = membership.process;
    wire::StoreTables tables;
    tables.processes = membership.layout.processes;
    tables.slots = membership.layout.slots;
    tables.extents = membership.layout.extents;
    tables.process = membership.process;
    tables.incarnation = membership.incarnation;
    tables.extent_bytes = membership.extent_bytes;
    std::vector<Fd> descriptors;
    descriptors.push_back(copy_of(membership.publications));
    descriptors.push_back(copy_of(membership.pins));
    descriptors.push_back(copy_of(membership.retirements));
    store.attach(tables, std::move(descriptors));
    host->confirm_process(index).value();
    store.begin(*this);
  }
  // StoreUse::Asks
  Result<bool> need_extent(std::uint64_t bytes) override {
    ++asked_extents;
    if (refuses) return Error(Code::out_of_memory, "no memory");
    auto grant = host->grant(index, bytes).value();
    wire::GiveExtent message;
    message.extent = grant.id.value;
    message.bytes = grant.bytes;
    std::vector<Fd> descriptors;
    descriptors.push_back(std::move(grant.memory));
    auto added = store.add_extent(message, std::move(descriptors));
    host->confirm_extent(index, grant.id).value();
    store.is_given();
    trimmed = store.trim().size();
    return added;
  }
  bool fetch_reader(bool, std::uint64_t, Error& error) override {
    ++asked_readers;
    error = Error(Code::object_lost, "gone");
    return false;
  }
  Result<objectstore::Location> where_is(const wire::Location&) override {
    ++asked_places;
    return Error(Code::object_lost, "nobody has it");
  }
  void views_ended() override { ++told; }

  /// Seals a value of this many bytes.
  wire::Location write(std::size_t size) {
    auto room = std::move(store.allocate(size)).value();
    std::memset(room.bytes().data(), 7, size);
    return store.seal(std::move(room), size);
  }

  std::unique_ptr<objectstore::Host> host;
  std::uint32_t index = 0;
  bool refuses = false;
  int asked_extents = 0, asked_readers = 0, asked_places = 0, told = 0;
  std::size_t trimmed = 0;
  StoreUse store;
};

TEST_F(StoreUseTest, ExtentStaysUntilTheThreadThatAskedHasUsedIt) {
  const wire::Location at = write(100'000);
  EXPECT_EQ(asked_extents, 1);
  EXPECT_EQ(trimmed, 0u) << "the thread that was given it has not tried yet";
  EXPECT_EQ(store.trim().size(), 0u) << "a value is in it";
  store.drop(at);
  EXPECT_EQ(store.trim().size(), 1u);
}

TEST_F(StoreUseTest, AllocationEndsWithTheAgentsError) {
  refuses = true;
  const auto room = store.allocate(100'000);
  ASSERT_FALSE(room);
  EXPECT_EQ(room.error().code(), Code::out_of_memory);
  EXPECT_EQ(asked_extents, 1);
}

TEST_F(StoreUseTest, AgentThatGivesNothingIsNoError) {
  const auto added = store.add_extent(wire::GiveExtent{}, {});
  ASSERT_TRUE(added);
  EXPECT_FALSE(*added);
  EXPECT_FALSE(store.add_reader(wire::GiveReader{}, {}));
}

TEST_F(StoreUseTest, OwnValueIsSeenWithoutAQuestion) {
  const wire::Location at = write(100'000);
  const auto view = store.open(at);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->bytes().size(), 100'000u);
  EXPECT_EQ(asked_readers + asked_places, 0);
}

TEST_F(StoreUseTest, ValueThatNobodyHasEndsInTheAgentsError) {
  wire::Location at = write(100'000);
  store.drop(at);
  const auto view = store.open(at);
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().code(), Code::object_lost);
  EXPECT_LE(asked_readers + asked_places, 9);
}

TEST_F(StoreUseTest, EndOfAViewIsTakenOnceAlsoAfterTheEnd) {
  const wire::Location at = write(100'000);
  host->adopt(index, wire::store_location(at)).value();
  auto view = std::move(store.open(at)).value();
  auto late = std::move(store.open(at)).value();
  host->free(wire::store_location(at)).value();
  EXPECT_FALSE(store.has_unpins());
  view = {};
  late = {};
  EXPECT_EQ(store.has_unpins(), told != 0);
  const std::size_t taken = store.take_unpins().size();
  EXPECT_EQ(taken, static_cast<std::size_t>(told));
  EXPECT_TRUE(store.take_unpins().empty());
  store.end();
  const int before = told;
  const wire::Location next = write(1'000);
  host->adopt(index, wire::store_location(next)).value();
  auto last = std::move(store.open(next)).value();
  host->free(wire::store_location(next)).value();
  last = {};
  EXPECT_EQ(told, before);
}

}  // namespace
}  // namespace troupe::client::store_use_test
