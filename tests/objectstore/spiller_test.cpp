// Tests a full arena. Objects that no process has open go to disk and come back byte for byte
// under the same name, whoever needs memory and whoever wrote them. Open objects stay. Frees,
// deaths and damage in every state lose no other object, and all memory and disk space is
// released.
#include "spilling.hpp"

#include <rapidcheck.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>

namespace troupe::objectstore {
namespace {

using World = SpillingNode;

TEST(Spiller, AWorkingSetOfTenArenas) {
  World world({}, World::patient(), World::tiny());
  Client& writer = world.node.join();
  Client& reader = world.node.join();
  std::vector<Location> names;
  constexpr unsigned kObjects = 80;  // of 64 KiB; the arena has eight
  for (unsigned i = 0; i < kObjects; ++i)
    names.push_back(world.put_shared(writer, text(64 << 10, i)).value());
  EXPECT_GE(world.spiller->stats().spilled, kObjects - 8);
  for (unsigned i = 0; i < kObjects; ++i)
    EXPECT_EQ(world.read(i % 2 == 0 ? reader : writer, names[i]), text(64 << 10, i)) << i;
  for (unsigned i = kObjects; i-- > 0;)
    EXPECT_EQ(world.read(writer, names[i]), text(64 << 10, i)) << i;
  for (const Location& name : names) world.spiller->free(name).value();
  world.expect_all_back();
}

TEST(Spiller, WhatOneProcessFilledAnotherGets) {
  World world;
  Client& first = world.node.join();
  Client& second = world.node.join();
  std::vector<Location> names;
  for (unsigned i = 0; i < 40; ++i)
    names.push_back(world.put_shared(first, text(100'000, i)).value());
  for (unsigned i = 40; i < 80; ++i)
    names.push_back(world.put_shared(second, text(100'000, i)).value());
  for (unsigned i = 0; i < 80; ++i) EXPECT_EQ(world.read(first, names[i]), text(100'000, i));
  world.kill(first.process());
  for (unsigned i = 0; i < 80; ++i)
    EXPECT_EQ(world.read(second, names[i]), text(100'000, i)) << "objects outlive their writer";
  for (const Location& name : names) world.spiller->free(name).value();
  world.expect_all_back();
}

TEST(Spiller, WhatAProcessKeptToItselfIsHandedOver) {
  World world;
  Client& client = world.node.join();
  std::vector<Location> names;
  for (unsigned i = 0; i < 40; ++i) {
    const Location at = world.put(client, text(400'000, i)).value();
    world.owned[client.process()].push_back(at);
    names.push_back(at);
  }
  for (unsigned i = 0; i < 40; ++i) EXPECT_EQ(world.read(client, names[i]), text(400'000, i));
}

TEST(Spiller, WhatIsLookedAtStaysAndTheRefusalSaysWhoHoldsIt) {
  SpillerOptions options = World::patient();
  options.patience = 5s;
  World world({}, options);
  Client& client = world.node.join();
  std::vector<Pinned> views;
  std::vector<Location> names;
  for (unsigned i = 0; i < 8; ++i) {
    names.push_back(world.put_shared(client, text(512 << 10, i)).value());
    views.push_back(world.look(client, names.back()).value());
  }
  {
    auto created = client.create(512 << 10);
    ASSERT_TRUE(std::holds_alternative<ExtentRequest>(created.value()));
    world.spiller->need(1'000'000, client.process(), 512 << 10, world.now());
    for (int i = 0; i < 5; ++i) world.pass();
    EXPECT_EQ(world.spiller->stats().waiting, 1u);
    EXPECT_EQ(world.spiller->stats().disk.objects, 0u);
    world.skipped = 6s;
    const auto refused = world.answer(1'000'000);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::out_of_memory);
    EXPECT_NE(refused.error().message().find("holds most"), std::string::npos);
  }
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(Node::text(views[i]), text(512 << 10, i));
  views.erase(views.begin());
  EXPECT_TRUE(world.put_shared(client, text(512 << 10, 9)).ok()) << "one was let go of";
  EXPECT_EQ(world.read(client, names[1]), text(512 << 10, 1));
}

TEST(Spiller, LargerThanTheArenaIsRefusedAtOnce) {
  World world;
  Client& client = world.node.join();
  EXPECT_EQ(world.put(client, text(5 << 20, 1)).error().code(), Code::out_of_memory);
}

TEST(Spiller, AFullDiskIsNamed) {
  SpillOptions disk;
  disk.quota = 1_MiB;
  SpillerOptions options = World::patient();
  options.patience = 200ms;
  World world(disk, options);
  Client& client = world.node.join();
  std::vector<Location> names;
  Result<Location> last = Error(Code::internal, "");
  for (unsigned i = 0; i < 20; ++i) {
    last = world.put_shared(client, text(512 << 10, i));
    if (!last) break;
    names.push_back(*last);
  }
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code(), Code::out_of_disk);
  EXPECT_NE(last.error().message().find("holds most"), std::string::npos) << last.error().message();
  EXPECT_GE(names.size(), 8u);
  for (unsigned i = 0; i < names.size(); ++i)
    EXPECT_EQ(world.read(client, names[i]), text(512 << 10, i));
  for (const Location& name : names) world.spiller->free(name).value();
  EXPECT_TRUE(world.put_shared(client, text(512 << 10, 1)).ok()) << "it goes on after frees";
}

/// Puts objects until the disk is full, and returns the names of those that were accepted.
std::vector<Location> fill(World& world, Client& client, const std::vector<unsigned>& sizes) {
  std::vector<Location> names;
  world.skip_after = 100;
  for (;;) {
    const auto i = static_cast<unsigned>(names.size());
    const auto at = world.put_shared(client, text(sizes[i % sizes.size()], i));
    if (at)
      names.push_back(*at);
    else if (at.error().code() != Code::out_of_memory)  // the disk was slow
      break;
  }
  world.skip_after = 0;
  return names;
}

TEST(Spiller, AFullDiskHidesNoObject) {
  SpillOptions disk;
  disk.quota = 3_MiB;
  World world(disk);
  Client& client = world.node.join();
  const std::vector<unsigned> sizes{512 << 10, 700'000, 5'000, 300'000, 90'000};
  const std::vector<Location> names = fill(world, client, sizes);
  ASSERT_GE(world.spiller->stats().spilled, 4u);
  const auto expected = [&](std::size_t i) {
    return text(sizes[i % sizes.size()], static_cast<unsigned>(i));
  };
  for (std::size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(world.read(client, names[i]), expected(i)) << i;
  for (std::size_t i = names.size(); i-- > 0;)
    EXPECT_EQ(world.read(client, names[i]), expected(i)) << i;
  EXPECT_LE(world.node.host->stats().committed, (4u << 20) + 720'896) << "one extent beyond";
  EXPECT_LE(world.spiller->stats().disk.bytes, 3u << 20);
  for (const Location& name : names) world.spiller->free(name).value();
  world.expect_all_back();
}

TEST(Spiller, AFullDiskLetsTwoOfItsObjectsBeOpenAtOnce) {
  SpillOptions disk;
  disk.quota = 2_MiB;
  World world(disk);
  Client& client = world.node.join();
  const std::vector<Location> names = fill(world, client, {512 << 10});
  std::vector<unsigned> there;
  for (unsigned i = 0; i < names.size(); ++i)
    if (world.spiller->is_spilled(names[i])) there.push_back(i);
  ASSERT_GE(there.size(), 3u);
  {
    std::vector<Pinned> views;
    for (const unsigned i : there) views.push_back(world.look(client, names[i]).value());
    for (std::size_t k = 0; k < there.size(); ++k)
      EXPECT_EQ(Node::text(views[k]), text(512 << 10, there[k]));
    EXPECT_LE(world.node.host->stats().committed, (4u << 20) + (512 << 10));
    EXPECT_LE(world.spiller->stats().disk.bytes, 2u << 20);
  }
  for (unsigned i = 0; i < names.size(); ++i)
    EXPECT_EQ(world.read(client, names[i]), text(512 << 10, i)) << i;
  for (const Location& name : names) world.spiller->free(name).value();
  world.expect_all_back();
}

ssize_t has_room_for_two_mebibytes(int fd, const void* from, std::size_t size, off_t at) {
  static std::atomic<std::int64_t> left{2 << 20};  // what is freed is room for other programs
  if (left.fetch_sub(static_cast<std::int64_t>(size)) < static_cast<std::int64_t>(size)) {
    errno = ENOSPC;
    return -1;
  }
  return ::pwrite(fd, from, size, at);
}

TEST(Spiller, AFullFileSystemHidesNoObject) {
  SpillOptions disk;
  disk.pwrite = has_room_for_two_mebibytes;
  World world(disk);
  Client& client = world.node.join();
  const std::vector<Location> names = fill(world, client, {512 << 10});
  ASSERT_GE(world.spiller->stats().spilled, 2u);
  for (int round = 0; round < 2; ++round)
    for (unsigned i = 0; i < names.size(); ++i)
      EXPECT_EQ(world.read(client, names[i]), text(512 << 10, i)) << i;
  for (const Location& name : names) world.spiller->free(name).value();
  world.expect_all_back();
}

TEST(Spiller, ALoanThatIsFreedGivesItsCopyAndItsMemoryBack) {
  SpillOptions disk;
  disk.quota = 1_MiB;
  World world(disk);
  Client& client = world.node.join();
  std::vector<Location> names = fill(world, client, {512 << 10});
  const auto spilled = std::find_if(names.begin(), names.end(), [&](const Location& name) {
    return world.spiller->is_spilled(name);
  });
  ASSERT_NE(spilled, names.end());
  {
    const Pinned view = world.look(client, *spilled).value();
    EXPECT_FALSE(world.spiller->is_spilled(*spilled));
    world.spiller->free(*spilled).value();
    names.erase(spilled);
    EXPECT_EQ(view.bytes().size(), 512u << 10);
  }
  for (const Location& name : names) world.spiller->free(name).value();
  world.expect_all_back();
}

TEST(Spiller, AnAskForWhatIsFreedMeanwhileEnds) {
  World world;
  Client& client = world.node.join();
  std::vector<Location> names;
  for (unsigned i = 0; i < 20; ++i)
    names.push_back(world.put_shared(client, text(512 << 10, i)).value());
  ASSERT_TRUE(world.spiller->is_spilled(names[0]));
  world.spiller->find(1'000'000, names[0], world.now());
  world.spiller->free(names[0]).value();
  EXPECT_EQ(world.answer(1'000'000).error().code(), Code::object_lost);
  EXPECT_EQ(world.read(client, names[0]), "<object_lost>");
  EXPECT_FALSE(world.spiller->free(names[0])) << "freed once";
  for (unsigned i = 1; i < 20; ++i) EXPECT_EQ(world.read(client, names[i]), text(512 << 10, i));
  for (unsigned i = 1; i < 20; ++i) world.spiller->free(names[i]).value();
  world.expect_all_back();
}

ssize_t flips_a_bit(int fd, void* into, std::size_t size, off_t at) {
  const ssize_t got = ::pread(fd, into, size, at);
  static_cast<std::byte*>(into)[size / 3] ^= std::byte{4};
  return got;
}

TEST(Spiller, ADamagedCopyIsLostAndNeverWrong) {
  SpillOptions disk;
  disk.pread = flips_a_bit;
  World world(disk);
  Client& client = world.node.join();
  std::vector<Location> names;
  for (unsigned i = 0; i < 12; ++i)
    names.push_back(world.put_shared(client, text(512 << 10, i)).value());
  unsigned lost = 0;
  for (unsigned i = 0; i < 12; ++i) {
    EXPECT_TRUE(world.spiller->is_good(names[i])) << "for all that is known";
    const std::string got = world.read(client, names[i]);
    EXPECT_EQ(world.spiller->is_good(names[i]), got != "<object_lost>");
    if (got == "<object_lost>")
      ++lost;
    else
      EXPECT_EQ(got, text(512 << 10, i));
  }
  EXPECT_GE(lost, 4u);
  for (const Location& name : names) world.spiller->free(name).value();
  EXPECT_FALSE(world.spiller->is_good(names[0])) << "it is no more";
  world.expect_all_back();
}

// Objects are put, read, viewed and freed, and processes die, in any order, in an arena of eight
// objects.
TEST(Spiller, AnyOrderOfEvents) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint16_t>& steps) {
    World world({}, World::patient(), World::tiny());
    std::map<std::uint32_t, Client*> processes;
    std::map<unsigned, Location> names;
    std::map<unsigned, Pinned> views;
    unsigned next = 0;
    std::uint32_t viewer = 0;
    const auto join = [&] {
      Client& client = world.node.join();
      processes[client.process()] = &client;
      return client.process();
    };
    viewer = join();
    join();
    const auto size_of = [](unsigned i) { return 5'000 + i * 7919 % 59'000; };
    for (const std::uint16_t step : steps) {
      auto who = std::next(processes.begin(), step / 16 % processes.size());
      auto which = names.begin();
      if (!names.empty()) std::advance(which, step / 64 % names.size());
      switch (step % 16) {
        case 0:  // the death of a process that holds no views
          if (who->first == viewer) break;
          world.kill(who->first);
          processes.erase(who);
          join();
          break;
        case 1:
        case 2:
          if (which == names.end()) break;
          views.erase(which->first);
          RC_ASSERT(world.spiller->free(which->second).ok());
          names.erase(which);
          break;
        case 3:
          if (which == names.end() || views.size() >= 2) break;
          views[which->first] = world.look(*processes.at(viewer), which->second).value();
          break;
        case 4: views.clear(); break;
        case 5:
        case 6:
        case 7:
        case 8:
          if (which == names.end()) break;
          RC_ASSERT(world.read(*who->second, which->second) ==
                    text(size_of(which->first), which->first));
          break;
        default: {
          const auto at = world.put_shared(*who->second, text(size_of(next), next));
          RC_ASSERT(at.ok());
          names[next++] = *at;
        }
      }
      for (const auto& [i, view] : views) RC_ASSERT(Node::text(view) == text(size_of(i), i));
    }
    views.clear();
    for (const auto& [i, name] : names) {
      RC_ASSERT(world.read(*processes.at(viewer), name) == text(size_of(i), i));
      RC_ASSERT(world.spiller->free(name).ok());
    }
    world.expect_all_back();
  }));
}

}  // namespace
}  // namespace troupe::objectstore
