// Tests transfers between two nodes over real sockets. Objects of every size arrive byte for
// byte, many at once, both ways. Whatever breaks, each pull ends once with a value or a typed
// error, and all memory is released.
#include "tests/runtime/agent/transfers_world.hpp"
#include "troupe/runtime/net/bulk.hpp"

#include <cstdio>

namespace troupe::agent {
namespace {

using namespace test;

constexpr std::uint64_t kMiB = 1 << 20;

ObjectId object(std::uint64_t n) {
  return {9, n};
}

/// Returns whether the object arrived as it was made.
bool right(End& at, ObjectId id, std::uint64_t bytes) {
  Blob expected(bytes);
  fill(expected, id.low);
  const BlobView got = at.bytes(id);
  return got.size() == bytes && checksum(got) == checksum(expected);
}

/// Expects that only adopted objects take memory, and that no served object is pinned.
void expect_clean(World& world) {
  for (End* each : {&world.one, &world.two}) {
    const auto nothing_waits = [&] { return each->host->stats().waiting == 0; };
    EXPECT_TRUE(world.until(nothing_waits, 5s));
    EXPECT_EQ(each->host->local().stats().objects, each->objects.size() + each->done_.size());
  }
}

TransfersOptions hasty() {
  TransfersOptions options;
  options.plan.idle = 100ms;
  options.plan.patience = 100ms;
  options.plan.pause = 10ms;
  return options;
}

TEST(Transfers, ObjectsOfEverySizeArriveByteForByte) {
  World world;
  const std::vector<std::uint64_t> sizes = {
      0, 100, 5000, kSmallObject, kSmallObject + 1, net::kBulkChunk * 2, kMiB + 3, 64 * kMiB};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    world.one.make(object(i), sizes[i]);
    world.two.pull(object(i), sizes[i]);
    ASSERT_TRUE(world.until([&] { return world.two.ended(object(i)); }));
    ASSERT_TRUE(world.two.has(object(i))) << world.two.failures.at(object(i)).message();
    EXPECT_TRUE(right(world.two, object(i), sizes[i])) << sizes[i];
  }
  EXPECT_EQ(world.two.transfers->stats().connections, 1u);
  EXPECT_TRUE(
      world.until([&] { return world.one.transfers->stats().served_objects == sizes.size(); }));
  expect_clean(world);
}

TEST(Transfers, FiftyAtOnceBothWays) {
  TransfersOptions options;
  options.plan.node_bytes = 3 * kMiB;
  World world(options);
  Random random(5);
  std::map<ObjectId, std::uint64_t> sizes;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t bytes = i % 3 == 0 ? random.below(5000) : random.below(2 * kMiB);
    (i < 50 ? world.one : world.two).make(object(i), bytes);
    sizes[object(i)] = bytes;
  }
  for (const auto& [id, bytes] : sizes) (id.low < 50 ? world.two : world.one).pull(id, bytes);
  ASSERT_TRUE(
      world.until([&] { return world.one.done_.size() == 50 && world.two.done_.size() == 50; }));
  for (const auto& [id, bytes] : sizes)
    EXPECT_TRUE(right(id.low < 50 ? world.two : world.one, id, bytes)) << id.low;
  EXPECT_TRUE(world.one.failures.empty() && world.two.failures.empty());
  expect_clean(world);
}

TEST(Transfers, AnObjectAskedForTwiceComesOnce) {
  World world;
  world.one.make(object(1), kMiB);
  world.two.pull(object(1), kMiB);
  world.two.pull(object(1), kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(1)); }));
  EXPECT_EQ(world.two.transfers->stats().pulled_objects, 1u);
  EXPECT_TRUE(world.until([&] { return world.one.transfers->stats().served_objects == 1; }));
  expect_clean(world);
}

TEST(Transfers, AnObjectFreedWhileItIsServedArrivesAndOneFreedBeforeIsLost) {
  World world;
  world.one.make(object(1), 16 * kMiB);
  world.one.make(object(2), 10);
  world.on_message = [&](Carried& carried) {
    if (std::holds_alternative<wire::PullOnBulk>(carried.message)) world.one.free(object(1));
    return true;
  };
  world.two.pull(object(1), 16 * kMiB);
  world.two.pull(object(2), 10);
  world.one.free(object(2));
  world.two.pull(object(3), 2 * kMiB);  // the object never existed
  ASSERT_TRUE(world.until([&] {
    return world.two.ended(object(1)) && world.two.ended(object(2)) && world.two.ended(object(3));
  }));
  ASSERT_TRUE(world.two.has(object(1)));
  EXPECT_TRUE(right(world.two, object(1), 16 * kMiB));
  EXPECT_EQ(world.two.failures.at(object(2)).code(), Code::object_lost);
  EXPECT_EQ(world.two.failures.at(object(3)).code(), Code::object_lost);
  expect_clean(world);
}

TEST(Transfers, AConnectionCutAtAnyByteIsMadeAgain) {
  TransfersOptions options;  // only silence shows a cut before the connection's name is known
  options.plan.silence = 2s;
  World world(options);
  Cutter cutter(world.two.transfers->port());
  world.on_message = [&](Carried& carried) {
    if (auto* offer = std::get_if<wire::BulkOffer>(&carried.message)) offer->port = cutter.port();
    return true;
  };
  cutter.once = true;
  Random random(11);
  for (std::uint64_t i = 0; i < 12; ++i) {
    world.one.make(object(i), 3 * kMiB);
    cutter.budget = i < 4 ? 1 + 30 * i : random.below(3 * kMiB);
    world.two.pull(object(i), 3 * kMiB);
    ASSERT_TRUE(world.until([&] { return world.two.ended(object(i)); }));
    ASSERT_TRUE(world.two.has(object(i))) << world.two.failures.at(object(i)).message();
    EXPECT_TRUE(right(world.two, object(i), 3 * kMiB));
    // The server closes the connection, so that the next object gets a connection of its own.
    world.one.transfers->node_died(world.two.id, true, steady_now());
    ASSERT_TRUE(world.until([&] { return world.two.transfers->stats().threads == 0; }));
  }
  EXPECT_EQ(cutter.cuts, 12);
  EXPECT_EQ(world.two.transfers->stats().connections, 24u);
  expect_clean(world);
}

/// Bytes that have arrived stay: only the piece that was cut is sent again.
TEST(Transfers, AConnectionCutAfterAnyPieceGoesOnFromThere) {
  TransfersOptions options;
  options.plan.silence = 2s;
  World world(options);
  Cutter cutter(world.two.transfers->port());
  world.on_message = [&](Carried& carried) {
    if (auto* offer = std::get_if<wire::BulkOffer>(&carried.message)) offer->port = cutter.port();
    // Without PullRefused, only the end of the connection shows the failure, after everything
    // before it has been read.
    return !std::holds_alternative<wire::PullRefused>(carried.message);
  };
  cutter.once = true;
  constexpr std::uint64_t frame = net::kBulkChunk + 56, pieces = 8;
  for (std::uint64_t k = 0; k < pieces; ++k) {
    const std::uint64_t before = world.two.transfers->stats().resumed_bytes;
    world.one.make(object(k), pieces * net::kBulkChunk);
    cutter.budget = 16 + 56 + k * frame + 1 + k * 20'000;
    world.two.pull(object(k), pieces * net::kBulkChunk);
    ASSERT_TRUE(world.until([&] { return world.two.ended(object(k)); }));
    ASSERT_TRUE(world.two.has(object(k))) << world.two.failures.at(object(k)).message();
    EXPECT_TRUE(right(world.two, object(k), pieces * net::kBulkChunk)) << k;
    EXPECT_EQ(world.two.transfers->stats().resumed_bytes - before, k * net::kBulkChunk);
    world.one.transfers->node_died(world.two.id, true, steady_now());
    ASSERT_TRUE(world.until([&] { return world.two.transfers->stats().threads == 0; }));
  }
  expect_clean(world);
}

TEST(Transfers, AConnectionThatIsCutAgainAndAgainBringsItPieceByPiece) {
  World world;
  Cutter cutter(world.two.transfers->port());
  cutter.budget = kMiB;
  world.on_message = [&](Carried& carried) {
    if (auto* offer = std::get_if<wire::BulkOffer>(&carried.message)) offer->port = cutter.port();
    return !std::holds_alternative<wire::PullRefused>(carried.message);
  };
  world.one.make(object(1), 4 * kMiB);
  world.two.pull(object(1), 4 * kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(1)); }));
  ASSERT_TRUE(world.two.has(object(1))) << world.two.failures.at(object(1)).message();
  EXPECT_TRUE(right(world.two, object(1), 4 * kMiB));
  EXPECT_EQ(world.two.transfers->stats().connections, 6u) << "three pieces each time";
  EXPECT_EQ(world.two.transfers->stats().resumed_bytes, (3 + 6 + 9 + 12 + 15) * net::kBulkChunk);
  expect_clean(world);
}

TEST(Transfers, AConnectionThatIsAlwaysCutIsUnavailable) {
  World world;
  Cutter cutter(world.two.transfers->port());
  cutter.budget = net::kBulkChunk;
  world.on_message = [&](Carried& carried) {
    if (auto* offer = std::get_if<wire::BulkOffer>(&carried.message)) offer->port = cutter.port();
    return true;
  };
  world.one.make(object(1), 4 * kMiB);
  world.two.pull(object(1), 4 * kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(1)); }));
  EXPECT_EQ(world.two.failures.at(object(1)).code(), Code::unavailable);
  EXPECT_EQ(world.two.transfers->stats().connections, 2u);
  expect_clean(world);
}

TEST(Transfers, ANodeKilledAtAnyChunkLosesWhatDidNotArrive) {
  Random random(3);
  for (int i = 0; i < 6; ++i) {
    World world;
    Cutter cutter(world.two.transfers->port());
    cutter.budget = random.below(10 * kMiB);
    world.on_message = [&](Carried& carried) {
      auto* offer = std::get_if<wire::BulkOffer>(&carried.message);
      if (offer != nullptr && carried.from == world.two.id) offer->port = cutter.port();
      return true;
    };
    for (std::uint64_t n = 0; n < 6; ++n) {
      world.one.make(object(n), 2 * kMiB);
      world.two.pull(object(n), 2 * kMiB);
    }
    world.two.make(object(7), 2 * kMiB);
    world.one.pull(object(7), 2 * kMiB);  // node 1 serves a dead node too
    ASSERT_TRUE(world.until([&] { return cutter.cuts > 0; }));
    world.kill(world.one);
    const auto over = [&] { return world.two.done_.size() + world.two.failures.size() == 6; };
    ASSERT_TRUE(world.until(over));
    for (const auto& [id, error] : world.two.failures)
      EXPECT_EQ(error.code(), Code::object_lost) << error.message();
    EXPECT_GE(world.two.failures.size(), 1u);
    for (const auto& [id, at] : world.two.done_) EXPECT_TRUE(right(world.two, id, 2 * kMiB));
    EXPECT_TRUE(world.until([&] {
      return world.two.host->local().stats().objects == 1 + world.two.done_.size() &&
             world.two.transfers->stats().threads == 0;
    }));
  }
}

TEST(Transfers, AWrongKeyIsForgedAndTriedOnceMore) {
  World world;
  int corrupted = 0, most = 1;
  world.on_message = [&](Carried& carried) {
    auto* offer = std::get_if<wire::BulkOffer>(&carried.message);
    if (offer != nullptr && corrupted < most) {
      offer->key[5] ^= 1;
      ++corrupted;
    }
    return true;
  };
  world.one.make(object(1), kMiB);
  world.two.pull(object(1), kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(1)); }));
  EXPECT_TRUE(world.two.has(object(1)) && right(world.two, object(1), kMiB));
  EXPECT_EQ(world.two.transfers->stats().forged, 1u);

  World other;
  most = 100;
  other.on_message = world.on_message;
  other.one.make(object(1), kMiB);
  other.two.pull(object(1), kMiB);
  ASSERT_TRUE(other.until([&] { return other.two.ended(object(1)); }));
  EXPECT_EQ(other.two.failures.at(object(1)).code(), Code::unavailable);
  EXPECT_EQ(other.two.transfers->stats().forged, 2u);
  expect_clean(other);
}

TEST(Transfers, ASilentPeerIsGivenUp) {
  TransfersOptions options;
  options.plan.silence = 150ms;
  World world(options);
  world.one.make(object(1), kMiB);
  world.one.make(object(2), 100);
  world.on_message = [](Carried&) { return false; };
  world.two.pull(object(1), kMiB);
  world.two.pull(object(2), 100);
  ASSERT_TRUE(
      world.until([&] { return world.two.ended(object(1)) && world.two.ended(object(2)); }, 5s));
  for (std::uint64_t n : {1, 2})
    EXPECT_EQ(world.two.failures.at(object(n)).code(), Code::unavailable);
  expect_clean(world);
}

TEST(Transfers, WithoutMemoryItEndsInOutOfMemory) {
  World world(hasty(), 64 * kMiB);
  world.one.make(object(1), 4 * kMiB);
  world.two.make(object(2), 62 * kMiB);
  world.two.pull(object(1), 4 * kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(1)); }));
  EXPECT_EQ(world.two.failures.at(object(1)).code(), Code::out_of_memory);
  world.two.failures.clear();
  world.two.pull(object(1), 4 * kMiB);
  world.two.free(object(2));  // before the transfer gives up
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(1)); }));
  EXPECT_TRUE(world.two.has(object(1)));
  expect_clean(world);
}

/// The host reports that memory has become free, so that a transfer need not wait for its next
/// attempt, which is far away.
TEST(Transfers, MemoryThatIsMadeFreeIsUsedAtOnceAndAFullDiskIsNamed) {
  TransfersOptions options;
  options.plan.pause = 30s;
  options.plan.patience = 60s;
  World world(options, 64 * kMiB);
  world.one.make(object(1), 4 * kMiB);
  world.one.make(object(3), 16 * kMiB);
  world.one.make(object(4), 1000);
  world.two.make(object(2), 62 * kMiB);
  world.two.pull(object(1), 4 * kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.wanted >= 4 * kMiB; }, 5s));
  EXPECT_FALSE(world.two.ended(object(1)));
  world.two.free(object(2));
  world.two.transfers->memory_came(steady_now());
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(1)); }, 5s));
  EXPECT_TRUE(right(world.two, object(1), 4 * kMiB));

  world.two.make(object(5), 48 * kMiB);
  world.two.wanted = 0;
  world.two.pull(object(3), 16 * kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.wanted >= 16 * kMiB; }, 5s));
  world.two.transfers->memory_refused(Error(Code::out_of_disk, "the disk is full"), steady_now());
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(3)); }, 5s));
  EXPECT_EQ(world.two.failures.at(object(3)).code(), Code::out_of_disk);
  world.two.pull(object(4), 1000);
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(4)); }, 5s));
  EXPECT_TRUE(world.two.has(object(4))) << "it was told to one";
  expect_clean(world);
}

TEST(Transfers, WhatIsCancelledIsDropped) {
  World world;
  for (std::uint64_t n : {1, 2, 3}) world.one.make(object(n), n == 3 ? 100 : 8 * kMiB);
  for (std::uint64_t n : {1, 2, 3}) world.two.pull(object(n), n == 3 ? 100 : 8 * kMiB);
  world.two.transfers->cancel(object(1), steady_now());
  world.two.transfers->cancel(object(3), steady_now());
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(2)); }));
  ASSERT_TRUE(world.until([&] { return world.two.host->local().stats().objects == 1; }));
  EXPECT_FALSE(world.two.ended(object(1)) || world.two.ended(object(3)));
  expect_clean(world);
}

TEST(Transfers, MemoryOfTheAgentIsGivenBackWhenNothingIsInIt) {
  World world(hasty());
  for (std::uint64_t n = 0; n < 3; ++n) {
    world.one.make(object(n), 40 * kMiB);
    world.two.pull(object(n), 40 * kMiB);
  }
  ASSERT_TRUE(world.until([&] { return world.two.done_.size() == 3; }));
  EXPECT_EQ(world.two.host->local().stats().capacity, 3 * 64 * kMiB);
  for (const auto& [id, at] : world.two.done_) world.two.host->free(store_location(at)).value();
  EXPECT_TRUE(world.until([&] { return world.two.host->local().stats().capacity == 64 * kMiB; }));
  EXPECT_EQ(world.two.host->stats().extents, 1u);
}

TEST(Transfers, IdleConnectionsEndTheirThreads) {
  TransfersOptions options = hasty();
  options.serve_idle = 200ms;
  World world(options);
  world.one.make(object(1), kMiB);
  world.two.pull(object(1), kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(1)); }));
  EXPECT_GE(world.two.transfers->stats().threads, 1u);
  EXPECT_TRUE(world.until(
      [&] {
        return world.one.transfers->stats().threads + world.two.transfers->stats().threads == 0;
      },
      5s));
  EXPECT_EQ(world.two.transfers->stats().lost, 0u);
  world.one.make(object(2), kMiB);
  world.two.pull(object(2), kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(2)); }));
  EXPECT_TRUE(world.two.has(object(2)));
  EXPECT_EQ(world.two.transfers->stats().connections, 2u);
}

TEST(Transfers, AServerThatHasEndedItsConnectionIsAskedToMakeAnother) {
  TransfersOptions options;
  options.serve_idle = 100ms;
  World world(options);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    world.one.make(object(n), kMiB);
    world.two.pull(object(n), kMiB);
    ASSERT_TRUE(world.until([&] { return world.two.ended(object(n)); }));
    EXPECT_TRUE(world.two.has(object(n)));
    world.until([&] { return world.one.transfers->stats().threads == 0; }, 5s);
  }
  expect_clean(world);
}

TEST(Transfers, LiesOfAPeerHurtOnlyWhatIsItsOwn) {
  World world(hasty());
  world.one.make(object(1), 2 * kMiB);
  world.one.make(object(2), 100);
  Transfers& two = *world.two.transfers;
  const Time now = steady_now();
  std::vector<std::uint64_t> transfers;
  world.on_message = [&](Carried& carried) {
    if (auto* request = std::get_if<wire::PullRequest>(&carried.message))
      transfers.push_back(request->transfer);
    return true;
  };
  world.two.pull(object(1), 3 * kMiB);  // the object has fewer bytes
  world.two.pull(object(2), 50);        // the object has more bytes
  // Answers by another node, and answers to questions that were not asked.
  for (std::uint64_t t = 0; t < 20; ++t) {
    two.on_message(NodeId{0, 9}, wire::PullData{t, 0, 50}, Blob(50), now);
    two.on_message(NodeId{0, 9}, wire::PullRefused{t, nullptr}, {}, now);
    two.on_message(world.one.id, wire::PullData{100 + t, 0, 50}, Blob(50), now);
    two.on_message(world.one.id, wire::PullOnBulk{100 + t, 50}, {}, now);
  }
  two.on_message(world.one.id, wire::BulkOffer{1, 2, "no address", 1, std::string(32, 'k')}, {},
                 now);
  two.on_message(world.one.id, wire::BulkOffer{1, 2, "127.0.0.1", 1, "short"}, {}, now);
  two.on_message(world.one.id, wire::PullRequest{5, object(1)}, {}, now);
  ASSERT_TRUE(
      world.until([&] { return world.two.ended(object(1)) && world.two.ended(object(2)); }));
  for (std::uint64_t n : {1, 2})
    EXPECT_EQ(world.two.failures.at(object(n)).code(), Code::internal)
        << world.two.failures.at(object(n)).message();
  EXPECT_EQ(transfers.size(), 2u);
  expect_clean(world);
}

/// The other node refuses the transfer although its bytes still arrive. The memory is kept until
/// no thread writes to it.
TEST(Transfers, MemoryThatIsBeingWrittenIsNotGivenBack) {
  World world;
  world.one.make(object(1), 32 * kMiB);
  world.on_message = [&](Carried& carried) {
    if (auto* bulk = std::get_if<wire::PullOnBulk>(&carried.message))
      carried.message =
          wire::PullRefused{bulk->transfer, Error(Code::object_lost, "so it says").shared_info()};
    return true;
  };
  world.two.pull(object(1), 32 * kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.ended(object(1)); }));
  EXPECT_EQ(world.two.failures.at(object(1)).code(), Code::object_lost);
  world.on_message = {};
  world.two.pull(object(1), 32 * kMiB);
  ASSERT_TRUE(world.until([&] { return world.two.transfers->stats().pulled_objects == 1; }));
}

/// Sends from a bare sender to a bare receiver over TCP; returns the best of `rounds` in MB/s.
double bare_speed(std::uint64_t bytes, int rounds) {
  auto door = net::BulkDoor::open("127.0.0.1", 0).value();
  const net::BulkId id = net::BulkId::random();
  const Time by = steady_now() + 20s;
  door->expect(id, by);
  const Fd out = net::bulk_connect("127.0.0.1", door->port(), id, by).value();
  std::vector<net::BulkDoor::Arrived> arrived;
  while (arrived.empty() && steady_now() < by) {
    pollfd wait{door->fd(), POLLIN, 0};
    ::poll(&wait, 1, 1000);
    arrived = door->poll(steady_now());
  }
  net::BulkKey key = net::fresh_bulk_key().value();
  Blob from(bytes), to(bytes);
  std::thread sending([&] {
    net::BulkSender sender(out.get(), key.copy());
    EXPECT_TRUE(sender.start(by));
    for (int i = 0; i < rounds; ++i) EXPECT_TRUE(sender.send_object(object(1), from, by));
  });
  net::BulkReceiver receiver(arrived.at(0).fd.get(), key.copy(), by);
  EXPECT_TRUE(receiver.start(by));
  double best = 0;
  for (int i = 0; i < rounds; ++i) {
    const Time begin = steady_now();
    EXPECT_TRUE(receiver.receive_object(object(1), to, by));
    const std::chrono::duration<double> took = steady_now() - begin;
    best = std::max(best, static_cast<double>(bytes) / 1e6 / took.count());
  }
  sending.join();
  return best;
}

/// Prints the speed of fetching one object of 64 MiB, beside that of a bare sender and receiver.
TEST(Transfers, Speed) {
  constexpr std::uint64_t bytes = 64 * kMiB;
  World world;
  world.one.make(object(1), bytes);
  double first = 0, best = 0;
  for (int i = 0; i < 5; ++i) {
    const Time begin = steady_now();
    world.two.pull(object(1), bytes);
    ASSERT_TRUE(world.until([&] { return world.two.has(object(1)); }));
    const std::chrono::duration<double> took = steady_now() - begin;
    best = std::max(best, static_cast<double>(bytes) / 1e6 / took.count());
    if (i == 0) first = best;
    world.two.host->free(store_location(world.two.done_.at(object(1)))).value();
    world.two.host->take_notices();
    world.two.done_.clear();
  }
  std::printf("a pull of 64 MiB: the first %.0f MB/s, the best %.0f MB/s; bare bulk %.0f MB/s\n",
              first, best, bare_speed(bytes, 4));
}

}  // namespace
}  // namespace troupe::agent
