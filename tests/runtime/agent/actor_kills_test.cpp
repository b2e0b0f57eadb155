// Tests ActorKills: what control is told of a kill, and told again. KILLS-1: a kill of one life
// names it. KILLS-2: one request per job and actor may be refused.
#include "troupe/runtime/agent/actor_kills.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <utility>

namespace troupe::agent::actor_kills_test {
namespace {

const ActorId kA{1, 1}, kB{1, 2};
const JobId kJob{2, 1}, kOtherJob{2, 2};
constexpr ProcessIndex kKiller = 7, kOtherKiller = 8;

bool is_same(const std::vector<control::KillActor>& some,
             const std::vector<control::KillActor>& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const auto& one, const auto& other) {
                      return one.actor == other.actor && one.may_restart == other.may_restart &&
                             one.life == other.life && one.job == other.job &&
                             one.request == other.request;
                    });
}

struct Recorder final : ControlPort {
  std::vector<control::KillActor> sent;
  void send(control::ToControl message) override {
    sent.push_back(std::get<control::KillActor>(message));
  }
};

struct ActorKillsTest : testing::Test {
  Recorder out;
  ActorKills kills{out};
  std::uint64_t requests = 0;

  std::uint64_t end(ActorId actor, JobId job = kJob) {
    return kills.kill({actor, job, kKiller}, false, 0, requests);
  }
  std::uint64_t restart(ActorId actor, std::uint64_t newest, ProcessIndex killer = kKiller) {
    return kills.kill({actor, kJob, killer}, true, newest, requests);
  }
  std::vector<control::KillActor> take() { return std::exchange(out.sent, {}); }
};

TEST_F(ActorKillsTest, AnEndIsSaidAgainUntilTheActorIsForgotten) {
  EXPECT_EQ(end(kA), 0u);
  ASSERT_EQ(out.sent.size(), 1u);
  EXPECT_EQ(out.sent[0].actor, kA);
  EXPECT_FALSE(out.sent[0].may_restart);
  EXPECT_EQ(out.sent[0].request, 1u);
  const std::vector<control::KillActor> first = take();
  EXPECT_TRUE(kills.awaits(kA));
  kills.say_lives_again();
  EXPECT_TRUE(out.sent.empty());
  kills.say_ends_again();
  EXPECT_TRUE(is_same(take(), first));
  EXPECT_TRUE(kills.heard_of(kA, 9).empty());
  EXPECT_TRUE(kills.awaits(kA)) << "a life is no end of the actor";
  kills.forget(kA);
  EXPECT_FALSE(kills.awaits(kA));
  EXPECT_FALSE(kills.asked(1));
  kills.say_ends_again();
  EXPECT_TRUE(out.sent.empty());
}

TEST_F(ActorKillsTest, AKilledLifeIsOverWhenTheNextIsHeardOf) {
  EXPECT_EQ(restart(kA, 5), 5u);
  EXPECT_EQ(out.sent.at(0).life, 5u);
  EXPECT_TRUE(kills.heard_of(kA, 5).empty());
  const std::vector<control::KillActor> first = take();
  kills.say_lives_again();
  EXPECT_TRUE(is_same(take(), first));
  EXPECT_TRUE(kills.heard_of(kA, 6).empty());
  EXPECT_FALSE(kills.awaits(kA));
  EXPECT_FALSE(kills.asked(1));
  kills.say_lives_again();
  EXPECT_TRUE(out.sent.empty()) << "it must not end the next life";
}

TEST_F(ActorKillsTest, AKillBeforeTheFirstLifeWaitsForIt) {
  EXPECT_EQ(restart(kA, 0), 0u);
  EXPECT_EQ(restart(kA, 0, kOtherKiller), 0u);
  EXPECT_EQ(restart(kA, 0, 0), 0u) << "the agent itself is told nothing";
  kills.say_lives_again();
  EXPECT_TRUE(out.sent.empty());
  EXPECT_EQ(kills.heard_of(kA, 3), (std::vector<ProcessIndex>{kKiller, kOtherKiller}));
  ASSERT_EQ(out.sent.size(), 1u);
  EXPECT_EQ(out.sent[0].life, 3u);
  EXPECT_EQ(out.sent[0].request, 1u);
  EXPECT_TRUE(kills.heard_of(kA, 3).empty());
}

TEST_F(ActorKillsTest, AnEndReplacesTheKillOfALife) {
  restart(kA, 5);
  end(kA);
  EXPECT_EQ(take().at(1).request, 0u) << "the job has a request already";
  kills.say_lives_again();
  EXPECT_TRUE(out.sent.empty());
  kills.say_ends_again();
  EXPECT_EQ(take().at(0).request, 1u);
}

TEST_F(ActorKillsTest, EachJobAsksOnceAndTheAgentAsksNothing) {
  end(kA);
  end(kA);
  end(kA, kOtherJob);
  end(kB, JobId{});
  const auto sent = take();
  ASSERT_EQ(sent.size(), 4u);
  EXPECT_EQ(sent[0].request, 1u);
  EXPECT_EQ(sent[1].request, 0u);
  EXPECT_EQ(sent[2].request, 2u);
  EXPECT_EQ(sent[3].request, 0u);
  EXPECT_EQ(requests, 2u);
  kills.say_ends_again();
  EXPECT_EQ(out.sent.size(), 3u) << "once for each job";
}

TEST_F(ActorKillsTest, ARefusalEndsTheKillOfItsJobAlone) {
  end(kA);
  end(kA, kOtherJob);
  take();
  ASSERT_TRUE(kills.asked(1));
  const ActorKills::Kill refused = kills.refused(1);
  EXPECT_EQ(refused.actor, kA);
  EXPECT_EQ(refused.job, kJob);
  EXPECT_EQ(refused.killer, kKiller);
  EXPECT_FALSE(kills.asked(1));
  EXPECT_TRUE(kills.awaits(kA));
  kills.say_ends_again();
  ASSERT_EQ(out.sent.size(), 1u);
  EXPECT_EQ(out.sent[0].job, kOtherJob);
  kills.refused(2);
  EXPECT_FALSE(kills.awaits(kA));
}

}  // namespace
}  // namespace troupe::agent::actor_kills_test
