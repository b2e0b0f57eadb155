// Tests what follows when the driver of a job ends. Its actors end one after the other as their
// handles go, the rest are ended together, and all of it takes no longer than the bound.
#include "tests/runtime/control/directory_fixture.hpp"

namespace troupe::control::directory_test {
namespace {

/// A job whose driver has ended, with its actors.
struct EndingJob : DirectoryTest {
  const JobId job{0, 1};
  void ends() { run(actors->on_job_ending(job, now)); }
  void tick() {
    ASSERT_TRUE(actors->next_deadline());
    now = *actors->next_deadline();
    run(actors->on_tick(now));
  }
  void ended(std::uint64_t n, std::uint64_t life) {
    run(actors->on_died(actor_id(n), life, Error(Code::worker_died, "ended"), true, now));
  }
  bool is_idle() const { return got<JobIdle>().size() == 1; }
};

TEST_F(EndingJob, WithoutActorsItIsIdleAtOnce) {
  ends();
  EXPECT_TRUE(is_idle());
  EXPECT_FALSE(actors->next_deadline());
  spawn(spec(1));
  bring_up(1);
  die(1);
  ends();
  EXPECT_TRUE(is_idle()) << "it is dead";
}

TEST_F(EndingJob, ActorsEndAsTheirHandlesGoOneAfterTheOther) {
  spawn(spec(1));
  const auto first = bring_up(1);
  spawn(spec(2));
  const auto second = bring_up(2);
  ends();
  EXPECT_TRUE(events.empty()) << "who holds them is not known here";
  run(actors->on_handles_gone(actor_id(1)));
  EXPECT_TRUE(got<StopActorAt>().at(0).graceful);
  now += EndingJobs::kQuiet;
  run(actors->on_tick(now));
  EXPECT_TRUE(events.empty()) << "the destructor of the first may send something to the second";
  ended(1, first);
  EXPECT_FALSE(is_idle());
  run(actors->on_handles_gone(actor_id(2)));
  ended(2, second);
  EXPECT_TRUE(is_idle());
  EXPECT_FALSE(actors->next_deadline());
}

TEST_F(EndingJob, ThoseThatHoldEachOtherAreToldTogether) {
  spawn(spec(1));
  const auto first = bring_up(1);
  spawn(spec(2));
  const auto second = bring_up(2);
  ends();
  tick();
  ASSERT_EQ(got<StopActorAt>().size(), 2u);
  for (const StopActorAt& stop : got<StopActorAt>()) EXPECT_TRUE(stop.graceful && stop.for_good);
  ended(2, second);
  EXPECT_FALSE(is_idle());
  ended(1, first);
  EXPECT_TRUE(is_idle());
}

TEST_F(EndingJob, WhoDoesNotEndIsKilled) {
  spawn(spec(1));
  bring_up(1);
  ends();
  const Time since = now;
  tick();
  EXPECT_TRUE(got<StopActorAt>().at(0).graceful);
  tick();
  EXPECT_EQ(now, since + EndingJobs::kAllKilled);
  ASSERT_EQ(got<StopActorAt>().size(), 1u);
  EXPECT_FALSE(got<StopActorAt>().at(0).graceful);
  EXPECT_TRUE(is_idle());
  EXPECT_FALSE(actors->next_deadline());
}

TEST_F(EndingJob, OneThatEndsSlowlyHoldsBackNobodyForLong) {
  spawn(spec(1));
  bring_up(1);
  spawn(spec(2));
  bring_up(2);
  ends();
  const Time since = now;
  run(actors->on_handles_gone(actor_id(1)));
  do tick();
  while (got<StopActorAt>().empty());
  EXPECT_EQ(now, since + EndingJobs::kAllTold);
  ASSERT_EQ(got<StopActorAt>().size(), 1u);
  EXPECT_EQ(got<StopActorAt>().at(0).actor, actor_id(2));
  tick();
  EXPECT_EQ(got<StopActorAt>().size(), 2u) << "both are killed";
  EXPECT_TRUE(is_idle());
}

TEST_F(EndingJob, NothingIsMadeOrRestarted) {
  spawn(spec(1, "", 5));
  const auto life = bring_up(1);
  spawn(spec(2));  // this actor is being started
  ActorSpec stays = spec(3, "stays");
  stays.detached = true;
  spawn(stays);
  bring_up(3);
  ends();
  EXPECT_EQ(state(2), ActorState::placing);
  ASSERT_NE(spawn(spec(4)).error, nullptr);
  EXPECT_EQ(got<ActorReply>().at(0).error->code, Code::cancelled);
  run(actors->on_died(actor_id(1), life, Error(Code::worker_died, "signal 11"), false, now));
  EXPECT_EQ(state(1), ActorState::dead);
  EXPECT_TRUE(got<PlaceActor>().empty());
  EXPECT_FALSE(is_idle());
  tick();
  EXPECT_EQ(state(2), ActorState::dead) << "nobody can give it a process";
  EXPECT_TRUE(is_idle()) << "the detached one stays";
  EXPECT_EQ(state(3), ActorState::alive);
}

TEST_F(EndingJob, OneThatIsBeingMadeCanBeToldByADestructor) {
  spawn(spec(1));
  const auto first = bring_up(1);
  spawn(spec(2));
  ends();
  run(actors->on_handles_gone(actor_id(1)));
  const auto second = bring_up(2);
  ended(1, first);
  run(actors->on_handles_gone(actor_id(2)));
  ASSERT_EQ(got<StopActorAt>().size(), 1u);
  EXPECT_TRUE(got<StopActorAt>().at(0).graceful);
  ended(2, second);
  EXPECT_TRUE(is_idle());
}

TEST_F(EndingJob, TheDeathOfTheirNodeEndsThem) {
  spawn(spec(1));
  bring_up(1);
  ends();
  tick();
  run(actors->on_node_dead(kA, 1, "gone", now));
  EXPECT_TRUE(is_idle());
}

TEST_F(EndingJob, ANodeThatHasNotSpokenMayHaveSome) {
  ActorSpec plain = spec(1);
  restart({{kA, 1}});
  ends();
  EXPECT_TRUE(events.empty());
  hosts(kA, 1, {{plain, 5, 42, 0}});
  EXPECT_FALSE(is_idle());
  tick();
  ASSERT_EQ(got<StopActorAt>().size(), 1u);
  EXPECT_TRUE(got<StopActorAt>().at(0).graceful);
  ended(1, 5);
  EXPECT_TRUE(is_idle());
}

}  // namespace
}  // namespace troupe::control::directory_test
