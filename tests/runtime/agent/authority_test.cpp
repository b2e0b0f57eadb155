// Tests which process may send which message to an agent: every kind of message from every kind
// of sender, the right one and each wrong one. Also tests messages about leases, counts and
// values of another process.
#include "troupe/runtime/agent/authority.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::agent::authority_test {
namespace {

constexpr Talker kSpeakers[] = {Talker::nobody, Talker::stranger, Talker::driver, Talker::worker,
                                Talker::observer};

/// A kind of message, and which senders may send it: s(tranger), d(river), w(orker), o(bserver).
struct Row {
  std::string_view kind, who;
  bool of_its_own = false;
};

// A second copy of the table, so that a row that is changed by mistake is noticed.
constexpr Row kRows[] = {
    {"Hello", "s"},          {"Shutdown", "sdw"},    {"Inquire", "dwo"},
    {"ListNodes", "dw"},     {"RequestLease", "dw"}, {"LeaseReturned", "dw", true},
    {"Blocked", "w"},        {"Unblocked", "w"},     {"Pace", "w"},
    {"Promote", "dw", true}, {"Fulfil", "dw", true}, {"Rebuilt", "dw", true},
    {"Hold", "dw", true},    {"Arrived", "dw"},      {"Await", "dw"},
    {"Rebuild", "dw"},       {"Lineage", "dw"},      {"KeptCall", "dw"},
    {"MadeBy", "dw"},        {"ForgetCall", "dw"},   {"Replicate", "dw"},
    {"NameObject", "dw"},    {"Locate", "dw"},       {"CreateActor", "dw", true},
    {"WatchActor", "dw"},    {"KillActor", "dw"},    {"FindActor", "dw"},
    {"ActorCreated", "w"},   {"Free", "dw", true},   {"StoreAttached", "dw"},
    {"NeedExtent", "dw"},    {"ExtentMapped", "dw"}, {"NeedReader", "dw"},
    {"Adopt", "dw"},         {"CallSite", "dw"},     {"Unpinned", "dw"},
    {"GiveBack", "dw"},      {"WhereIs", "dw"},      {"Welcome", ""},
    {"Channel", ""},         {"PeerDied", ""},       {"LeaseGranted", ""},
    {"LeaseRefused", ""},    {"LeaseReclaim", ""},   {"Ready", ""},
    {"StartActor", ""},      {"ActorUpdate", ""},    {"FoundActor", ""},
    {"GiveExtent", ""},      {"ExtentSealed", ""},   {"GiveReader", ""},
    {"Recycle", ""},         {"Nodes", ""},          {"StoreTables", ""},
    {"Forget", ""},          {"Answer", ""},         {"MemoryPressure", ""},
    {"NowAt", ""},           {"Replicated", ""},     {"NamedObject", ""},
    {"Located", ""},         {"Explain", "dw"},      {"Explained", ""},
    {"AskRows", ""},         {"GiveRows", "dw"},
};
// Questions for control.
constexpr Row kQuestions[] = {
    {"ListRequest", "dwo"}, {"KeyValueRequest", "o"}, {"DrainRequest", "o"},
    {"NameObject", "o"},    {"RegisterNode", ""},     {"Heartbeat", ""},
    {"Leaving", ""},        {"NodeReport", ""},       {"SpawnActor", ""},
    {"ActorStarted", ""},   {"ActorGone", ""},        {"ActorStartFailed", ""},
    {"KillActor", ""},      {"HandlesGone", ""},      {"FindActor", ""},
    {"WatchActor", ""},     {"NodeHosts", ""},        {"StartJob", ""},
    {"FinishJob", ""},      {"DriverDied", ""},       {"GetJob", ""},
    {"NodePace", ""},
};

bool is_among(Talker who, std::string_view letters) {
  const char letter = who == Talker::stranger   ? 's'
                      : who == Talker::driver   ? 'd'
                      : who == Talker::worker   ? 'w'
                      : who == Talker::observer ? 'o'
                                                : 'n';
  return letters.find(letter) != std::string_view::npos;
}

template <class Variant, std::size_t... I>
std::vector<Variant> one_of_each(std::index_sequence<I...>) {
  return {Variant(std::in_place_index<I>)...};
}
template <class Variant>
std::vector<Variant> one_of_each() {
  return one_of_each<Variant>(std::make_index_sequence<std::variant_size_v<Variant>>());
}
template <class Variant>
std::string kind(const Variant& message) {
  const std::string full =
      std::visit([](const auto& one) { return readable_type(typeid(one).name()); }, message);
  return full.substr(full.rfind(':') + 1);
}
template <std::size_t N>
const Row* row_of(const Row (&rows)[N], const std::string& kind) {
  const auto at = std::find_if(std::begin(rows), std::end(rows),
                               [&](const Row& row) { return row.kind == kind; });
  return at == std::end(rows) ? nullptr : &*at;
}

/// Answers every question about facts with `yes`, and records what it was asked.
struct Facts final : Authority::Facts {
  bool yes = true;
  mutable std::vector<std::string> asked;
  bool note(const char* what) const {
    asked.emplace_back(what);
    return yes;
  }
  bool may_return(ProcessIndex, LeaseId) const override { return note("lease"); }
  bool may_count(ProcessIndex, const wire::Hold&) const override { return note("count"); }
  bool may_make(ProcessIndex, ObjectId) const override { return note("object"); }
  bool may_place(ProcessIndex, const wire::Location&) const override { return note("place"); }
  bool may_create(ProcessIndex, const wire::CreateActor&) const override { return note("actor"); }
};

constexpr ProcessIndex kMe = 3;

TEST(Authority, EveryKindIsTakenFromItsSpeakersAndFromNobodyElse) {
  Facts facts;
  const Authority authority(facts);
  std::size_t rows = 0;
  for (const wire::NodeMessage& message : one_of_each<wire::NodeMessage>()) {
    const Row* row = row_of(kRows, name_of(message));
    ASSERT_NE(row, nullptr) << name_of(message) << " has no row in this test: who may say it?";
    ++rows;
    for (const Talker who : kSpeakers)
      EXPECT_EQ(authority.objection({kMe, who}, message),
                is_among(who, row->who) ? Objection::none : Objection::never)
          << row->kind << " from a " << name_of(who);
  }
  EXPECT_EQ(rows, std::size(kRows));
}

TEST(Authority, WhatIsAnothersIsRefusedAndNothingElseIs) {
  Facts facts;
  facts.yes = false;
  const Authority authority(facts);
  for (const wire::NodeMessage& message : one_of_each<wire::NodeMessage>()) {
    const Row* row = row_of(kRows, name_of(message));
    ASSERT_NE(row, nullptr) << name_of(message);
    for (const Talker who : kSpeakers) {
      if (!is_among(who, row->who)) continue;
      facts.asked.clear();
      EXPECT_EQ(authority.objection({kMe, who}, message),
                row->of_its_own ? Objection::another : Objection::none)
          << row->kind << " from a " << name_of(who);
      EXPECT_EQ(facts.asked.empty(), !row->of_its_own) << row->kind;
    }
  }
}

TEST(Authority, AValueIsAskedForItsObjectAndItsPlace) {
  Facts facts;
  const Authority authority(facts);
  wire::Value there;
  there.kind = wire::Value::Kind::shared;
  const std::vector<wire::NodeMessage> words{wire::Promote{{}, there}, wire::Fulfil{{}, there},
                                             wire::Rebuilt{{}, there}};
  for (const wire::NodeMessage& word : words) {
    facts.asked.clear();
    EXPECT_EQ(authority.objection({kMe, Talker::worker}, word), Objection::none);
    EXPECT_EQ(facts.asked, (std::vector<std::string>{"object", "place"})) << name_of(word);
  }
}

TEST(Authority, EveryQuestionForControlIsTakenFromItsSpeakersAndFromNobodyElse) {
  std::size_t rows = 0;
  for (const control::ToControl& question : one_of_each<control::ToControl>()) {
    const Row* row = row_of(kQuestions, kind(question));
    ASSERT_NE(row, nullptr) << kind(question) << " has no row in this test: who may ask it?";
    ++rows;
    for (const Talker who : kSpeakers)
      EXPECT_EQ(Authority::may_ask(who, question), is_among(who, row->who))
          << row->kind << " from a " << name_of(who);
  }
  EXPECT_EQ(rows, std::size(kQuestions));
}

// Messages between agents: which part of the agent judges each kind. Tests of these parts with
// messages of a wrong node: Remote.AnotherNodes…, References.AValueIsTaken….
TEST(Authority, EveryWordOfAnotherAgentHasItsJudge) {
  using authority::kind_of;
  using authority::kPeerTable;
  const wire::PeerMessage* any = nullptr;
  std::map<PeerOwn, int> kinds;
  for (const PeerRule& rule : kPeerTable) ++kinds[rule.own];
  EXPECT_EQ(kinds[PeerOwn::anything], 10);
  EXPECT_EQ(kinds[PeerOwn::process], 8);
  EXPECT_EQ(kinds[PeerOwn::transfer], 6);
  EXPECT_EQ(kinds[PeerOwn::copy], 3);
  EXPECT_EQ(kinds[PeerOwn::answer], 2);
  EXPECT_EQ(kPeerTable[kind_of<wire::PeerHold>(any)].own, PeerOwn::count);
  EXPECT_EQ(kPeerTable[kind_of<wire::PeerReady>(any)].own, PeerOwn::object);
  EXPECT_EQ(kPeerTable[kind_of<wire::ProgramData>(any)].own, PeerOwn::program);
  EXPECT_EQ(kPeerTable[kind_of<wire::PeerLeaseReturned>(any)].own, PeerOwn::process);
}

}  // namespace
}  // namespace troupe::agent::authority_test
