// Tests what an agent may say to control: every kind of message, about the sender's own things
// and about another node's, with given facts and on a whole Service.
#include "troupe/runtime/control/authority.hpp"
#include "tests/runtime/control/service_fixture.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

namespace troupe::control::service_test {
namespace {

/// A kind of message, and the fact by which it is judged; empty: none.
struct Row {
  std::string_view kind, fact;
};
// A second copy of the table, so that a row that is changed by mistake is noticed.
constexpr Row kRows[] = {
    {"RegisterNode", ""},
    {"Heartbeat", ""},
    {"Leaving", ""},
    {"NodeReport", ""},
    {"NodePace", ""},
    {"NodeHosts", ""},
    {"FindActor", ""},
    {"WatchActor", ""},
    {"GetJob", ""},
    {"KeyValueRequest", ""},
    {"ListRequest", ""},
    {"DrainRequest", ""},
    {"NameObject", ""},
    {"ActorStarted", ""},
    {"SpawnActor", "may_make"},
    {"ActorGone", "life"},
    {"ActorStartFailed", "life"},
    {"HandlesGone", "made"},
    {"KillActor", "may_kill"},
    {"StartJob", "may_start"},
    {"FinishJob", "may_end"},
    {"DriverDied", "may_end"},
};

struct SaysNo final : Authority::Facts {
  bool yes = false;
  mutable std::vector<std::string> asked;
  bool note(const char* what) const {
    asked.emplace_back(what);
    return yes;
  }
  bool may_tell_of(NodeId, ActorId, std::uint64_t) const override { return note("life"); }
  bool made(NodeId, ActorId) const override { return note("made"); }
  bool may_make(NodeId, const SpawnActor&) const override { return note("may_make"); }
  bool may_kill(NodeId, const KillActor&) const override { return note("may_kill"); }
  bool may_start(NodeId, JobId) const override { return note("may_start"); }
  bool may_end(NodeId, JobId) const override { return note("may_end"); }
};

template <std::size_t... I>
std::vector<ToControl> one_of_each(std::index_sequence<I...>) {
  return {ToControl(std::in_place_index<I>)...};
}

TEST(ControlAuthorityTable, EveryKindIsJudgedByItsFactAndByNothingElse) {
  SaysNo facts;
  const Authority authority(facts);
  std::size_t rows = 0;
  for (const ToControl& message :
       one_of_each(std::make_index_sequence<std::variant_size_v<ToControl>>())) {
    const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const Row& one) { return one.kind == name_of(message); });
    ASSERT_NE(row, std::end(kRows)) << name_of(message) << " has no row in this test";
    ++rows;
    facts.asked.clear();
    facts.yes = false;
    EXPECT_EQ(authority.may_say(kA, message), row->fact.empty()) << row->kind;
    facts.yes = true;
    EXPECT_TRUE(authority.may_say(kA, message)) << row->kind;
    EXPECT_EQ(facts.asked.empty(), row->fact.empty()) << row->kind;
    for (const std::string& fact : facts.asked) EXPECT_EQ(fact, row->fact) << row->kind;
  }
  EXPECT_EQ(rows, std::size(kRows));
}

struct ControlAuthority : ServiceTest {
  static constexpr JobId kOther{5, 2};
  void SetUp() override {
    ServiceTest::SetUp();
    join_all();
    StartJob job;
    job.job.id = kOther;
    say(kB, job);
    report(kA, 0);
    report(kB, 4);
    report(kC, 0);
    ASSERT_TRUE(spawn(spec(1, 1)).created);
    ASSERT_EQ(placed(1), kB);
    started(1);
    ASSERT_EQ(state(1), ActorState::alive);
    out.said.clear();
  }
  bool refused() {
    const bool any = !out.said.empty();
    out.said.clear();
    return any;
  }
  KillActor kill_by(JobId job, bool may_restart = false) const {
    return {ActorId{7, 1}, may_restart, may_restart ? start_of(1).incarnation : 0, job};
  }
};

TEST_F(ControlAuthority, AnActorIsKilledByItsJobAndByNoOther) {
  say(kB, kill_by(kOther));
  EXPECT_TRUE(refused());
  say(kB, kill_by(kOther, true));
  EXPECT_TRUE(refused());
  EXPECT_EQ(state(1), ActorState::alive);
  EXPECT_TRUE(told<StopActorAt>(kB).empty());
  say(kC, kill_by(kJob));
  EXPECT_FALSE(refused());
  EXPECT_EQ(state(1), ActorState::dead) << "from any node on which the job has processes";
}

TEST_F(ControlAuthority, ADetachedActorIsKilledByAnyone) {
  ActorSpec detached = spec(2, 1, "everybody's");
  detached.detached = true;
  ASSERT_TRUE(spawn(detached).created);
  say(kB, KillActor{ActorId{7, 2}, false, 0, kOther});
  EXPECT_FALSE(refused());
  EXPECT_EQ(state(2), ActorState::dead);
}

TEST_F(ControlAuthority, OfALifeSpeaksTheNodeThatHasIt) {
  const std::uint64_t life = start_of(1).incarnation;
  say(kC, ActorGone{ActorId{7, 1}, life, nullptr, true});
  EXPECT_TRUE(refused());
  say(kC, ActorStartFailed{ActorId{7, 1}, life, nullptr});
  EXPECT_TRUE(refused());
  EXPECT_EQ(state(1), ActorState::alive);
  say(kB, ActorGone{ActorId{7, 1}, life, nullptr, true});
  EXPECT_FALSE(refused());
  EXPECT_EQ(state(1), ActorState::dead);
}

TEST_F(ControlAuthority, OfHandlesSpeaksTheNodeThatCountsThem) {
  say(kC, HandlesGone{ActorId{7, 1}});
  EXPECT_TRUE(refused());
  EXPECT_EQ(state(1), ActorState::alive);
  say(kA, HandlesGone{ActorId{7, 1}});
  EXPECT_FALSE(refused());
  EXPECT_EQ(state(1), ActorState::dead);
}

TEST_F(ControlAuthority, AnIdThatIsTakenIsNobodyElses) {
  SpawnActor again;
  again.request = 9;
  again.spec = spec(1, 1);
  say(kC, again);
  EXPECT_TRUE(refused());
  EXPECT_NE(last<ActorReply>(kC).error, nullptr);
  say(kA, again);
  EXPECT_FALSE(refused()) << "it says so again";
}

TEST_F(ControlAuthority, AJobIsStartedAndEndedByItsNodeAlone) {
  say(kC, FinishJob{kJob});
  EXPECT_TRUE(refused());
  say(kC, DriverDied{kJob, "a lie"});
  EXPECT_TRUE(refused());
  StartJob again;
  again.request = 4;
  again.job.id = kJob;
  say(kC, again);
  EXPECT_NE(last<JobReply>(kC).error, nullptr) << "the third is counted, and not logged";
  EXPECT_TRUE(service->jobs().is_running(kJob));
  say(kA, again);
  EXPECT_FALSE(refused()) << "after each registration";
  say(kA, FinishJob{kJob});
  EXPECT_FALSE(refused());
  pass(std::chrono::seconds(4), {kA, kB, kC});  // the actors of the dead node have a while to end
  EXPECT_FALSE(service->jobs().is_running(kJob));
}

}  // namespace
}  // namespace troupe::control::service_test
