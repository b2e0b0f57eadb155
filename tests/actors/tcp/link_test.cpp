// Tests links between doors on loopback: frames of every size both ways, streams by name, small
// buffers, keys that are replaced, and how a link ends.
#include "tests/actors/tcp/frame_proxy.hpp"
#include "tests/actors/tcp/links.hpp"
#include "troupe/actors/collective/tcp/internal/sealed_stream.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <deque>

namespace troupe::collective {
namespace {

struct Two {
  explicit Two(const DoorOptions& like = {}, const std::string& instead = "") : gang(2, like) {
    gang.meet(instead);
    low = gang[0].link({.first = 0, .lane = 2, .use = 3}, 1);
    high = gang[1].link({.first = 0, .lane = 2, .use = 3}, 0);
  }
  bool open() {
    return move({low.get(), high.get()}, [&] { return is_open(*low) && is_open(*high); });
  }
  bool until(const std::function<bool()>& done, Duration bound = 10s) {
    return move({low.get(), high.get()}, done, bound);
  }
  Gang gang;
  std::unique_ptr<Link> low, high;
};

/// Sends `count` bytes each way at once in frames of `frame` bytes, and compares them.
void exchange(Two& two, std::size_t count, std::size_t frame) {
  const Blob bytes[2] = {pattern(count, 1), pattern(count, 2)};
  Link* const links[2] = {two.low.get(), two.high.get()};
  std::size_t sent[2] = {0, 0};
  Blob come[2];
  const auto done = [&] {
    for (const int i : {0, 1}) {
      while (links[i]->can_send() && sent[i] < count) {
        const std::size_t size = std::min(frame, count - sent[i]);
        links[i]->send(FrameKind::data, BlobView(bytes[i]).subspan(sent[i], size));
        sent[i] += size;
      }
      for (; links[i]->has_frame(); links[i]->pop())
        come[i].insert(come[i].end(), links[i]->front().bytes.begin(),
                       links[i]->front().bytes.end());
    }
    return (come[0].size() >= count && come[1].size() >= count) || is_closed(*links[0]) ||
           is_closed(*links[1]);
  };
  EXPECT_TRUE(two.until(done, 30s)) << come[0].size() << " and " << come[1].size();
  EXPECT_TRUE(come[0] == bytes[1] && come[1] == bytes[0])
      << two.low->why() << "; " << two.high->why();
}

TEST(Link, CarriesFramesOfEveryKindAndSizeBothWays) {
  Two two;
  EXPECT_EQ(two.low->state(), Link::State::opening);
  two.low->send(FrameKind::data, text("sent before it is open"));
  two.high->send(FrameKind::waits, text("so is this"));
  ASSERT_TRUE(two.until([&] { return two.low->has_frame() && two.high->has_frame(); }));
  EXPECT_EQ(take(*two.high), "1:sent before it is open");
  EXPECT_EQ(take(*two.low), "2:so is this");
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{70'000}, kMaxFrame}) {
    const Blob bytes = pattern(size);
    two.low->send(FrameKind::end, bytes);
    ASSERT_TRUE(two.until([&] { return two.high->has_frame(); })) << two.high->why();
    EXPECT_EQ(two.high->front().kind, FrameKind::end);
    EXPECT_TRUE(std::ranges::equal(two.high->front().bytes, bytes)) << size;
    two.high->pop();
  }
  EXPECT_TRUE(two.low->is_flushed());
  exchange(two, 3'000'000, 1000);
  exchange(two, 3'000'000, kMaxFrame);
}

TEST(Link, IsAskedForAgainWhenNoDescriptorWasLeft) {
  Gang gang(2);
  gang.meet();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(gang[1].link({}, 0), Unavailable);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto high = gang[1].link({}, 0), low = gang[0].link({}, 1);
  EXPECT_TRUE(move({low.get(), high.get()}, [&] { return is_open(*low) && is_open(*high); }));
}

TEST(Link, TakesNoMoreThanItsQueueHolds) {
  Two two;
  ASSERT_TRUE(two.open());
  std::size_t sent = 0;
  for (; two.low->can_send() && sent < 4000; ++sent)
    two.low->send(FrameKind::data, pattern(kMaxFrame));
  ASSERT_FALSE(two.low->can_send());
  EXPECT_FALSE(two.low->is_flushed());
  std::size_t come = 0;
  EXPECT_TRUE(two.until([&] {
    for (; two.high->has_frame(); two.high->pop()) ++come;
    return come == sent;
  }));
  EXPECT_TRUE(two.low->can_send());
}

TEST(Link, AStreamIsNamedByGroupUseAndRanks) {
  Gang gang(3);
  gang.meet();
  struct End {
    LinkName name;
    int rank, peer;
    std::unique_ptr<Link> link;
  };
  std::vector<End> ends;
  for (const LinkName& name :
       {LinkName{0, 0, 0}, LinkName{1, 0, 0}, LinkName{0, 1, 0}, LinkName{0, 0, 1}})
    for (const auto& [low, high] : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)})
      for (const auto& [rank, peer] : {std::pair(low, high), std::pair(high, low)})
        ends.push_back({name, rank, peer, nullptr});
  // Lower ranks connect before the higher ones ask for their ends.
  std::vector<Link*> links;
  for (const bool lower : {true, false}) {
    for (End& end : ends) {
      if ((end.rank < end.peer) != lower) continue;
      end.link = gang[end.rank].link(end.name, end.peer);
      links.push_back(end.link.get());
      end.link->send(FrameKind::data,
                     text(std::to_string(end.name.first) + std::to_string(end.name.lane) +
                          std::to_string(end.name.use) + std::to_string(end.rank)));
    }
    if (!lower) continue;
    ASSERT_TRUE(move(links, [&] {
      return std::ranges::all_of(ends,
                                 [](const End& end) { return !end.link || is_open(*end.link); });
    }));
  }
  ASSERT_TRUE(move(links, [&] {
    return std::ranges::all_of(ends, [](const End& end) { return end.link->has_frame(); });
  }));
  for (End& end : ends)
    EXPECT_EQ(take(*end.link), "1:" + std::to_string(end.name.first) +
                                   std::to_string(end.name.lane) + std::to_string(end.name.use) +
                                   std::to_string(end.peer));
}

TEST(Link, SmallBuffersLockNothingUp) {
  Two two({.buffer = {4096}});
  ASSERT_TRUE(two.open());
  exchange(two, 400'000, 100'000);
}

TEST(Link, BothEndsReplaceTheKey) {
  Two two({.per_key = {5000}});
  exchange(two, 100'000, 700);

  // Ends that do not agree when to replace it cannot read each other.
  Door low({.rank = 0, .per_key = {5000}}), high({.rank = 1, .per_key = {6000}});
  for (Door* door : {&low, &high}) door->meet({low.address(), high.address()}, gang_key());
  const auto a = low.link({}, 1), b = high.link({}, 0);
  for (int i = 0; i < 10; ++i) a->send(FrameKind::data, pattern(700));
  int come = 0;
  ASSERT_TRUE(move({a.get(), b.get()}, [&] {
    for (; b->has_frame(); b->pop()) ++come;
    return is_closed(*b);
  }));
  EXPECT_EQ(come, 7);  // 7 · 724 bytes under the first key
  EXPECT_EQ(b->code(), Code::unavailable);
}

TEST(Link, AnEndWithoutLeavingIsADeath) {
  Two two;
  ASSERT_TRUE(two.open());
  two.low->send(FrameKind::data, text("last words"));
  two.low.reset();
  ASSERT_TRUE(move({two.high.get()}, [&] { return two.high->has_frame(); }));
  EXPECT_EQ(two.high->state(), Link::State::open);
  EXPECT_EQ(take(*two.high), "1:last words");
  ASSERT_TRUE(move({two.high.get()}, [&] { return is_closed(*two.high); }));
  EXPECT_EQ(two.high->code(), Code::worker_died);
  EXPECT_NE(two.high->why().find("rank 1 lost its link to rank 0"), std::string::npos)
      << two.high->why();
  EXPECT_FALSE(two.high->can_send());
  EXPECT_EQ(two.high->watched().fd, -1);
}

TEST(Link, AnEndAfterLeavingIsNone) {
  Two two;
  ASSERT_TRUE(two.open());
  // The end that leaves has bytes that it never read. What it sent arrives all the same.
  two.high->send(FrameKind::data, pattern(1000));
  ASSERT_TRUE(two.until([&] { return two.low->has_frame(); }));
  two.high->send(FrameKind::data, pattern(1000));
  two.low->send(FrameKind::end, text("so long"));
  two.low->send(FrameKind::left, {});
  two.low.reset();
  ASSERT_TRUE(move({two.high.get()}, [&] { return two.high->has_frame(); }));
  EXPECT_EQ(take(*two.high), "3:so long");
  ASSERT_TRUE(move({two.high.get()}, [&] { return two.high->has_frame(); }));
  EXPECT_EQ(take(*two.high), "4:");
  ASSERT_TRUE(move({two.high.get()}, [&] { return is_closed(*two.high); }));
  EXPECT_EQ(two.high->code(), Code::unavailable);
  EXPECT_EQ(two.high->why(), "rank 0 has left the group");
}

TEST(Link, AnEndInTheMiddleOfAFrameIsADeath) {
  std::atomic<bool> came{false};
  Gang gang(2);
  FrameProxy proxy(gang[1].address(), [&](FrameProxy::Way way, std::size_t number, Blob frame) {
    if (way == FrameProxy::forth && number == 1) {
      frame.resize(frame.size() / 2);
      came = true;
    }
    return std::vector<Blob>{std::move(frame)};
  });
  gang.meet(proxy.address());
  const auto low = gang[0].link({}, 1), high = gang[1].link({}, 0);
  low->send(FrameKind::data, pattern(10'000));
  ASSERT_TRUE(move({low.get(), high.get()}, [&] {
    if (came.exchange(false)) proxy.cut();
    return is_closed(*high) && is_closed(*low);
  }));
  EXPECT_EQ(high->code(), Code::worker_died);
  EXPECT_EQ(low->code(), Code::worker_died);
}

TEST(Link, AClosedDoorEndsConnectionsThatNoLinkTook) {
  Gang gang(2);
  gang.meet();
  const auto low = gang[0].link({}, 1);
  ASSERT_TRUE(move({low.get()}, [&] { return is_open(*low); }));
  gang.close(1);
  ASSERT_TRUE(move({low.get()}, [&] { return is_closed(*low); }));
  EXPECT_EQ(low->code(), Code::worker_died);
}

/// Carries frames from an output to an input in random portions, with no socket between.
TEST(SealedStream, CarriesFramesInAnyPortions) {
  constexpr std::size_t kFrames = 250;
  Random random(7);
  internal::SealedOutput output(gang_key(), {1 << 20});
  internal::SealedInput input(gang_key(), {1 << 20});
  std::deque<Blob> expected;
  std::size_t put = 0, come = 0;
  while (come < kFrames) {
    if (put < kFrames && output.has_room() && random() % 3 != 0) {
      const std::size_t most = random() % 4 == 0 ? kMaxFrame : 3000;
      expected.push_back(pattern(random() % (most + 1), put++));
      output.put(FrameKind::data, expected.back());
    }
    const BlobView bytes = output.unwritten();
    const std::span<std::byte> space = input.space();
    const std::size_t most = std::min(bytes.size(), space.size());
    if (most > 0) {
      const std::size_t size =
          std::min<std::size_t>(most, 1 + random() % (random() % 2 ? 40 : most));
      std::copy_n(bytes.begin(), size, space.begin());
      output.written(size);
      input.received(size);
    }
    ASSERT_FALSE(input.is_forged()) << come;
    if (!input.has_frame() || random() % 2 == 0) continue;
    ASSERT_TRUE(std::ranges::equal(input.front().bytes, expected.front())) << come;
    input.pop();
    expected.pop_front();
    ++come;
  }
}

}  // namespace
}  // namespace troupe::collective
