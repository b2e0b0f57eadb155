// Tests what control's cores know about the owners of actors and jobs: a life is its node's, an
// actor its maker's and its job's, a job its node's, and what nobody knows is anybody's.
#include "troupe/runtime/control/claims.hpp"
#include "tests/runtime/control/directory_fixture.hpp"

namespace troupe::control::directory_test {
namespace {

const JobId kJob{0, 1}, kOther{0, 2};

struct ClaimsTest : DirectoryTest {
  std::optional<Jobs> jobs;
  std::optional<Claims> claims;

  void SetUp() override {
    DirectoryTest::SetUp();
    jobs.emplace(Jobs::recover(*store, {}).value());
    claims.emplace(*actors, *jobs);
  }
  void make(std::uint64_t n, bool detached = false) {
    ActorSpec s = spec(n);
    s.owner = kA;
    s.detached = detached;
    if (detached) s.name = "everybody's";
    spawn(s);
  }
  static KillActor kill_by(JobId job, std::uint64_t n = 1) {
    return KillActor{actor_id(n), false, 0, job};
  }
};

TEST_F(ClaimsTest, OfALifeSpeaksTheNodeThatHasIt) {
  make(1);
  const std::uint64_t life = bring_up(1, kB);
  EXPECT_TRUE(claims->may_tell_of(kB, actor_id(1), life));
  EXPECT_FALSE(claims->may_tell_of(kA, actor_id(1), life));
  EXPECT_TRUE(claims->may_tell_of(kA, actor_id(1), life - 1)) << "no node is known to have it";
  EXPECT_TRUE(claims->may_tell_of(kA, actor_id(2), life));
}

TEST_F(ClaimsTest, AnActorIsItsMakers) {
  make(1);
  SpawnActor again;
  again.spec = spec(1);
  EXPECT_TRUE(claims->made(kA, actor_id(1)));
  EXPECT_FALSE(claims->made(kB, actor_id(1)));
  EXPECT_TRUE(claims->may_make(kA, again));
  EXPECT_FALSE(claims->may_make(kB, again));
  again.spec = spec(2);
  EXPECT_TRUE(claims->may_make(kB, again)) << "the id is free";
}

TEST_F(ClaimsTest, ItIsKilledByItsJobByTheAgentsAndDetachedByAnyone) {
  make(1);
  make(2, true);
  EXPECT_TRUE(claims->may_kill(kB, kill_by(kJob)));
  EXPECT_FALSE(claims->may_kill(kA, kill_by(kOther)));
  EXPECT_TRUE(claims->may_kill(kB, kill_by({}))) << "the agent itself kills";
  EXPECT_TRUE(claims->may_kill(kB, kill_by(kOther, 2)));
  EXPECT_TRUE(claims->may_kill(kB, kill_by(kOther, 3))) << "unknown";
}

TEST_F(ClaimsTest, AJobIsItsNodes) {
  StartJob start;
  start.job.id = kJob;
  start.job.node = kA;
  Jobs::Out out = jobs->on_start(start);
  ASSERT_TRUE(store->commit({&out.writes, 1}).ok());
  EXPECT_TRUE(claims->may_start(kA, kJob));
  EXPECT_FALSE(claims->may_start(kB, kJob));
  EXPECT_FALSE(claims->may_end(kB, kJob));
  EXPECT_TRUE(claims->may_start(kB, kOther));
}

}  // namespace
}  // namespace troupe::control::directory_test
