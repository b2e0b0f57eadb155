// Tests transfers when many nodes want one object. Its owner sends two copies; the other nodes
// pass on what they have while they receive the rest. Each node gets the right bytes, whichever
// node dies or loses the object.
#include "tests/runtime/agent/transfers_world.hpp"
#include "troupe/runtime/net/bulk.hpp"

namespace troupe::agent::transfers_share_test {
namespace {

using namespace test;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr ObjectId kObject{9, 1};

bool right(End& at, std::uint64_t bytes) {
  Blob expected(bytes);
  fill(expected, kObject.low);
  const BlobView got = at.bytes(kObject);
  return got.size() == bytes && checksum(got) == checksum(expected);
}

struct Share : ::testing::Test {
  static constexpr std::uint64_t kBytes = 16 * kMiB;
  explicit Share(std::size_t nodes = 9) : world({}, 512u << 20, nodes) {
    world.one.make(kObject, kBytes);
  }
  void pull_all() {
    for (End* each : world.ends())
      if (each != &world.one && each->transfers) each->pull_from(world.one.id, kObject, kBytes);
  }
  /// Makes the owner receive the requests in the order of the nodes' numbers.
  static void pull_in_order(World& world, std::uint64_t bytes) {
    for (End* each : world.ends()) {
      if (each == &world.one) continue;
      const int before = world.requests[world.one.id];
      each->pull_from(world.one.id, kObject, bytes);
      ASSERT_TRUE(world.until([&] { return world.requests[world.one.id] > before; }));
    }
  }
  bool all_ended() {
    return world.until([&] {
      for (End* each : world.ends())
        if (each != &world.one && each->transfers && !each->ended(kObject)) return false;
      return true;
    });
  }
  void expect_all_right() {
    for (End* each : world.ends()) {
      if (each == &world.one || !each->transfers) continue;
      ASSERT_TRUE(each->has(kObject)) << each->failures.at(kObject).message();
      EXPECT_TRUE(right(*each, kBytes)) << each->id.low;
    }
  }
  /// Expects that no node serves, and that nothing that was passed on is pinned.
  void expect_clean() {
    for (End* each : world.ends()) {
      if (!each->transfers) continue;
      EXPECT_TRUE(world.until([&] { return each->host->stats().waiting == 0; }, 5s));
      EXPECT_EQ(each->host->local().stats().objects, each->objects.size() + each->done_.size());
    }
  }
  World world;
};

TEST_F(Share, OfEightNodesTheOwnerServesTwo) {
  int refusals = 0, early = 0;
  world.on_message = [&](Carried& carried) {
    refusals += std::holds_alternative<wire::PullRefused>(carried.message) ? 1 : 0;
    if (std::holds_alternative<wire::PullRequest>(carried.message) && carried.to != world.one.id)
      early += world.end(carried.to).has(kObject) ? 0 : 1;
    return true;
  };
  pull_all();
  ASSERT_TRUE(all_ended());
  expect_all_right();
  EXPECT_EQ(refusals, 0);
  EXPECT_GT(early, 0) << "nobody was asked for what it was still getting";
  EXPECT_EQ(world.one.transfers->stats().sent_elsewhere, 6u);
  ASSERT_TRUE(world.until([&] {
    std::uint64_t sent = 0;
    for (End* each : world.ends()) sent += each->transfers->stats().served_bytes;
    return sent == 8 * kBytes;
  }));
  for (End* each : world.ends())
    EXPECT_LE(each->transfers->stats().served_bytes, 2 * kBytes) << each->id.low;
  expect_clean();
}

TEST_F(Share, WhoeverComesLaterGetsItFromThoseThatHaveIt) {
  for (End* each : world.ends()) {
    if (each == &world.one) continue;
    each->pull_from(world.one.id, kObject, kBytes);
    ASSERT_TRUE(world.until([&] { return each->ended(kObject); }));
  }
  expect_all_right();
  EXPECT_TRUE(world.until([&] { return world.one.transfers->stats().served_bytes == 2 * kBytes; }));
  expect_clean();
}

TEST_F(Share, WhoHasItNoMoreIsNotAskedTwice) {
  for (std::uint64_t n : {2, 3}) {
    End& each = world.end(NodeId{0, n});
    each.pull_from(world.one.id, kObject, kBytes);
    ASSERT_TRUE(world.until([&] { return each.ended(kObject); }));
    each.host->free(store_location(each.done_.at(kObject))).value();
    each.done_.clear();
    each.host->take_notices();
  }
  int refusals = 0;
  world.on_message = [&](Carried& carried) {
    refusals += std::holds_alternative<wire::PullRefused>(carried.message) ? 1 : 0;
    return true;
  };
  for (End* each : world.ends())
    if (each->id.low > 3) each->pull_from(world.one.id, kObject, kBytes);
  ASSERT_TRUE(world.until([&] {
    for (End* each : world.ends())
      if (each->id.low > 3 && !each->ended(kObject)) return false;
    return true;
  }));
  for (End* each : world.ends())
    EXPECT_TRUE(each->id.low <= 3 || (each->has(kObject) && right(*each, kBytes)));
  EXPECT_GE(refusals, 2);
  EXPECT_LE(refusals, 6);
}

struct ShareOfFour : Share {
  ShareOfFour() : Share(4) {}
};

/// The fourth node gets the object from the second, which dies after some bytes have passed.
TEST_F(ShareOfFour, WhoPassesItOnDiesAfterAnyPiece) {
  constexpr std::uint64_t frame = net::kBulkChunk + 56, bytes = 4 * kMiB;
  for (std::uint64_t k = 0; k < bytes / net::kBulkChunk; k += 3) {
    World w({}, 512u << 20, 4);
    w.one.make(kObject, bytes);
    End& last = w.end(NodeId{0, 4});
    Cutter cutter(last.transfers->port());
    cutter.budget = 16 + 56 + k * frame + 100;
    w.on_message = [&](Carried& carried) {
      auto* offer = std::get_if<wire::BulkOffer>(&carried.message);
      if (offer != nullptr && carried.from == last.id && carried.to == w.two.id)
        offer->port = cutter.port();
      return carried.to != last.id || !std::holds_alternative<wire::PullRefused>(carried.message);
    };
    pull_in_order(w, bytes);
    ASSERT_TRUE(w.until([&] { return w.requests[w.one.id] == 4; })) << "it comes back";
    w.kill(w.two);
    ASSERT_TRUE(w.until([&] { return last.ended(kObject) && w.end(NodeId{0, 3}).ended(kObject); }));
    for (std::uint64_t n : {3, 4}) {
      End& each = w.end(NodeId{0, n});
      ASSERT_TRUE(each.has(kObject)) << each.failures.at(kObject).message();
      EXPECT_TRUE(right(each, bytes));
    }
    EXPECT_EQ(last.transfers->stats().resumed_bytes, k * net::kBulkChunk)
        << "the owner sends the rest itself: another may have less";
  }
}

/// The connection from the owner to a node that passes the object on is cut. That node goes on,
/// and so do the nodes behind it.
TEST_F(ShareOfFour, ACutAboveIsNotSeenBelow) {
  Cutter cutter(world.two.transfers->port());
  cutter.once = true;
  cutter.budget = 5 * kMiB;
  world.on_message = [&](Carried& carried) {
    auto* offer = std::get_if<wire::BulkOffer>(&carried.message);
    if (offer != nullptr && carried.from == world.two.id) offer->port = cutter.port();
    return carried.to != world.two.id ||
           !std::holds_alternative<wire::PullRefused>(carried.message);
  };
  pull_in_order(world, kBytes);
  ASSERT_TRUE(all_ended());
  expect_all_right();
  EXPECT_EQ(cutter.cuts, 1);
  EXPECT_GT(world.two.transfers->stats().resumed_bytes, 4 * kMiB);
  EXPECT_EQ(world.end(NodeId{0, 4}).transfers->stats().resumed_bytes, 0u);
  expect_clean();
}

/// The fetch of a node that passes the object on fails, since the owner announces a wrong size.
/// The nodes behind it return to the owner.
TEST_F(ShareOfFour, WhoFailsTellsThoseBehindIt) {
  bool lied = false;
  world.on_message = [&](Carried& carried) {
    auto* bulk = std::get_if<wire::PullOnBulk>(&carried.message);
    const bool its = bulk != nullptr && carried.from == world.one.id && carried.to == world.two.id;
    if (its && !std::exchange(lied, true)) bulk->bytes += 1;
    return true;
  };
  pull_in_order(world, kBytes);
  ASSERT_TRUE(all_ended());
  EXPECT_EQ(world.two.failures.at(kObject).code(), Code::internal);
  for (std::uint64_t n : {3, 4}) {
    End& each = world.end(NodeId{0, n});
    ASSERT_TRUE(each.has(kObject)) << each.failures.at(kObject).message();
    EXPECT_TRUE(right(each, kBytes));
  }
  expect_clean();
}

/// The object is computed again between two attempts. Bytes of the two lives are never mixed: the
/// fetch gets those of the current life.
TEST_F(ShareOfFour, AnotherLifeOfTheObjectIsFetchedFromItsBeginning) {
  Cutter cutter(world.two.transfers->port());
  cutter.once = true;
  cutter.budget = 5 * kMiB;
  int continued = 0;
  world.on_message = [&](Carried& carried) {
    auto* offer = std::get_if<wire::BulkOffer>(&carried.message);
    if (offer != nullptr && carried.from == world.two.id) offer->port = cutter.port();
    const auto* request = std::get_if<wire::PullRequest>(&carried.message);
    if (request != nullptr && request->offset != 0) {
      ++continued;
      world.one.free(kObject);
      world.one.make(kObject, kBytes);
    }
    return true;
  };
  world.two.pull(kObject, kBytes);
  ASSERT_TRUE(world.until([&] { return world.two.ended(kObject); }));
  EXPECT_EQ(continued, 1);
  EXPECT_TRUE(world.two.has(kObject) && right(world.two, kBytes));
}

}  // namespace
}  // namespace troupe::agent::transfers_share_test
