// Tests a join from both ends over real sockets on 127.0.0.1: the door hears who asks and what, and
// the join ends once, with the answer or with a reason.
#include "troupe/runtime/net/internal/own_join.hpp"

#include "tests/runtime/net/text.hpp"
#include "troupe/runtime/net/internal/door_socket.hpp"
#include "troupe/runtime/net/internal/gatekeeper.hpp"

#include <gtest/gtest.h>
#include <poll.h>

namespace troupe::net::internal {
namespace {

using namespace std::chrono_literals;

struct OwnJoinTest : testing::Test {
  CurveKeys head_keys = CurveKeys::generate().value(), own_keys = CurveKeys::generate().value();
  CurveKeys once = CurveKeys::generate().value();
  Sockets head{head_keys, 100}, own{own_keys, 100};
  Gatekeeper gate{head.context()};
  DoorSocket door{head, 7, "build-1"};
  std::optional<OwnJoin> join;
  OwnJoin::End end;
  std::optional<DoorSocket::Caller> caller;
  std::size_t bad = 0;

  void SetUp() override {
    ASSERT_TRUE(gate.bound());
    ASSERT_TRUE(door.open("tcp://127.0.0.1:*"));
  }
  JoinToken token() const { return {door.address(), head_keys.public_key, once.secret_key.copy()}; }
  void start(Blob body) {
    join.emplace(own, door.address(), steady_now() + 5s);
    const DoorMessage request{DoorKind::join, 7, "build-2", std::move(body)};
    end = join->start(token(), request, door.address());
  }
  /// Runs both ends until `done`, for five seconds at most.
  template <class Done>
  bool drive(Done done) {
    for (const Time until = steady_now() + 5s; steady_now() < until;) {
      gate.answer(steady_now());
      if (!caller && door.readable()) {
        caller = door.receive();
        bad += caller ? 0 : 1;
      }
      for (const std::uint64_t id : own.ready()) {
        const Sockets::Watch* watch = own.find(id);
        if (watch == nullptr || end) continue;
        end = watch->kind == Watched::join ? join->on_answer() : join->on_monitor();
      }
      if (done()) return true;
      pollfd set[] = {{gate.fd(), POLLIN, 0}, {head.fd(), POLLIN, 0}, {own.fd(), POLLIN, 0}};
      ::poll(set, 3, 10);
    }
    return false;
  }
};

TEST_F(OwnJoinTest, EndsWithTheAnswer) {
  gate.admit(once.public_key, Role::join, Time::max());
  start(text("my key"));
  ASSERT_FALSE(end);
  ASSERT_TRUE(drive([&] { return caller.has_value(); }));
  EXPECT_EQ(caller->key, once.public_key);
  EXPECT_EQ(caller->message.kind, DoorKind::join);
  EXPECT_EQ(caller->message.build, "build-2");
  EXPECT_EQ(text(caller->message.body), "my key");
  door.answer(caller->routing_id, DoorKind::joined, text("welcome"));
  ASSERT_TRUE(drive([&] { return end.has_value(); }));
  ASSERT_TRUE(end->ok());
  EXPECT_EQ(text(**end), "welcome");
}

TEST_F(OwnJoinTest, EndsWithTheReasonOfARefusal) {
  gate.admit(once.public_key, Role::join, Time::max());
  start(text("my key"));
  ASSERT_TRUE(drive([&] { return caller.has_value(); }));
  door.refuse(caller->routing_id,
              "not to\x1b"
              "day");
  ASSERT_TRUE(drive([&] { return end.has_value(); }));
  ASSERT_FALSE(end->ok());
  EXPECT_EQ(end->error().message(), "cannot join at " + door.address() + ": not to?day");
}

TEST_F(OwnJoinTest, EndsWhenTheKeyIsNotAdmitted) {
  start(text("my key"));
  ASSERT_TRUE(drive([&] { return end.has_value(); }));
  ASSERT_FALSE(end->ok());
  EXPECT_NE(end->error().message().find("spent"), std::string::npos);
  EXPECT_FALSE(caller);
}

TEST_F(OwnJoinTest, DoesNotBeginWithARequestThatIsTooLarge) {
  start(Blob(kMaxDoorBody + 1));
  ASSERT_TRUE(end);
  ASSERT_FALSE(end->ok());
  EXPECT_EQ(end->error().code(), Code::invalid_argument);
}

TEST_F(OwnJoinTest, TheDoorObjectsToAnotherProtocolInWords) {
  EXPECT_EQ(door.objection_to({DoorKind::knock, 7, "b", {}}), "");
  EXPECT_EQ(door.objection_to({DoorKind::knock, 8, "b", {}}),
            "this node speaks protocol 7 (build build-1) and the caller protocol 8 (build b): run "
            "the same release of troupe on both");
  EXPECT_EQ(door.message_of(DoorKind::knock, {}).protocol, 7U);
}

TEST_F(OwnJoinTest, ADoorThatIsTakenIsAnErrorWithItsAddress) {
  DoorSocket second(head, 7, "build-1");
  const auto opened = second.open(door.address());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::unavailable);
  EXPECT_NE(opened.error().message().find(door.address()), std::string::npos);
}

}  // namespace
}  // namespace troupe::net::internal
