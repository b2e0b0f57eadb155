// Tests that the directory keeps the name of an ending actor until its process has ended.
#include "tests/runtime/control/directory_fixture.hpp"

namespace troupe::control::directory_test {
namespace {

/// A named actor without holders whose process still lives.
struct EndingNames : DirectoryTest {
  std::uint64_t life = 0;
  void SetUp() override {
    DirectoryTest::SetUp();
    spawn(spec(1, "best"));
    life = bring_up(1);
    run(actors->on_handles_gone(actor_id(1)));
    ASSERT_EQ(got<StopActorAt>().size(), 1u);
  }
  void ask(std::uint64_t n, bool get_if_exists = false, bool detached = false) {
    ActorSpec wanted = spec(n, "best");
    wanted.detached = detached;
    run(actors->on_spawn({kClient, n, std::move(wanted), get_if_exists}, now));
  }
  void ended() {
    run(actors->on_died(actor_id(1), life, Error(Code::worker_died, "ended"), true, now));
  }
};

TEST_F(EndingNames, ASpawnWaitsForTheEndOfTheProcessThatHasTheName) {
  ask(2);
  EXPECT_TRUE(events.empty());
  ask(3, true);
  EXPECT_TRUE(events.empty()) << "it would get an actor that is ending";
  ask(4);
  now += 3s;
  ended();
  const auto replies = got<ActorReply>();
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_TRUE(replies[0].created);
  EXPECT_EQ(replies[0].request, 2u);
  EXPECT_FALSE(replies[1].created);
  EXPECT_EQ(replies[1].actor, actor_id(2)) << "the new one";
  ASSERT_NE(replies[2].error, nullptr);
  EXPECT_EQ(replies[2].error->code, Code::invalid_argument);
  EXPECT_EQ(got<PlaceActor>().size(), 1u);
  EXPECT_FALSE(actors->next_deadline()) << "nobody waits any more";
}

TEST_F(EndingNames, OtherNamesAndFindsDoNotWait) {
  EXPECT_TRUE(spawn(spec(2, "other")).created);
  run(actors->on_find(kClient, 8, "default", "best"));
  ASSERT_EQ(got<ActorReply>().size(), 1u);
  EXPECT_FALSE(got<ActorReply>().at(0).actor);
}

TEST_F(EndingNames, TheSpawnIsRefusedInTime) {
  ask(2);
  now += 1s;
  ask(3);
  ASSERT_EQ(actors->next_deadline(), now + 7s);
  now += 7s;
  run(actors->on_tick(now));
  ASSERT_EQ(got<ActorReply>().size(), 1u);
  const ActorReply reply = got<ActorReply>().at(0);
  EXPECT_EQ(reply.request, 2u);
  ASSERT_NE(reply.error, nullptr);
  EXPECT_EQ(reply.error->code, Code::unavailable);
  EXPECT_NE(reply.error->message.find("\"best\""), std::string::npos) << reply.error->message;
  EXPECT_NE(reply.error->message.find("8 s"), std::string::npos) << reply.error->message;
  ended();
  ASSERT_EQ(got<ActorReply>().size(), 1u) << "the other has waited for less";
  EXPECT_TRUE(got<ActorReply>().at(0).created);
}

TEST_F(EndingNames, WhoAsksAgainWaitsNoLonger) {
  ask(2);
  now += 5s;
  ask(2);
  EXPECT_EQ(actors->next_deadline(), now + 3s);
}

TEST_F(EndingNames, AWaitingSpawnThatIsNotWantedIsGivenUp) {
  ask(2);
  ask(3);
  ask(4, false, true);
  run(actors->on_handles_gone(actor_id(2)));
  ASSERT_EQ(got<ActorReply>().size(), 1u);
  EXPECT_EQ(got<ActorReply>().at(0).error->code, Code::actor_died);
  run(actors->on_handles_gone(actor_id(4)));
  EXPECT_TRUE(got<ActorReply>().empty()) << "it is detached";
  run(actors->on_kill(actor_id(4), false, now));
  ASSERT_EQ(got<ActorReply>().size(), 1u);
  run(actors->on_job_ended(JobId{0, 1}));
  ASSERT_EQ(got<ActorReply>().size(), 1u);
  EXPECT_EQ(got<ActorReply>().at(0).error->code, Code::cancelled);
}

TEST_F(EndingNames, TheDeathOfItsNodeFreesTheName) {
  ask(2);
  run(actors->on_node_dead(kA, 1, "gone", now));
  ASSERT_EQ(got<ActorReply>().size(), 1u);
  EXPECT_TRUE(got<ActorReply>().at(0).created);
}

TEST_F(EndingNames, AKilledActorKeepsNoName) {
  ended();
  spawn(spec(5, "best"));
  bring_up(5);
  run(actors->on_kill(actor_id(5), false, now));
  EXPECT_TRUE(spawn(spec(6, "best")).created);
}

}  // namespace
}  // namespace troupe::control::directory_test
