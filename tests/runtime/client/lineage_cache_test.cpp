// Tests calls that outlive their worker: what the engine tells its agent of them and when, and
// how another process takes them over.
#include "driver.hpp"
#include "troupe/runtime/engine/registry.hpp"

#include <gtest/gtest.h>

namespace troupe::client {
namespace {

struct LineageOfAWorker : Driver {
  LineageOfAWorker() : Driver(wire::ProcessKind::worker) {}
  static constexpr ObjectId kOrphan{99, 1}, kLost{98, 1}, kArgument{77, 5};

  void known_elsewhere(const detail::ObjectHandle& result, ObjectId object) {
    EXPECT_EQ(agent.next<wire::Await>().object, object);
    agent.tell(wire::Ready{object, far_away()});
    agent.run_until([&] { return engine().is_ready(result); }, "the result is known");
  }
  // Gives the object other holders.
  void let_escape(const detail::ObjectHandle& object, std::uint64_t sequence) {
    const auto outer = engine().put(bytes_of("outer"), {&object, 1});
    submit({outer});
    EXPECT_EQ(agent.next_from<wire::Call>(kThere).message.sequence, sequence);
    reply(kThere, sequence, value_of(Kind::pending));
  }
  static wire::KeptCall kept(std::uint64_t number) {
    wire::KeptCall call;
    call.number = number;
    call.call.function = engine::Registry::instance().key_of(&kFunction);
    return call;
  }
  void ask_for_orphan(std::uint64_t number) {
    agent.tell(wire::MadeBy{kOrphan, number, 0, 3});
    agent.tell(wire::Rebuild{kOrphan, kLost});
  }
  /// Takes a call over that may run once more, and gives its second run this result. Returns why
  /// the process then refuses to compute the object again.
  std::string refusal_after(const wire::Value& result) {
    wire::KeptCall call = kept(11);
    call.retries_left = 1;
    agent.tell(call);
    ask_for_orphan(11);
    const ObjectId target = agent.next<wire::Rebuilt>().value.forward;
    lease(kBeside, false, 0);
    agent.next_from<wire::Call>(kBeside);
    reply(kBeside, 1, result);
    EXPECT_EQ(agent.next<wire::Fulfil>().object, target);
    agent.tell(wire::Rebuild{kOrphan, target});
    const wire::Value refusal = agent.next<wire::Rebuilt>().value;
    return refusal.error ? refusal.error->message : "it did not refuse";
  }
};

TEST_F(LineageOfAWorker, AreToldWhenAResultCanBeNamedByOthers) {
  auto argument = put(kLarge);
  auto first = remote_result();
  const ObjectId argument_id = argument.id();
  auto second = submit({first, argument});
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 2, forwarded({77, 2}));
  known_elsewhere(second, {77, 2});
  EXPECT_FALSE(agent.has_said<wire::KeptCall>());
  let_escape(second, 3);
  const auto one = agent.next<wire::KeptCall>(), two = agent.next<wire::KeptCall>();
  EXPECT_TRUE(one.call.arguments.empty());
  ASSERT_EQ(two.call.arguments.size(), 2u);
  EXPECT_EQ(two.made, std::vector<std::uint32_t>{0});
  EXPECT_EQ(two.call.arguments[0].forward, (ObjectId{one.number, 0}));
  EXPECT_EQ(two.call.arguments[1].forward, argument_id);
  EXPECT_EQ(agent.promoted().count(argument_id), 1u);
  EXPECT_EQ(agent.promoted().count(first.id()), 0u) << "its bytes are not kept for that";
  EXPECT_GE(two.input_bytes, kLarge.size());
  const auto made = agent.next<wire::MadeBy>();
  EXPECT_EQ(made.object, second.id());
  EXPECT_EQ(made.call, two.number);
  const ObjectId id = second.id();
  first = second = argument = {};
  agent.run_until([&] { return agent.has_said<wire::Lineage>(); }, "only others hold it");
  EXPECT_FALSE(agent.has_said<wire::ForgetCall>());
  agent.tell(wire::Lineage{id});
  EXPECT_EQ(agent.next<wire::ForgetCall>().number, two.number);
  EXPECT_EQ(agent.next<wire::ForgetCall>().number, one.number);
}

TEST_F(LineageOfAWorker, AreToldBeforeAResultForWhichOthersWait) {
  auto result = submit({});
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  const auto outer = engine().put(bytes_of("outer"), {&result, 1});
  auto other = submit({outer});
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  ASSERT_EQ(agent.promoted().count(result.id()), 1u);
  reply(kThere, 1, forwarded(kObject));
  agent.run_until([&] { return agent.has_said<wire::Fulfil>(); }, "others know the result");
  EXPECT_TRUE((agent.says_before<wire::KeptCall, wire::Fulfil>()))
      << "a worker that is killed in between takes the call along";
  EXPECT_TRUE((agent.says_before<wire::MadeBy, wire::Fulfil>()));
  EXPECT_EQ(agent.next<wire::MadeBy>().call, agent.next<wire::KeptCall>().number);
  const auto known = agent.next<wire::Fulfil>();
  EXPECT_EQ(known.object, result.id());
  EXPECT_EQ(known.value.forward, kObject);
}

TEST_F(LineageOfAWorker, AreToldWhenAResultIsNamedWhoseValueIsStillOnItsWay) {
  auto result = submit({});
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 1, forwarded(kObject));
  EXPECT_EQ(agent.next<wire::Await>().object, kObject);
  ASSERT_FALSE(engine().is_ready(result));
  let_escape(result, 2);
  const auto made = agent.next<wire::MadeBy>();
  EXPECT_EQ(made.object, result.id());
  EXPECT_EQ(made.call, agent.next<wire::KeptCall>().number);
}

TEST_F(Driver, TellsOfNoCallSinceItsObjectsGoWithIt) {
  auto result = remote_result();
  const auto outer = engine().put(bytes_of("outer"), {&result, 1});
  submit({outer});
  agent.next_from<wire::Call>(kThere);
  EXPECT_FALSE(agent.has_said<wire::KeptCall>());
}

TEST_F(LineageOfAWorker, AreMadeAgainByWhoTakesThemOver) {
  wire::KeptCall first = kept(11), second = kept(12);
  Blob payload;
  first.call.arguments.resize(2);
  first.call.arguments[0].kind = Kind::inline_bytes;
  append_inline(first.call.arguments[0], bytes_of("abc"), payload);
  first.call.arguments[1] = forwarded(kArgument);
  second.call.arguments = {forwarded({11, 0})};
  second.made = {0};
  agent.tell(first, payload);
  agent.tell(second);
  ask_for_orphan(12);
  const auto rebuilt = agent.next<wire::Rebuilt>();
  EXPECT_EQ(rebuilt.object, kOrphan);
  EXPECT_EQ(rebuilt.value.kind, Kind::forwarded);
  const auto first_runs = agent.next<wire::MadeBy>(), second_runs = agent.next<wire::MadeBy>();
  EXPECT_FALSE(first_runs.object || second_runs.object) << "only that a retry of each is spent";
  EXPECT_EQ(first_runs.call, 11u);
  EXPECT_EQ(second_runs.call, 12u);
  EXPECT_EQ(second_runs.retries_left, 2);
  EXPECT_EQ(agent.next<wire::Await>().object, kArgument);
  agent.tell(wire::Ready{kArgument, far_away()});
  lease(kBeside, false, 0);
  const auto call = agent.next_from<wire::Call>(kBeside);
  EXPECT_EQ(call.message.attempt, 2u);
  ASSERT_EQ(call.message.arguments.size(), 2u);
  EXPECT_EQ(call.payload.substr(call.message.arguments[0].payload_offset, 3), "abc");
  EXPECT_EQ(call.message.arguments[1].forward, kArgument);
  const wire::Value made = agent.shared(kLarge);
  reply(kBeside, 1, made);
  const auto next = agent.next_from<wire::Call>(kBeside);
  ASSERT_EQ(next.message.arguments.size(), 1u);
  EXPECT_EQ(next.message.arguments[0].location, made.location);
  reply(kBeside, 2, agent.shared(kLarge));
  const auto again = agent.next<wire::MadeBy>();
  EXPECT_EQ(again.object, rebuilt.value.forward) << "and may be lost again";
  EXPECT_EQ(again.call, 12u);
  EXPECT_EQ(again.retries_left, 2);
  EXPECT_FALSE(agent.has_said<wire::KeptCall>()) << "the agent has them";
}

TEST_F(LineageOfAWorker, AreRefusedWithTheReasonAfterASecondRun) {
  EXPECT_EQ(refusal_after(failed(Code::out_of_memory, "the store is full")),
            "the task that computed it failed when it ran again");
}

TEST_F(LineageOfAWorker, AreRefusedWithTheReasonWhenNoRetryIsLeft) {
  EXPECT_EQ(refusal_after(agent.shared(kLarge)),
            "the task that computed it may not run again: its max_retries are used up");
}

TEST_F(LineageOfAWorker, OfAnotherProgramAreRefused) {
  wire::KeptCall call = kept(11);
  call.call.function.module += 1;
  call.call.arguments = {forwarded(kArgument)};
  agent.tell(call);
  ask_for_orphan(11);
  const auto rebuilt = agent.next<wire::Rebuilt>();
  EXPECT_EQ(rebuilt.object, kOrphan);
  EXPECT_EQ(rebuilt.value.kind, Kind::error);
  agent.run_until([&] { return agent.holds(kArgument, FakeAgent::kProcess) == -1; },
                  "what was counted for it is given back");
}

TEST_F(LineageOfAWorker, WhoseArgumentIsUnknownAreRefused) {
  wire::KeptCall call = kept(12);
  call.call.arguments = {forwarded({11, 0})};
  call.made = {0};
  agent.tell(call);
  ask_for_orphan(12);
  EXPECT_EQ(agent.next<wire::Rebuilt>().value.kind, Kind::error);
}

}  // namespace
}  // namespace troupe::client
