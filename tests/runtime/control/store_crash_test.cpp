// Tests the simulated disk. Acknowledged commits are there after a power cut at any step, however
// it tears the write. Damage is refused and never ignored.
#include "tests/runtime/control/contents.hpp"
#include "troupe/runtime/control/memory_store.hpp"

#include <gtest/gtest.h>

namespace troupe::control {
namespace {

Batch random_batch(Random& random, Map& model) {
  Batch batch;
  for (auto n = 1 + random.below(4); n > 0; --n) {
    const std::string key = "k" + std::to_string(random.below(12));
    if (random.chance(0.25)) {
      batch.del(key);
      model.erase(key);
    } else {
      const std::string value(random.below(200), static_cast<char>('a' + random.below(26)));
      batch.put(key, value);
      model[key] = value;
    }
  }
  return batch;
}

TEST(StoreCrash, APowerCutAtAnyStepLosesNothingAcknowledged) {
  int cuts = 0, unacknowledged_kept = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    auto disk = std::make_shared<MemoryDisk>(seed);
    Map acknowledged;
    for (int life = 0; life < 4; ++life) {
      disk->crash_after(1 + static_cast<int>(random.below(20)));
      auto opened = open_memory_store(disk, {});
      Map attempted = acknowledged;
      if (opened.ok()) {
        for (int i = 0; i < 12; ++i) {
          Map next = acknowledged;
          const Batch batch = random_batch(random, next);
          attempted = next;
          if (!(*opened)->commit({&batch, 1}).ok()) break;
          acknowledged = next;
        }
      }
      opened = Error(Code::cancelled, "closed");
      cuts += disk->crashed() ? 1 : 0;
      disk->restart();
      auto recovered = open_memory_store(disk, {});
      ASSERT_TRUE(recovered.ok()) << "seed " << seed << ": " << recovered.error().what();
      const Map found = contents(**recovered);
      ASSERT_TRUE(found == acknowledged || found == attempted) << "seed " << seed;
      if (found != acknowledged) ++unacknowledged_kept;
      acknowledged = found;
    }
  }
  EXPECT_GT(cuts, 1000);  // so many cuts happened: a run without them proves nothing
  EXPECT_GT(unacknowledged_kept, 20);
}

TEST(StoreCrash, DamageIsRefusedOrHarmless) {
  int refused = 0, harmless = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed ^ 0xd0);
    auto disk = std::make_shared<MemoryDisk>(seed);
    Map model;
    {
      auto store = open_memory_store(disk, {});
      ASSERT_TRUE(store.ok());
      for (auto n = 1 + random.below(15); n > 0; --n) {
        const Batch batch = random_batch(random, model);
        ASSERT_TRUE((*store)->commit({&batch, 1}).ok());
      }
    }
    switch (random.below(4)) {
      case 0: disk->flip_bit(); break;
      case 1: disk->cut_tail(); break;
      case 2: disk->zero_part(); break;
      default: disk->drop_slots(); break;
    }
    auto store = open_memory_store(disk, {});
    if (!store.ok()) {
      ++refused;
      EXPECT_EQ(store.error().code(), Code::invalid_argument);
      EXPECT_NE(store.error().message().find("troupe doctor --salvage"), std::string::npos);
      continue;
    }
    ++harmless;
    ASSERT_EQ(contents(**store), model) << "silent loss, seed " << seed;
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(harmless, 50);
}

TEST(StoreCrash, AMarkOfAnotherStoreIsRefused) {
  auto one = std::make_shared<MemoryDisk>(1), two = std::make_shared<MemoryDisk>(2);
  for (auto& disk : {one, two}) {
    Batch batch;
    batch.put("k", "same");
    ASSERT_TRUE(open_memory_store(disk, {}).value()->commit({&batch, 1}).ok());
  }
  one->swap_slots_with(*two);
  EXPECT_FALSE(open_memory_store(one, {}).ok());
}

TEST(StoreCrash, AnOlderSlotWithALongerChainIsAccepted) {
  // The newest mark is torn. The slot before it and the chain of records beyond it still prove
  // everything.
  auto disk = std::make_shared<MemoryDisk>(3);
  {
    auto store = open_memory_store(disk, {}).value();
    for (int i = 0; i < 5; ++i) {
      Batch batch;
      batch.put("k", std::to_string(i));
      ASSERT_TRUE(store->commit({&batch, 1}).ok());
    }
    disk->crash_after(2);  // the journal's write passes, the mark's is torn
    Batch batch;
    batch.put("k", "last");
    EXPECT_FALSE(store->commit({&batch, 1}).ok());
    Batch later;
    later.put("k", "later");
    EXPECT_EQ(store->commit({&later, 1}).error().code(), Code::unavailable);  // must be reopened
  }
  disk->restart();
  auto store = open_memory_store(disk, {}).value();
  EXPECT_EQ(contents(*store).at("k"), "last");
}

}  // namespace
}  // namespace troupe::control
