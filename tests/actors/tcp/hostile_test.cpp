// Tests links against a man in the middle, strangers, and keys of other gangs; and doors that
// cannot be reached. What a stranger does costs nothing; a changed frame ends its link.
#include "tests/actors/tcp/frame_proxy.hpp"
#include "tests/actors/tcp/links.hpp"
#include "troupe/actors/collective/tcp/internal/entrance.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace troupe::collective {
namespace {

using internal::Entrance;
using internal::Hello;

bool holds(BlobView bytes, BlobView part) {
  return std::search(bytes.begin(), bytes.end(), part.begin(), part.end()) != bytes.end();
}

/// A gang of two with a man between them.
struct Watched {
  explicit Watched(FrameProxy::Alter alter = FrameProxy::pass, const DoorOptions& like = {})
      : gang(2, like), proxy(gang[1].address(), std::move(alter)) {
    gang.meet(proxy.address());
    low = gang[0].link({.use = 5}, 1);
    high = gang[1].link({.use = 5}, 0);
  }
  bool until(const std::function<bool()>& done) { return move({low.get(), high.get()}, done); }
  /// Sends a text and takes it at the other end.
  void expect_alive() {
    low->send(FrameKind::data, text("alive"));
    EXPECT_TRUE(until([&] { return high->has_frame(); })) << low->why() << "; " << high->why();
    EXPECT_EQ(take(*high), "1:alive");
  }
  Gang gang;
  FrameProxy proxy;
  std::unique_ptr<Link> low, high;
};

Fd connect_to(const std::string& door) {
  return test::connect_raw(door.substr(door.rfind(':') + 1));
}
Fd say(const std::string& door, BlobView bytes) {
  Fd fd = connect_to(door);
  EXPECT_EQ(write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return fd;
}
/// Returns whether the door closes the connection without a byte, within 4 s: sooner than it ends
/// silent ones.
bool is_refused(const Fd& fd) {
  pollfd one{fd.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&one, 1, 4000) == 1 && ::recv(fd.get(), &byte, 1, 0) <= 0;
}

TEST(LinkWire, ShowsNoByteInClear) {
  Watched two;
  const Blob marker = text("a marker of sixty-four bytes that nobody may see between two nodes.");
  Blob bytes = pattern(100'000);
  std::copy(marker.begin(), marker.end(), bytes.begin() + 50'000);
  two.low->send(FrameKind::data, marker);
  two.high->send(FrameKind::data, bytes);
  ASSERT_TRUE(two.until([&] { return two.low->has_frame() && two.high->has_frame(); }));
  for (const FrameProxy::Way way : {FrameProxy::forth, FrameProxy::back}) {
    const Blob seen = two.proxy.seen(way);
    EXPECT_GT(seen.size(), marker.size());
    for (std::size_t i = 0; i + 16 <= marker.size(); ++i)
      EXPECT_FALSE(holds(seen, BlobView(marker).subspan(i, 16)));
  }
}

/// What the man in the middle does with the frames 2 and 3 of the five that are sent.
struct Attack {
  const char* name;
  FrameProxy::Alter alter;
  int good;  ///< the frames that arrive before the link ends
};
void PrintTo(const Attack& attack, std::ostream* out) {
  *out << attack.name;
}

FrameProxy::Alter flip(std::ptrdiff_t at) {
  return [at](FrameProxy::Way way, std::size_t number, Blob frame) {
    if (way == FrameProxy::forth && number == 2)
      frame[static_cast<std::size_t>(at < 0 ? std::ssize(frame) + at : at)] ^= std::byte{1};
    return std::vector<Blob>{std::move(frame)};
  };
}

/// Swaps frame 2 and frame 3.
FrameProxy::Alter swap_frames() {
  return [kept = std::make_shared<Blob>()](FrameProxy::Way way, std::size_t number, Blob frame) {
    if (way == FrameProxy::back) return std::vector<Blob>{std::move(frame)};
    if (number == 2) return *kept = std::move(frame), std::vector<Blob>{};
    if (number == 3) return std::vector<Blob>{std::move(frame), *kept};
    return std::vector<Blob>{std::move(frame)};
  };
}

/// Gives the receiver its own frame back in place of frame 2.
FrameProxy::Alter reflect() {
  return [own = std::make_shared<Blob>()](FrameProxy::Way way, std::size_t number, Blob frame) {
    if (way == FrameProxy::back && number == 2) *own = frame;
    if (way == FrameProxy::forth && number == 2) return std::vector<Blob>{*own};
    return std::vector<Blob>{std::move(frame)};
  };
}

class LinkAttack : public testing::TestWithParam<Attack> {};

TEST_P(LinkAttack, EndsTheLink) {
  Watched two(GetParam().alter);
  // The frames of the higher rank are there first, so that one of them can be reflected.
  for (int i = 0; i < 3; ++i) two.high->send(FrameKind::data, pattern(300, 9));
  int back = 0;
  ASSERT_TRUE(two.until([&] {
    for (; two.low->has_frame(); two.low->pop()) ++back;
    return back == 3;
  }));
  for (std::size_t i = 0; i < 5; ++i) two.low->send(FrameKind::data, pattern(300, i));
  int good = 0;
  ASSERT_TRUE(two.until([&] {
    for (; two.high->has_frame(); two.high->pop(), ++good)
      EXPECT_TRUE(std::ranges::equal(two.high->front().bytes,
                                     pattern(300, static_cast<std::size_t>(good))));
    return is_closed(*two.high) && is_closed(*two.low);
  }));
  EXPECT_EQ(good, GetParam().good);
  EXPECT_EQ(two.high->code(), Code::unavailable);
  EXPECT_NE(two.high->why().find("from rank 0 to rank 1 brought a frame that is not authentic"),
            std::string::npos)
      << two.high->why();
  EXPECT_EQ(two.low->code(), Code::worker_died);
}

INSTANTIATE_TEST_SUITE_P(
    Wire, LinkAttack,
    testing::Values(Attack{"repeated",
                           [](FrameProxy::Way way, std::size_t number, Blob frame) {
                             if (way == FrameProxy::forth && number == 2)
                               return std::vector<Blob>{frame, frame};
                             return std::vector<Blob>{std::move(frame)};
                           },
                           2},
                    Attack{"left_out",
                           [](FrameProxy::Way way, std::size_t number, Blob frame) {
                             if (way == FrameProxy::forth && number == 2)
                               return std::vector<Blob>{};
                             return std::vector<Blob>{std::move(frame)};
                           },
                           1},
                    Attack{"swapped", swap_frames(), 1}, Attack{"reflected", reflect(), 1},
                    Attack{"another_length", flip(0), 1}, Attack{"a_huge_length", flip(3), 1},
                    Attack{"another_kind", flip(4), 1}, Attack{"reserved_bytes", flip(7), 1},
                    Attack{"another_text", flip(100), 1}, Attack{"another_tag", flip(-1), 1}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LinkWire, ASecondLinkOfANameAndAReplayCostNothing) {
  Watched two;
  two.expect_alive();
  // The man in the middle repeats the hello, alone and with the frames after it.
  const Blob seen = two.proxy.seen(FrameProxy::forth);
  const std::string door = two.gang[1].address();
  EXPECT_TRUE(is_refused(say(door, BlobView(seen).first(sizeof(Hello)))));
  EXPECT_TRUE(is_refused(say(door, seen)));
  // A process that has the key cannot take the name again either.
  const LinkName name{.use = 5};
  const Hello second =
      internal::make_hello({name, 0, 1}, internal::key_of_direction(gang_key(), name, 0, 1));
  EXPECT_TRUE(is_refused(say(door, second)));
  two.expect_alive();
}

TEST(LinkWire, WhatProvesNothingIsRefused) {
  Gang gang(3);
  gang.meet();
  const auto hello = [](int from, int to, const Secret<32>& key) {
    return internal::make_hello({{}, from, to}, internal::key_of_direction(key, {}, from, to));
  };
  const std::string door = gang[1].address();
  EXPECT_TRUE(is_refused(say(door, hello(0, 1, gang_key(2)))));  // an old gang's key
  EXPECT_TRUE(is_refused(say(door, hello(0, 2, gang_key()))));   // for another door
  EXPECT_TRUE(is_refused(say(door, hello(2, 1, gang_key()))));   // the higher rank connects
  EXPECT_TRUE(is_refused(say(door, hello(1, 1, gang_key()))));
  EXPECT_TRUE(is_refused(say(door, hello(-1, 1, gang_key()))));
  EXPECT_TRUE(is_refused(say(door, Blob(sizeof(Hello)))));
  Hello other_name = hello(0, 1, gang_key());
  other_name[8] ^= std::byte{1};
  EXPECT_TRUE(is_refused(say(door, other_name)));
  Hello other_version = hello(0, 1, gang_key());
  other_version[6] ^= std::byte{2};
  EXPECT_TRUE(is_refused(say(door, other_version)));
  // After all that the name is free, and its owner takes it.
  const auto low = gang[0].link({}, 1), high = gang[1].link({}, 0);
  EXPECT_TRUE(move({low.get(), high.get()}, [&] { return is_open(*low) && is_open(*high); }));
}

TEST(LinkWire, AnOldGangsLinkFailsAndTheNewOneOpens) {
  Gang gang(2);
  gang.meet();
  Door old({.rank = 0, .timeout = 400ms});
  old.meet({old.address(), gang[1].address()}, gang_key(2));
  const auto late = old.link({}, 1);
  const auto low = gang[0].link({}, 1), high = gang[1].link({}, 0);
  ASSERT_TRUE(move({late.get(), low.get(), high.get()},
                   [&] { return is_closed(*late) && is_open(*low) && is_open(*high); }));
  EXPECT_EQ(late->code(), Code::unavailable);
  EXPECT_NE(late->why().find("another gang's key"), std::string::npos) << late->why();
}

TEST(LinkWire, SilentConnectionsAreFewAndLinksOpenAmongThem) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit before = limit;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &limit);
  {
    Gang gang(2);
    gang.meet();
    std::vector<Fd> silent(1000);
    std::thread strangers([&] {
      for (Fd& fd : silent) fd = connect_to(gang[1].address());
    });
    std::vector<std::unique_ptr<Link>> links;
    for (std::uint32_t use = 0; use < 20; ++use) {
      links.push_back(gang[0].link({.use = use}, 1));
      Link& low = *links.back();
      links.push_back(gang[1].link({.use = use}, 0));
      Link& high = *links.back();
      EXPECT_TRUE(move({&low, &high}, [&] { return is_open(low) && is_open(high); })) << low.why();
    }
    strangers.join();
    // All are accepted, and all but 64 are closed again.
    const auto open = [&] {
      return std::ranges::count_if(silent, [](const Fd& fd) { return !test::is_closed(fd.get()); });
    };
    const Time by = steady_now() + 4s;
    while (open() > 64 && steady_now() < by) ::poll(nullptr, 0, 5);
    EXPECT_LE(open(), 64);
    EXPECT_TRUE(std::ranges::all_of(links, [](const auto& link) { return is_open(*link); }));
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Entrance, HoldsSixtyFourUnprovenConnectionsForFiveSecondsEach) {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in own = test::loopback(0);
  socklen_t size = sizeof own;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&own), size), 0);
  ASSERT_EQ(listen(listener.get(), 128), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  const std::string port = std::to_string(ntohs(own.sin_port));
  Entrance entrance(std::move(listener));
  const Entrance::Judge nobody = [](Fd&, const Hello&) { return Entrance::Verdict::refused; };
  Time now{};
  EXPECT_EQ(entrance.next_deadline(), Time::max());
  std::vector<Fd> silent;
  const auto come = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) silent.push_back(test::connect_raw(port));
    for (int i = 0; i < 8; ++i) entrance.advance(now, nobody);
  };
  come(64);
  EXPECT_EQ(entrance.next_deadline(), now + 5s);
  now += 1s;
  come(1);
  EXPECT_TRUE(test::is_closed(silent[0].get()));
  EXPECT_FALSE(test::is_closed(silent[1].get()));
  now = Time{} + 5s;
  entrance.advance(now, nobody);
  EXPECT_TRUE(test::is_closed(silent[63].get()));
  EXPECT_FALSE(test::is_closed(silent[64].get()));
  EXPECT_EQ(entrance.next_deadline(), Time{} + 6s);
}

TEST(Entrance, RestsWhileNoDescriptorIsLeft) {
  Gang gang(2);
  gang.meet();
  Fd fd;
  {
    const test::Descriptors taken(1);
    fd = connect_to(gang[1].address());
    ASSERT_TRUE(fd);
    const timespec before = [] {
      timespec t{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
      return t;
    }();
    ::poll(nullptr, 0, 250);
    timespec after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    EXPECT_LT((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1'000'000,
              200)
        << "the door's thread turns for nothing";
  }
  const auto low = gang[0].link({}, 1), high = gang[1].link({}, 0);
  EXPECT_TRUE(move({low.get(), high.get()}, [&] { return is_open(*low) && is_open(*high); }));
}

TEST(Door, ARankThatCannotBeReachedIsNamed) {
  const std::string closed = [] {
    const Door door({.rank = 1});
    return door.address();
  }();
  Door door({.rank = 0, .timeout = 200ms});
  door.meet({door.address(), closed}, gang_key());
  const auto link = door.link({}, 1);
  EXPECT_EQ(link->watched().fd, -1);
  const Time begin = steady_now();
  ASSERT_TRUE(move({link.get()}, [&] { return is_closed(*link); }));
  EXPECT_GE(steady_now() - begin, 140ms) << "it did not try again";
  EXPECT_EQ(link->code(), Code::unavailable);
  EXPECT_NE(link->why().find("rank 0 has no link to rank 1 at " + closed + ": Connection refused"),
            std::string::npos)
      << link->why();
}

TEST(Door, WhoeverListensInItsPlaceIsFoundOut) {
  // One listener never answers; the other one answers with a proof of another key.
  const auto swallow = [](FrameProxy::Way, std::size_t, const Blob&) {
    return std::vector<Blob>{};
  };
  Gang gang(2, {.timeout = 200ms});
  FrameProxy silent(gang[1].address(), swallow);
  Door lone({.rank = 0, .timeout = 200ms});
  lone.meet({lone.address(), silent.address()}, gang_key());
  const auto link = lone.link({}, 1);
  ASSERT_TRUE(move({link.get()}, [&] { return is_closed(*link); }));
  EXPECT_EQ(link->code(), Code::unavailable);

  Watched two([](FrameProxy::Way way, std::size_t number, Blob frame) {
    if (way == FrameProxy::back && number == 0) frame[20] ^= std::byte{1};
    return std::vector<Blob>{std::move(frame)};
  });
  ASSERT_TRUE(two.until([&] { return is_closed(*two.low); }));
  EXPECT_EQ(two.low->code(), Code::unavailable);
  EXPECT_NE(two.low->why().find("does not have the gang's key"), std::string::npos)
      << two.low->why();
}

TEST(Door, IsTriedAgainUntilItOpensAndUntilItMeets) {
  Gang gang(2);
  FrameProxy proxy(gang[1].address(), FrameProxy::pass, /*listens=*/false);
  gang[0].meet({gang[0].address(), proxy.address()}, gang_key());
  const auto low = gang[0].link({}, 1);
  for (int i = 0; i < 3; ++i) low->advance();
  EXPECT_EQ(low->state(), Link::State::opening);
  proxy.listen_now();
  // The hello waits at the door until the door knows the key.
  ASSERT_TRUE(
      move({low.get()}, [&] { return proxy.seen(FrameProxy::forth).size() == sizeof(Hello); }));
  EXPECT_EQ(low->state(), Link::State::opening);
  gang[1].meet({gang[0].address(), gang[1].address()}, gang_key());
  EXPECT_TRUE(move({low.get()}, [&] { return is_open(*low); }));
}

TEST(Door, ThatClosesBeforeItAnswersIsADeath) {
  Gang gang(2);
  gang[0].meet({gang[0].address(), gang[1].address()}, gang_key());
  const auto low = gang[0].link({}, 1);
  ASSERT_TRUE(move({low.get()}, [&] { return low->watched().events == POLLIN; }));
  gang.close(1);
  const Time begin = steady_now();
  ASSERT_TRUE(move({low.get()}, [&] { return is_closed(*low); }));
  EXPECT_LT(steady_now() - begin, 5s);
  EXPECT_EQ(low->code(), Code::worker_died);
}

TEST(Door, ListensOnAllAddressesWhenTheHostHasNotTheOneGiven) {
  Door low({.rank = 0}), high({.host = "203.0.113.9", .rank = 1});  // documentation's network
  EXPECT_EQ(high.address().rfind("203.0.113.9:", 0), 0u) << high.address();
  const std::string port = high.address().substr(high.address().find(':'));
  for (Door* door : {&low, &high}) door->meet({low.address(), "127.0.0.1" + port}, gang_key());
  const auto a = low.link({}, 1), b = high.link({}, 0);
  EXPECT_TRUE(move({a.get(), b.get()}, [&] { return is_open(*a) && is_open(*b); }));
}

TEST(Door, RefusesAddressesThatAreNone) {
  EXPECT_THROW(Door({.host = "node-2"}), InvalidArgument);
  Door door({.rank = 1});
  for (const char* bad :
       {"", "10.0.0.2", "10.0.0.2:", "10.0.0.2:0", "10.0.0.2:70000", "node:1", "10.0.0.2:1x"}) {
    try {
      door.meet({bad, door.address()}, gang_key());
      ADD_FAILURE() << bad;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.message().find("the door of rank 0 is '" + std::string(bad) + "'"),
                std::string::npos)
          << error.message();
    }
  }
  EXPECT_THROW(door.meet({door.address()}, gang_key()), InvalidArgument);
}

}  // namespace
}  // namespace troupe::collective
