// Tests ActorEffects with the real tables and real rings: EFFECT-1 to EFFECT-4.
#include "troupe/runtime/agent/actor_effects.hpp"

#include "tests/runtime/agent/played_objects.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace troupe::agent::actor_effects_test {
namespace {

constexpr ObjectId kObject{0, 16}, kLifetime{0, 17};
constexpr ActorId kActor{1, 1};

struct ActorEffectsTest : testing::Test, PlayedObjects {
  /// Returns a CreateActor whose creation names kObject.
  static wire::CreateActor create(const std::string& name = "") {
    wire::Value argument;
    argument.kind = wire::Value::Kind::inline_bytes;
    argument.refs = {kObject};
    wire::CreateActor message;
    message.actor = kActor;
    message.lifetime = kLifetime;
    message.name = name;
    message.creation.arguments = {argument};
    return message;
  }
  void say(Process& from, wire::NodeMessage message) { effects.on_message(from, message, {}); }
  void make_object(ProcessIndex holder) {
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    references.promote(holder, kObject, value, {});  // counts the holder once
  }
  /// Returns how many refs of kObject the process holds.
  std::int64_t held(ProcessIndex holder) const {
    std::int64_t sum = 0;
    references.each([&](const ReferenceTable::Seen& seen) {
      if (seen.object != kObject) return;
      for (const auto& [who, refs] : seen.holders)
        if (who == holder) sum += refs;
    });
    return sum;
  }
  static wire::ActorUpdate alive(ProcessIndex worker) {
    wire::ActorUpdate update;
    update.actor = kActor;
    update.state = wire::ActorState::alive;
    update.worker = worker;
    return update;
  }

  ActorEffects effects{
      {kSelfNode, actors, leases, jobs, references, remote, owners, objects, processes}};
  Jobs jobs{quiet_actors, {}};
};

TEST_F(ActorEffectsTest, RefsOfACreationAreHeldUntilItIsDropped) {
  Peer driver = worker();
  make_object(driver.index);
  say(of(driver), create());
  EXPECT_TRUE(actors.was_made_here(kActor));
  EXPECT_EQ(held(kSelf), 1);
  effects.drop_creation(create().creation);
  EXPECT_EQ(held(kSelf), 0);
  EXPECT_EQ(held(driver.index), 1);
}

TEST_F(ActorEffectsTest, WorkerHoldsTheRefsOfTheActorThatItStarts) {
  Peer host_of_actor = worker();
  make_object(kSelf);
  effects.start_actor(host_of_actor.index, {}, {}, {{kObject, kSelfNode}});
  EXPECT_EQ(held(host_of_actor.index), 1);
  EXPECT_EQ(host_of_actor.in_ring<wire::StartActor>(), 1);
  processes.break_off(of(host_of_actor), "a test ends it");
  effects.start_actor(host_of_actor.index, {}, {}, {{kObject, kSelfNode}});
  EXPECT_EQ(held(host_of_actor.index), 1) << "it is ending";
}

TEST_F(ActorEffectsTest, WatcherHasAChannelToTheWorkerOfAnActorThatLives) {
  Peer watcher = worker(), host_of_actor = worker();
  effects.publish(watcher.index, alive(host_of_actor.index));
  const auto channel = watcher.read<wire::Channel>();
  ASSERT_TRUE(channel);
  EXPECT_EQ(channel->peer, host_of_actor.index);
  EXPECT_EQ(watcher.in_ring<wire::ActorUpdate>(), 1);
  effects.publish(host_of_actor.index, alive(host_of_actor.index));
  EXPECT_EQ(host_of_actor.in_ring<wire::ActorUpdate>(), 1) << "it hosts the actor itself";
  processes.break_off(of(host_of_actor), "a test ends it");
  effects.publish(watcher.index, alive(host_of_actor.index));
  EXPECT_EQ(watcher.in_ring<wire::ActorUpdate>(), 0) << "its death follows";
}

TEST_F(ActorEffectsTest, SpawnWithANameWaitsUntilReleasesAreSettled) {
  Peer driver = worker();
  make_object(driver.index);
  say(of(driver), create("only"));
  EXPECT_TRUE(effects.pending());
  EXPECT_EQ(held(kSelf), 1);
  int settlements = 0;
  for (; effects.pending() && settlements < 10; ++settlements) {
    EXPECT_FALSE(actors.was_made_here(kActor));
    effects.settled();
  }
  EXPECT_EQ(settlements, 3);
  EXPECT_TRUE(actors.was_made_here(kActor));
}

TEST_F(ActorEffectsTest, SpawnOfAProcessThatHasEndedIsDropped) {
  Peer driver = worker();
  make_object(kSelf);
  const std::int64_t before = held(kSelf);
  say(of(driver), create("only"));
  processes.remove(driver.index);
  while (effects.pending()) effects.settled();
  EXPECT_FALSE(actors.was_made_here(kActor));
  EXPECT_EQ(held(kSelf), before);
}

TEST_F(ActorEffectsTest, ActorOfAJobThatThisNodeDoesNotKnowNeedsAWorkerOfThatJob) {
  for (const JobId job : {JobId{0, 9}, JobId{}}) {
    const std::uint64_t life = 70 + job.low;
    effects.need_worker(life, {}, job);
    ASSERT_NE(jobs.find(job), nullptr);
    EXPECT_EQ(leases.waiting_lives(jobs.find(job)->number), std::vector<std::uint64_t>{life});
  }
}

TEST_F(ActorEffectsTest, WorkerThatIsNeededNoMoreIsToldOnce) {
  Peer one = worker();
  effects.end_worker(one.index);
  EXPECT_TRUE(of(one).leaving);
  EXPECT_EQ(one.in_ring<wire::Shutdown>(), 1);
  effects.kill_worker(one.index);
  EXPECT_TRUE(of(one).killed);
}

}  // namespace
}  // namespace troupe::agent::actor_effects_test
