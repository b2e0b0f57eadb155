// Tests the directory between the lives of an actor: the pause before the next life, and what
// watchers are told of it.
#include "tests/runtime/control/directory_fixture.hpp"

namespace troupe::control::directory_restarts_test {
namespace {

using namespace directory_test;
using DirectoryRestarts = DirectoryTest;

TEST_F(DirectoryRestarts, LivesThatEndAtOnceAreFurtherAndFurtherApart) {
  spawn(spec(1, "", -1));
  std::vector<Duration> pauses;
  int lines = 0;
  for (int life = 0; life < 20; ++life) {
    bring_up(1);
    die(1);
    pauses.push_back(actors->find(actor_id(1))->retry_in);
    lines += static_cast<int>(got<ActorTrouble>().size());
  }
  EXPECT_EQ(pauses[0], 0s) << "a life may end early once";
  for (int k = 1; k < 8; ++k)
    EXPECT_EQ(pauses[static_cast<std::size_t>(k)], 100ms * (1 << (k - 1)));
  EXPECT_EQ(pauses[19], 10s);
  EXPECT_EQ(lines, 3) << "at the 4th, 8th and 16th";
  bring_up(1);
  now += 1s;
  die(1);
  EXPECT_EQ(actors->find(actor_id(1))->retry_in, 0s) << "it has lived";
}

TEST_F(DirectoryRestarts, WhoWaitsForALifeIsToldHowTheLastOneEnded) {
  spawn(spec(1, "", -1));
  run(actors->on_watch(actor_id(1), kB, now));
  bring_up(1);
  now += 2s;
  die(1);
  auto told = got<ActorUpdateTo>().at(0).location;
  ASSERT_NE(told.error, nullptr);
  EXPECT_EQ(told.error->message,
            "actor Counter is in its 1st life, which ended 2.0 s after its constructor with: "
            "killed by signal 9");
  EXPECT_EQ(told.retry_in, 0s);
  for (int life = 2; life < 4; ++life) {  // these lives end in their constructors
    wait_for(1);
    run(actors->on_placed(actor_id(1), actors->find(actor_id(1))->incarnation, kA, 1));
    die(1);
  }
  told = got<ActorUpdateTo>().at(0).location;
  EXPECT_EQ(told.state, ActorState::restarting);
  EXPECT_EQ(told.error->message,
            "actor Counter is in its 3rd life, which ended in its constructor with: killed by "
            "signal 9");
  EXPECT_EQ(told.error->cause->message, "killed by signal 9");
  EXPECT_EQ(told.retry_in, 100ms);
  now += 30ms;
  run(actors->on_watch(actor_id(1), kA, now));
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.retry_in, 70ms) << "from when it is said";
  bring_up(1);
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.error, nullptr);
}

TEST_F(DirectoryRestarts, ThePausesBetweenLivesUseUpNoWindow) {
  ActorSpec s = spec(1, "", 60);
  s.restart_window = 1s;
  spawn(s);
  int restarts = 0;
  for (; state(1) != ActorState::dead && restarts < 100; ++restarts) {
    bring_up(1);
    die(1);
  }
  EXPECT_EQ(restarts, 61) << "though the pauses alone are longer than the window";
}

TEST_F(DirectoryRestarts, AFewRestartsAreUsedUpSoon) {
  spawn(spec(1, "", 10));
  const Time begun = now;
  while (state(1) != ActorState::dead) {
    bring_up(1);
    die(1);
  }
  EXPECT_LE(now - begun, 5s);
}

TEST_F(DirectoryRestarts, KillsThatMayRestartAreNoShortLives) {
  spawn(spec(1, "", 100));
  for (int i = 0; i < 20; ++i) {
    run(actors->on_kill(actor_id(1), true, now, bring_up(1)));
    die(1);
    ASSERT_EQ(actors->find(actor_id(1))->retry_in, 0s);
  }
}

}  // namespace
}  // namespace troupe::control::directory_restarts_test
