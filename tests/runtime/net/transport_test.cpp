// Tests Transport over real sockets on 127.0.0.1: exactly-once delivery through dropped
// connections, and the protection against strangers, wrong keys, revoked keys, other versions and
// floods.
#include "troupe/runtime/net/transport.hpp"

#include "tests/runtime/net/proxy.hpp"
#include "tests/runtime/net/text.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#if defined(__SANITIZE_THREAD__)
/// ThreadSanitizer does not see the atomics of libraries that are built without it.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so\ncalled_from_lib:libsodium.so\nrace:libzmq.so\n";
}
#endif

namespace troupe::net {
namespace {

using namespace std::chrono_literals;
using test::connect_raw;
using test::Proxy;

/// A transport and what it reported.
struct Host {
  NodeId node = NodeId::random();
  std::unique_ptr<Transport> transport;
  std::vector<TransportEvent> events;
  std::vector<std::string> got;
  bool keep_messages = true;

  explicit Host(TransportOptions options = {}, CurveKeys keys = CurveKeys::generate().value()) {
    options.keys = std::move(keys);
    transport = Transport::open(std::move(options)).value();
  }
  void poll() {
    std::vector<TransportEvent> now;
    transport->poll(steady_now(), now);
    for (TransportEvent& event : now) {
      if (auto* message = std::get_if<Message>(&event); message != nullptr && keep_messages)
        got.push_back(text(message->content.payload));
      events.push_back(std::move(event));
    }
  }
  PeerInfo info() const {
    return {.node = node, .key = transport->public_key(), .door = transport->door()};
  }
  template <class E>
  const E* last() const {
    for (auto at = events.rbegin(); at != events.rend(); ++at)
      if (const E* e = std::get_if<E>(&*at)) return e;
    return nullptr;
  }
  template <class E>
  std::size_t count() const {
    std::size_t n = 0;
    for (const TransportEvent& event : events) n += std::get_if<E>(&event) != nullptr ? 1 : 0;
    return n;
  }
};

/// Runs the hosts as one event loop until `done` or the limit; sleeps only in poll(2).
template <class Done>
bool drive(const std::vector<Host*>& hosts, Duration limit, Done done) {
  const Time end = steady_now() + limit;
  while (true) {
    for (Host* host : hosts) host->poll();
    if (done()) return true;
    const Time now = steady_now();
    if (now >= end) return false;
    Time due = end;
    std::vector<pollfd> fds;
    for (Host* host : hosts) {
      due = std::min(due, host->transport->next_deadline());
      fds.push_back({host->transport->fd(), POLLIN, 0});
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(due - now, Duration{}));
    ::poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
  }
}

void introduce(Host& a, Host& b) {
  a.transport->admit(b.info());
  b.transport->admit(a.info());
}

TEST(Transport, TwoHostsTalkBothWaysOverOneSocket) {
  Host a, b;
  introduce(a, b);
  const Time now = steady_now();
  ASSERT_TRUE(a.transport->send(b.node, text("ping"), now));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return b.got.size() == 1; }));
  ASSERT_TRUE(b.transport->send(a.node, text("pong"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return a.got.size() == 1; }));
  EXPECT_EQ(b.got[0] + a.got[0], "pingpong");
  EXPECT_EQ(a.count<PeerUp>(), 1u);
  EXPECT_EQ(a.transport->stats().connections, 1u);
}

TEST(Transport, BothKnockAtOnceAndEndWithOneWorkingPath) {
  for (int round = 0; round < 20; ++round) {
    Host a, b;
    introduce(a, b);
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(a.transport->send(b.node, text(std::to_string(i)), steady_now()));
      ASSERT_TRUE(b.transport->send(a.node, text(std::to_string(i)), steady_now()));
    }
    ASSERT_TRUE(drive({&a, &b}, 10s, [&] { return a.got.size() == 50 && b.got.size() == 50; }))
        << a.got.size() << " " << b.got.size();
    for (int i = 0; i < 50; ++i)
      ASSERT_EQ(a.got[i] + b.got[i], std::to_string(i) + std::to_string(i));
    EXPECT_EQ(a.count<PeerReset>() + b.count<PeerReset>(), 0u);
  }
}

TEST(Transport, TwentyThousandMessagesThroughSixteenDroppedConnections) {
  Proxy proxy;
  Host b;
  TransportOptions options;
  options.dial = [&](const std::string& address) { return proxy.in_front_of(address); };
  Host a(std::move(options));
  introduce(a, b);
  b.keep_messages = false;
  constexpr std::uint64_t total = 20000;
  std::uint64_t sent = 0, received = 0, drops = 0;
  bool in_order = true;
  std::size_t seen = 0;
  const auto begin = steady_now();
  const bool done = drive({&a, &b}, 60s, [&] {
    for (; seen < b.events.size(); ++seen) {
      const auto* message = std::get_if<Message>(&b.events[seen]);
      if (message == nullptr) continue;
      in_order = in_order && text(message->content.payload) == std::to_string(received);
      ++received;
    }
    for (int i = 0; i < 64 && sent < total && a.transport->can_send(b.node, 8); ++i)
      if (a.transport->send(b.node, text(std::to_string(sent)), steady_now())) ++sent;
    if (drops < 16 && received > drops * total / 17 + 100 && proxy.connections() > 0) {
      proxy.drop_all();
      ++drops;
    }
    return received == total && a.transport->link(b.node)->unacknowledged() == 0;
  });
  const double seconds = std::chrono::duration<double>(steady_now() - begin).count();
  EXPECT_TRUE(done) << received << " of " << total << " received, " << sent << " sent";
  EXPECT_TRUE(in_order);
  EXPECT_EQ(received, total);
  EXPECT_EQ(drops, 16u);
  EXPECT_EQ(a.count<PeerReset>() + b.count<PeerReset>(), 0u);
  const LinkStats& stats = a.transport->link(b.node)->stats();
  EXPECT_GT(stats.resent, 0u);  // the drops did hit frames
  std::printf("20,000 messages, %llu drops, %llu resent, %.2f s\n",
              static_cast<unsigned long long>(drops), static_cast<unsigned long long>(stats.resent),
              seconds);
}

TEST(Transport, AnIdleConnectionClosesOnBothSidesWithoutAlarmAndOpensAgain) {
  TransportOptions idle;
  idle.link.idle_close = 200ms;
  Host a(std::move(idle)), b;
  introduce(a, b);
  ASSERT_TRUE(a.transport->send(b.node, text("1"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return b.got.size() == 1; }));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] {
    return !a.transport->connected(b.node) && !b.transport->connected(a.node);
  }));
  ASSERT_TRUE(b.transport->send(a.node, text("2"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return a.got.size() == 1; }));
  for (Host* host : {&a, &b})
    EXPECT_EQ(host->count<PeerDown>() + host->count<PeerReset>() + host->count<PeerLost>(), 0u);
}

TEST(Transport, ABrokenConnectionIsReportedAndSoIsItsReturn) {
  Proxy proxy;
  Host b;
  TransportOptions options;
  options.dial = [&](const std::string& address) { return proxy.in_front_of(address); };
  Host a(std::move(options));
  introduce(a, b);
  ASSERT_TRUE(a.transport->send(b.node, text("1"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return b.got.size() == 1; }));
  const Time begin = steady_now();
  proxy.drop_all();
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return a.count<PeerDown>() == 1; }));
  EXPECT_LT(steady_now() - begin, 1s);
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return a.count<PeerUp>() == 2; }));
  EXPECT_EQ(a.count<PeerReset>() + b.count<PeerReset>(), 0u);
}

// Messages that the peer sent before its end are no sign of life. In half of the rounds more
// messages are unread than are read before the close is noticed.
TEST(Transport, APeerThatEndsWithMuchUnreadIsReportedAtOnce) {
  for (int round = 0; round < 8; ++round) {
    Host a;
    auto b = std::make_unique<Host>();
    introduce(a, *b);
    ASSERT_TRUE(b->transport->send(a.node, text("0"), steady_now()));
    ASSERT_TRUE(drive({&a, b.get()}, 5s, [&] { return a.got.size() == 1; }));
    std::size_t sent = 1;
    while (sent < 1000 && b->transport->send(a.node, text(std::string(100, 'x')), steady_now()))
      ++sent;
    ASSERT_GT(sent, 300u) << "one turn reads 256";
    drive({b.get()}, 50ms, [] { return false; });
    b.reset();
    EXPECT_TRUE(drive({&a}, 2s, [&] { return a.count<PeerDown>() == 1; })) << a.got.size();
  }
}

// The transport must not use libzmq's own heartbeats: with them libzmq aborts a process that
// sleeps on unread messages when the connection is reset.
TEST(Transport, AHostThatSleepsOnUnreadMessagesSurvivesTheResetOfItsConnection) {
  Proxy proxy;
  Host b;
  TransportOptions options;
  options.dial = [&](const std::string& address) { return proxy.in_front_of(address); };
  Host a(std::move(options));
  introduce(a, b);
  ASSERT_TRUE(a.transport->send(b.node, text("0"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return b.got.size() == 1; }));
  const auto never = [] { return false; };
  std::size_t sent = 1;
  while (sent < 1000 && a.transport->can_send(b.node, 1000))
    if (a.transport->send(b.node, text(std::string(1000, 'x')), steady_now())) ++sent;
  ASSERT_GT(sent, 300u) << "more than libzmq reads ahead";
  drive({&a}, 200ms, never);
  proxy.drop_all();
  drive({&a}, 1200ms, never);
  EXPECT_TRUE(drive({&a, &b}, 10s, [&] { return b.got.size() == sent; })) << b.got.size();
  EXPECT_EQ(a.count<PeerReset>() + b.count<PeerReset>(), 0u);
}

TEST(Transport, ARestartedPeerIsResetAndReachedAgain) {
  Host a;
  CurveKeys keys = CurveKeys::generate().value();
  const NodeId node = NodeId::random();
  PeerInfo info;
  {
    Host b({}, CurveKeys::from_secret(keys.secret_key.copy()).value());
    b.node = node;
    introduce(a, b);
    info = b.info();
    ASSERT_TRUE(a.transport->send(node, text("1"), steady_now()));
    ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return b.got.size() == 1; }));
  }
  ASSERT_TRUE(drive({&a}, 5s, [&] { return a.count<PeerDown>() == 1; }));
  TransportOptions same_door;
  same_door.listen = info.door;
  Host b(std::move(same_door), std::move(keys));
  b.node = node;
  b.transport->admit(a.info());
  ASSERT_TRUE(a.transport->send(node, text("2"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 10s, [&] { return a.count<PeerReset>() == 1; }));
  // The message was never sent to the new process, so it is safe to send it again.
  EXPECT_EQ(a.last<PeerReset>()->reset.outcome_of(2), Outcome::not_executed);
  ASSERT_TRUE(a.transport->send(node, text("3"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return b.got.size() == 1; }));
  EXPECT_EQ(b.got[0], "3");
}

TEST(Transport, AKeyThatIsNotAdmittedIsRefusedAndAudited) {
  Host a, stranger;
  stranger.transport->admit(a.info());  // it knows this node, but this node does not know it
  ASSERT_TRUE(stranger.transport->send(a.node, text("let me in"), steady_now()));
  ASSERT_TRUE(drive({&a, &stranger}, 5s, [&] { return stranger.count<PeerDown>() == 1; }));
  EXPECT_NE(stranger.last<PeerDown>()->why.find("does not admit"), std::string::npos)
      << stranger.last<PeerDown>()->why;
  EXPECT_TRUE(a.got.empty());
  ASSERT_NE(a.last<Refused>(), nullptr);
  EXPECT_EQ(a.last<Refused>()->address, "127.0.0.1");
  EXPECT_GE(a.transport->stats().refused_handshakes, 1u);
}

TEST(Transport, AWrongServerKeyGetsNowhereWithinItsBound) {
  Host a;
  TransportOptions quick;
  quick.knock_timeout = 500ms;
  Host b(std::move(quick));
  a.transport->admit(b.info());
  PeerInfo forged = a.info();
  forged.key = CurveKeys::generate()->public_key;
  b.transport->admit(forged);
  ASSERT_TRUE(b.transport->send(a.node, text("x"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 3s, [&] { return b.count<PeerDown>() == 1; }));
  EXPECT_NE(b.last<PeerDown>()->why.find(a.transport->door()), std::string::npos);
  EXPECT_TRUE(a.got.empty());
}

TEST(Transport, AnOpenDoorWithAPortForDataThatCannotBeReachedIsReportedOnBothSides) {
  TransportOptions quick, walled;
  quick.knock_timeout = 300ms;  // this side ends first, and each attempt makes it wait anew
  walled.knock_timeout = 1s;
  quick.reconnect_grace = walled.reconnect_grace = 50ms;
  Host b(std::move(quick));
  walled.dial = [door = b.transport->door()](const std::string& address) {
    return address == door ? door : std::string("tcp://127.0.0.1:1");
  };
  Host a(std::move(walled));
  a.transport->admit(b.info());
  PeerInfo comes = a.info();
  comes.door.clear();
  b.transport->admit(comes);
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)})
    ASSERT_TRUE(from->transport->send(to->node, text("x"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return a.count<PeerDown>() + b.count<PeerDown>() == 2; }));
  EXPECT_EQ(a.last<PeerDown>()->why, "its port for data cannot be reached");
  EXPECT_EQ(b.last<PeerDown>()->why, "it does not come to this node's port for data");
  drive({&a, &b}, 600ms, [] { return false; });
  EXPECT_EQ(a.count<PeerDown>() + b.count<PeerDown>(), 2u) << "it is said once";
}

TEST(Transport, StrangersOnEveryPortAreClosedAndHonestWorkGoesOn) {
  Host a, b;
  introduce(a, b);
  ASSERT_TRUE(a.transport->send(b.node, text("first"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return b.got.size() == 1; }));
  const std::vector<std::string> ports = test::listening_ports_of_this_process();
  ASSERT_GE(ports.size(), 3u);  // two doors and the pair's socket
  Random random(1);
  std::string noise;
  for (int i = 0; i < 4096; ++i) noise += static_cast<char>(random());
  std::vector<Fd> raw;
  for (const std::string& port : ports) {
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), noise, std::string(64, '\0'),
          std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0", 12),  // a ZMTP greeting that stops
          std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), std::string()}) {
      raw.push_back(connect_raw(port));
      ASSERT_TRUE(raw.back());
      (void)!write(raw.back().get(), bytes.data(), bytes.size());
    }
  }
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(a.transport->send(b.node, text(std::to_string(i)), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 3s, [&] { return b.got.size() == 101; })) << b.got.size();
  EXPECT_EQ(a.count<PeerReset>() + b.count<PeerReset>() + a.count<PeerLost>() + b.count<PeerLost>(),
            0u);
  // The transport closes each of them within the handshake limit of 5 s.
  std::size_t open = raw.size();
  const bool closed = drive({&a, &b}, 7s, [&] {
    open = 0;
    for (const Fd& fd : raw) open += test::is_closed(fd.get()) ? 0 : 1;
    return open == 0;
  });
  EXPECT_TRUE(closed) << open << " of " << raw.size() << " still open";
  EXPECT_TRUE(a.transport->connected(b.node) && b.transport->connected(a.node));
}

TEST(Transport, ARevokedPeerIsCutOffAtOnceAndForGood) {
  Host a, b;
  introduce(a, b);
  ASSERT_TRUE(b.transport->send(a.node, text("1"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return a.got.size() == 1; }));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return a.transport->connected(b.node); }));
  a.transport->revoke(b.node);
  EXPECT_FALSE(a.transport->send(b.node, text("x"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 2s, [&] { return b.count<PeerDown>() == 1; }));
  EXPECT_EQ(a.count<PeerLost>(), 1u);
  ASSERT_TRUE(b.transport->send(a.node, text("2"), steady_now()));
  drive({&a, &b}, 3s, [&] { return a.transport->stats().refused_handshakes > 0; });
  EXPECT_GE(a.transport->stats().refused_handshakes + a.transport->stats().refused_knocks, 1u);
  EXPECT_EQ(a.got, std::vector<std::string>{"1"});
}

TEST(Transport, AnotherProtocolIsRefusedInWordsThatNameBoth) {
  TransportOptions one, two;
  one.protocol = 1;
  one.build_id = "aaaa";
  two.protocol = 2;
  two.build_id = "bbbb";
  Host a(std::move(one)), b(std::move(two));
  introduce(a, b);
  ASSERT_TRUE(a.transport->send(b.node, text("x"), steady_now()));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return a.count<PeerLost>() == 1; }));
  const std::string why = a.last<PeerLost>()->error.message();
  for (const char* part : {"protocol 1", "protocol 2", "aaaa", "bbbb"})
    EXPECT_NE(why.find(part), std::string::npos) << why;
  EXPECT_EQ(a.last<PeerReset>()->reset.outcome_of(1), Outcome::not_executed);
  EXPECT_TRUE(b.got.empty());
}

TEST(Transport, ABusyPortIsNamed) {
  Host a;
  TransportOptions same;
  same.keys = CurveKeys::generate().value();
  same.listen = a.transport->door();
  const Time begin = steady_now();
  const auto second = Transport::open(std::move(same));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::unavailable);
  EXPECT_NE(second.error().message().find(a.transport->door()), std::string::npos);
  EXPECT_NE(second.error().message().find("in use"), std::string::npos) << second.error().message();
  EXPECT_LT(steady_now() - begin, 1s);
}

TEST(Transport, ATokenJoinsOnceAndOnlyOnce) {
  Host head, joiner, thief;
  CurveKeys once = CurveKeys::generate().value();
  const JoinToken token{head.transport->door(), head.transport->public_key(),
                        once.secret_key.copy()};
  head.transport->admit_join(once.public_key, steady_now() + 1h);
  joiner.transport->join(token, text("my key"), steady_now() + 5s);
  ASSERT_TRUE(drive({&head, &joiner}, 5s, [&] { return head.count<JoinRequest>() == 1; }));
  EXPECT_EQ(text(head.last<JoinRequest>()->request), "my key");
  EXPECT_EQ(head.last<JoinRequest>()->one_time, once.public_key);
  head.transport->answer_join(head.last<JoinRequest>()->id, text("welcome"));
  ASSERT_TRUE(drive({&head, &joiner}, 5s, [&] { return joiner.count<JoinReply>() == 1; }));
  ASSERT_TRUE(joiner.last<JoinReply>()->answer);
  EXPECT_EQ(text(*joiner.last<JoinReply>()->answer), "welcome");

  thief.transport->join(token, text("me too"), steady_now() + 5s);
  ASSERT_TRUE(drive({&head, &thief}, 5s, [&] { return thief.count<JoinReply>() == 1; }));
  ASSERT_FALSE(thief.last<JoinReply>()->answer);
  EXPECT_NE(thief.last<JoinReply>()->answer.error().message().find("spent"), std::string::npos)
      << thief.last<JoinReply>()->answer.error().message();
  EXPECT_EQ(head.count<JoinRequest>(), 1u);
}

TEST(Transport, AnExpiredTokenAndAManInTheMiddleFail) {
  Host head, joiner, middle;
  CurveKeys once = CurveKeys::generate().value();
  head.transport->admit_join(once.public_key, steady_now() - 1s);
  JoinToken token{head.transport->door(), head.transport->public_key(), once.secret_key.copy()};
  joiner.transport->join(token, text("x"), steady_now() + 5s);
  ASSERT_TRUE(drive({&head, &joiner}, 5s, [&] { return joiner.count<JoinReply>() == 1; }));
  EXPECT_FALSE(joiner.last<JoinReply>()->answer);

  // The token contains the head's key, so another server at that address receives nothing.
  middle.transport->admit_join(once.public_key, Time::max());
  token.door = middle.transport->door();
  joiner.transport->join(token, text("x"), steady_now() + 1s);
  ASSERT_TRUE(drive({&middle, &joiner}, 5s, [&] { return joiner.count<JoinReply>() == 2; }));
  EXPECT_FALSE(joiner.last<JoinReply>()->answer);
  EXPECT_EQ(middle.count<JoinRequest>(), 0u);
  EXPECT_EQ(head.count<JoinRequest>(), 0u);
}

TEST(Transport, AJoinKeyCannotDoAnythingElse) {
  Host head;
  CurveKeys once = CurveKeys::generate().value();
  head.transport->admit_join(once.public_key, Time::max());
  Host intruder({}, std::move(once));
  intruder.transport->admit(head.info());
  ASSERT_TRUE(intruder.transport->send(head.node, text("not a join"), steady_now()));
  ASSERT_TRUE(drive({&head, &intruder}, 5s, [&] { return intruder.count<PeerDown>() == 1; }));
  EXPECT_NE(intruder.last<PeerDown>()->why.find("may not"), std::string::npos)
      << intruder.last<PeerDown>()->why;
  EXPECT_TRUE(head.got.empty());
}

TEST(Transport, WhoHasNoDescriptorLeftTriesAgainUntilItHasSome) {
  Host a, b;
  introduce(a, b);
  ASSERT_TRUE(b.transport->send(a.node, text("patient"), steady_now()));
  for (std::size_t spare = 0; spare < 24; ++spare) {  // each socket needs several descriptors
    const test::Descriptors taken(spare);
    drive({&a, &b}, 30ms, [&] { return !a.got.empty(); });
    if (!a.got.empty()) break;
  }
  ASSERT_TRUE(drive({&a, &b}, 10s, [&] { return a.got.size() == 1; }));
  EXPECT_EQ(a.got[0], "patient");
}

TEST(Transport, AThousandHalfOpenConnectionsDoNotKeepAnHonestPeerOut) {
  Host a, b;
  introduce(a, b);
  const std::string port = a.transport->door().substr(a.transport->door().rfind(':') + 1);
  rlimit files{};  // both ends are in this process
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &files);
  const int crowd = files.rlim_cur >= 4096 ? 1000 : 300;
  std::vector<Fd> slow;
  for (int i = 0; i < crowd; ++i) slow.push_back(connect_raw(port));
  const Time begin = steady_now();
  ASSERT_TRUE(b.transport->send(a.node, text("honest"), begin));
  ASSERT_TRUE(drive({&a, &b}, 5s, [&] { return a.got.size() == 1; }));
  EXPECT_LT(steady_now() - begin, 2s);
}

TEST(Transport, WithoutThreadsItNamesTheLimitAndDoesNotAbort) {
  pthread_attr_t usual, huge;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, std::size_t{1} << 50);  // more than the address space
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const auto refused = Transport::open({.keys = CurveKeys::generate().value()});
  pthread_setattr_default_np(&usual);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::out_of_memory);
  EXPECT_NE(refused.error().message().find("ulimit -u"), std::string::npos);
}

}  // namespace
}  // namespace troupe::net
