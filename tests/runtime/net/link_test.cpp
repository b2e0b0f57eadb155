// Tests Link between two ends and a wire that the test controls: order, loss, duplicates, window,
// reset outcomes, epochs, versions, idle close, bad frames.
#include "troupe/runtime/net/link.hpp"

#include "tests/runtime/net/text.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <functional>

namespace troupe::net {
namespace {

using namespace std::chrono_literals;

/// One end: the Link and its output.
struct End {
  Link link;
  LinkOutput out;
  std::vector<std::string> got;
  std::vector<LinkEvent> events;
  explicit End(LinkOptions options = {}) : link(std::move(options), SessionId::random(), Time{}) {}

  /// Takes the output; returns the frames for the wire.
  std::vector<Blob> flush() {
    std::vector<Blob> frames;
    for (Frame& f : out.transmit) frames.push_back(encode(f));
    for (Delivered& d : out.deliver) got.push_back(text(d.payload));
    for (LinkEvent& e : out.events) events.push_back(std::move(e));
    out.clear();
    return frames;
  }
  template <class E>
  const E* last() const {
    for (auto at = events.rbegin(); at != events.rend(); ++at)
      if (const E* e = std::get_if<E>(&*at)) return e;
    return nullptr;
  }
};

struct Wire {
  Time now{};
  End* a;
  End* b;
  /// Carries frames both ways until there are none; `lose` decides which are lost.
  void exchange(const std::function<bool(const Blob&)>& lose = nullptr) {
    for (int round = 0; round < 1000; ++round) {
      const auto from_a = a->flush(), from_b = b->flush();
      if (from_a.empty() && from_b.empty()) return;
      for (const Blob& f : from_a)
        if (!lose || !lose(f)) b->link.on_frame(f, now, b->out);
      for (const Blob& f : from_b)
        if (!lose || !lose(f)) a->link.on_frame(f, now, a->out);
    }
    FAIL() << "the two ends never fall silent";
  }
  void connect() {
    a->link.on_connected(now, a->out);
    b->link.on_connected(now, b->out);
    exchange();
  }
  /// Lets time pass from deadline to deadline, and carries frames.
  void pass(Duration length) {
    const Time end = now + length;
    while (true) {
      const Time due = std::min(a->link.next_deadline(), b->link.next_deadline());
      if (due > end) break;
      now = std::max(now, due);
      a->link.on_time(now, a->out);
      b->link.on_time(now, b->out);
      exchange();
    }
    now = end;
  }
};

TEST(Link, DeliversInOrderAndAcknowledges) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  ASSERT_EQ(*a.link.send(text("early"), wire.now, a.out), 1u);  // before any connection
  wire.connect();
  ASSERT_TRUE(a.link.established() && b.link.established());
  for (int i = 2; i <= 100; ++i)
    ASSERT_EQ(*a.link.send(text(std::to_string(i)), wire.now, a.out), static_cast<Ticket>(i));
  wire.exchange();
  wire.pass(10ms);
  ASSERT_EQ(b.got.size(), 100u);
  EXPECT_EQ(b.got.front(), "early");
  EXPECT_EQ(b.got.back(), "100");
  EXPECT_EQ(a.link.delivered_through(), 100u);
  EXPECT_EQ(a.link.unacknowledged(), 0u);
  EXPECT_EQ(a.link.stats().resent, 0u);
}

TEST(Link, ResendsWhatWasLostAndDropsDuplicates) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  int frame = 0;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(a.link.send(text(std::to_string(i)), wire.now, a.out));
  wire.exchange([&](const Blob&) { return ++frame % 3 == 0; });
  wire.pass(20s);
  ASSERT_EQ(b.got.size(), 200u);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(b.got[i], std::to_string(i));
  EXPECT_GT(a.link.stats().resent, 0u);
  EXPECT_EQ(a.link.unacknowledged(), 0u);
}

TEST(Link, AFullWindowIsOverloadedAndOpensAgain) {
  End a({.window_messages = 4}), b({.window_messages = 4});
  Wire wire{.a = &a, .b = &b};
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(a.link.send(text("x"), wire.now, a.out));
  EXPECT_FALSE(a.link.can_send(1));
  const Result<Ticket> refused = a.link.send(text("x"), wire.now, a.out);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::overloaded);
  EXPECT_EQ(refused.error().outcome(), Outcome::not_executed);
  wire.connect();
  wire.pass(10ms);
  EXPECT_TRUE(a.link.can_send(1));
  EXPECT_EQ(*a.link.send(text("x"), wire.now, a.out), 5u);
}

TEST(Link, TheWindowIsBoundedInBytesButTakesOneMessageOfAnySize) {
  End a({.window_bytes = 1000});
  ASSERT_TRUE(a.link.can_send(kMaxPayloadSize));
  ASSERT_TRUE(a.link.send(Blob(900), Time{}, a.out));
  EXPECT_FALSE(a.link.can_send(101));
  EXPECT_TRUE(a.link.can_send(100));
  const Result<Ticket> huge = a.link.send(Blob(kMaxPayloadSize + 1), Time{}, a.out);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code(), Code::invalid_argument);
}

TEST(Link, ARestartedPeerResetsWithOutcomes) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  ASSERT_TRUE(a.link.send(text("arrives"), wire.now, a.out));
  wire.exchange();
  wire.pass(10ms);
  ASSERT_TRUE(a.link.send(text("sent, lost"), wire.now, a.out));
  a.flush();
  a.link.on_disconnected();
  ASSERT_TRUE(a.link.send(text("never sent"), wire.now, a.out));

  End reborn;
  Wire next{.now = wire.now, .a = &a, .b = &reborn};
  next.connect();
  const Reset* reset = a.last<Reset>();
  ASSERT_NE(reset, nullptr);
  EXPECT_EQ(reset->delivered_through, 1u);
  EXPECT_EQ(reset->sent_through, 2u);
  EXPECT_EQ(reset->accepted_through, 3u);
  EXPECT_EQ(reset->outcome_of(2), Outcome::unknown);
  EXPECT_EQ(reset->outcome_of(3), Outcome::not_executed);
  ASSERT_EQ(*a.link.send(text("new"), next.now, a.out), 4u);
  next.exchange();
  EXPECT_EQ(reborn.got, std::vector<std::string>{"new"});
}

TEST(Link, AHelloDelayedFromADeadProcessIsNotBelieved) {
  End a, old;
  Wire first{.a = &a, .b = &old};
  old.link.on_connected(first.now, old.out);
  const std::vector<Blob> delayed = old.flush();
  End b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  ASSERT_TRUE(a.link.send(text("1"), wire.now, a.out));
  for (const Blob& frame : delayed) a.link.on_frame(frame, wire.now, a.out);
  wire.exchange();
  EXPECT_EQ(a.link.stats().resets, 0u);
  ASSERT_TRUE(a.link.send(text("2"), wire.now, a.out));
  wire.exchange();
  EXPECT_EQ(b.got, (std::vector<std::string>{"1", "2"}));
}

TEST(Link, AnOldEpochIsRefusedForEver) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  a.link.set_epoch(5);
  wire.connect();
  ASSERT_TRUE(a.link.send(text("good"), wire.now, a.out));
  wire.exchange();
  b.link.set_min_epoch(6);
  ASSERT_TRUE(a.link.send(text("too old"), wire.now, a.out));
  wire.exchange();
  EXPECT_EQ(b.got, std::vector<std::string>{"good"});
  ASSERT_NE(a.last<Fenced>(), nullptr);
  EXPECT_EQ(a.last<Fenced>()->least, 6u);
  ASSERT_NE(a.last<Reset>(), nullptr);
  EXPECT_EQ(a.last<Reset>()->outcome_of(2), Outcome::not_executed);
  EXPECT_FALSE(a.link.send(text("x"), wire.now, a.out));
  EXPECT_GE(b.link.stats().fenced, 1u);
}

TEST(Link, AnotherProtocolIsRefusedWithASentenceThatNamesBoth) {
  End a({.protocol = 1, .build_id = "aaaa"}), b({.protocol = 2, .build_id = "bbbb"});
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  for (End* end : {&a, &b}) {
    ASSERT_NE(end->last<Incompatible>(), nullptr);
    const std::string why = end->last<Incompatible>()->error.message();
    for (const char* part : {"protocol 1", "protocol 2", "aaaa", "bbbb"})
      EXPECT_NE(why.find(part), std::string::npos) << why;
    EXPECT_FALSE(end->link.send(text("x"), wire.now, end->out));
  }
}

TEST(Link, IdleClosesAndOpensOnDemand) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  ASSERT_TRUE(a.link.send(text("1"), wire.now, a.out));
  wire.pass(5min);
  ASSERT_NE(a.last<IdleClose>(), nullptr);
  ASSERT_NE(b.last<IdleClose>(), nullptr);
  EXPECT_EQ(a.link.next_deadline(), Time::max());
  ASSERT_EQ(*a.link.send(text("2"), wire.now, a.out), 2u);
  a.flush();
  ASSERT_NE(a.last<Open>(), nullptr);
  a.link.on_connected(wire.now, a.out);
  wire.exchange();
  EXPECT_NE(b.last<Open>(), nullptr);
  EXPECT_EQ(b.got.back(), "2");
  EXPECT_EQ(a.link.stats().resets + b.link.stats().resets, 0u);
}

TEST(Link, ASilentPeerAsksForANewConnection) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  ASSERT_TRUE(a.link.send(text("lost"), wire.now, a.out));
  for (int i = 0; i < 100 && a.last<Reconnect>() == nullptr; ++i) {
    wire.now = a.link.next_deadline();
    a.link.on_time(wire.now, a.out);
    a.flush();
  }
  EXPECT_NE(a.last<Reconnect>(), nullptr);
  EXPECT_LE(wire.now, Time{} + 10s);
}

/// Lets time pass while no frame of this end arrives and none comes. Returns false when it asked
/// for a new connection.
bool stays(End& a, Time& now, Duration length) {
  const Time end = now + length;
  for (; a.link.next_deadline() <= end; a.flush()) {
    now = std::max(now, a.link.next_deadline());
    a.link.on_time(now, a.out);
  }
  now = end;
  return a.last<Reconnect>() == nullptr;
}

TEST(Link, WhoStoodStillAsksThePeerAnewBeforeItAsksForANewConnection) {
  for (const auto silent : {0ms, 1900ms, 5900ms}) {
    End a, b;
    Wire wire{.a = &a, .b = &b};
    wire.connect();
    ASSERT_TRUE(a.link.send(text("lost"), wire.now, a.out));
    a.flush();
    ASSERT_TRUE(stays(a, wire.now, silent));
    wire.now += 12s;
    ASSERT_TRUE(stays(a, wire.now, 3900ms)) << "the peer may have stood still with it";
    EXPECT_FALSE(stays(a, wire.now, 200ms)) << "a peer that is silent all the same";
  }
}

TEST(Link, WhoStandsStillAgainAndAgainAsksForANewConnection) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  ASSERT_TRUE(a.link.send(text("lost"), wire.now, a.out));
  a.flush();
  Time due{};
  for (int i = 0; i < 10; ++i) {
    wire.now = a.link.next_deadline() + 2300ms;
    a.link.on_time(wire.now, a.out);
    a.flush();
    if (i == 2) due = a.link.due_since();
  }
  EXPECT_NE(a.last<Reconnect>(), nullptr);
  EXPECT_EQ(a.link.due_since(), due) << "a new standstill is no sign of life";
}

TEST(Link, APeerThatSpokeMayStandStillWithThisProcessAgain) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  for (int i = 0; i < 10; ++i) {
    wire.now += 70s;
    ASSERT_TRUE(a.link.send(text("x"), wire.now, a.out));
    a.flush();  // lost
    wire.now += 70s;
    a.link.on_time(wire.now, a.out);
    EXPECT_EQ(a.link.due_since(), wire.now) << i;
    wire.exchange();
    EXPECT_EQ(a.link.unacknowledged(), 0u);
  }
  EXPECT_EQ(a.last<Reconnect>(), nullptr);
}

TEST(Link, ATimeWithoutAConnectionIsNoStandstill) {
  for (const bool sent : {true, false}) {
    End a, b;
    Wire wire{.a = &a, .b = &b};
    wire.connect();
    if (!sent) {  // it must still acknowledge
      ASSERT_TRUE(b.link.send(text("x"), wire.now, b.out));
      for (const Blob& frame : b.flush()) a.link.on_frame(frame, wire.now, a.out);
      a.flush();
      a.link.on_disconnected();
    }
    ASSERT_TRUE(a.link.send(text("lost"), wire.now, a.out));
    a.flush();
    a.link.on_disconnected();
    const Time due = a.link.due_since();
    wire.now += 10s;
    a.link.on_connected(wire.now, a.out);
    a.link.on_time(wire.now, a.out);
    EXPECT_EQ(a.link.due_since(), due) << "it owed a sign of life all the time";
  }
}

TEST(Link, WhoStoodStillSendsAgainAtOnceAndSoonOnceMore) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  ASSERT_TRUE(a.link.send(text("lost"), wire.now, a.out));
  a.flush();
  ASSERT_TRUE(stays(a, wire.now, 3s));  // by now there are seconds between two attempts
  wire.now += 12s;
  for (int sent = 0; sent < 2; ++sent) {
    const auto before = a.link.stats().resent;
    ASSERT_TRUE(stays(a, wire.now, 300ms + sent * 300ms));
    EXPECT_GT(a.link.stats().resent, before);
  }
}

TEST(Link, ItsOwnStandstillIsNotAPeersSilenceNorATimeOfNoUse) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  ASSERT_TRUE(a.link.send(text("lost"), wire.now, a.out));
  a.flush();
  wire.now += 70s;
  a.link.on_time(wire.now, a.out);
  EXPECT_EQ(a.link.due_since(), wire.now);
  wire.exchange();
  EXPECT_EQ(b.got, std::vector<std::string>{"lost"});
  wire.now += 70s;
  a.link.on_time(wire.now, a.out);
  wire.exchange();
  EXPECT_EQ(a.last<IdleClose>(), nullptr);
}

TEST(Link, SaysSinceWhenThePeerOwesASignOfLife) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  EXPECT_EQ(a.link.due_since(), Time::max());
  const Time sent = wire.now;
  ASSERT_TRUE(a.link.send(text("x"), wire.now, a.out));
  EXPECT_EQ(a.link.due_since(), sent);
  wire.exchange();
  wire.pass(10ms);
  EXPECT_EQ(a.link.due_since(), Time::max()) << "it was acknowledged";
  const auto lost = [](const Blob&) { return true; };
  const Time second = wire.now;
  ASSERT_TRUE(a.link.send(text("y"), wire.now, a.out));
  wire.exchange(lost);
  for (int i = 0; i < 20; ++i) {  // sent again and again
    wire.now = a.link.next_deadline();
    a.link.on_time(wire.now, a.out);
    wire.exchange(lost);
  }
  EXPECT_EQ(a.link.due_since(), second);
  a.link.abandon();
  EXPECT_EQ(a.link.due_since(), Time::max());
}

TEST(Link, WhoIsAskedForASignOfLifeOwesIt) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  wire.now += 2s;
  a.link.on_time(wire.now, a.out);
  EXPECT_EQ(a.link.due_since(), wire.now);
  wire.exchange();
  EXPECT_EQ(a.link.due_since(), Time::max());
}

TEST(Link, BadFramesAreViolationsAndChangeNothing) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  ASSERT_TRUE(a.link.send(text("payload"), wire.now, a.out));
  const Blob good = a.flush().at(0);
  auto refused = [&](Blob frame) {
    const auto before = b.link.stats().violations;
    b.link.on_frame(frame, wire.now, b.out);
    return b.link.stats().violations == before + 1 && b.flush().empty() && b.got.empty();
  };
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_TRUE(refused(Blob(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))));
  auto changed = [&](std::size_t at, int value) {
    Blob frame = good;
    frame[at] = static_cast<std::byte>(value);
    return frame;
  };
  EXPECT_TRUE(refused(changed(0, 0)));      // magic
  EXPECT_TRUE(refused(changed(2, 9)));      // kind
  EXPECT_TRUE(refused(changed(7, 0x80)));   // length 2^31
  EXPECT_TRUE(refused(changed(16, 0x77)));  // acknowledges what was never sent
  EXPECT_TRUE(refused(Blob(kMaxFrameSize + 1)));
  b.link.on_frame(good, wire.now, b.out);
  b.flush();
  EXPECT_EQ(b.got, std::vector<std::string>{"payload"});
}

TEST(Link, RandomBytesNeverHurt) {
  End a, b;
  Wire wire{.a = &a, .b = &b};
  wire.connect();
  ASSERT_TRUE(a.link.send(text("payload"), wire.now, a.out));
  const Blob good = a.flush().at(0);
  Random random(7);
  for (int i = 0; i < 20000; ++i) {
    Blob frame = good;
    for (std::uint64_t n = 1 + random.below(4); n > 0; --n)
      frame[random.below(32)] = static_cast<std::byte>(random());
    if (random.chance(0.2)) frame.resize(random.below(good.size()));
    b.link.on_frame(frame, wire.now, b.out);
    b.flush();
    EXPECT_LE(b.link.held_bytes(), std::size_t{9} << 20);
  }
}

}  // namespace
}  // namespace troupe::net
