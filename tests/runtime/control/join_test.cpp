// Tests join tokens: a token is read back as it was written, and no other text is read.
#include "troupe/runtime/control/join.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>

namespace troupe::control {
namespace {

NodeDescription node() {
  NodeDescription n;
  n.id = NodeId{1, 2};
  n.name = "héad";
  n.address = "tcp://10.0.0.1:6500";
  n.public_key = std::string(64, 'a');
  n.resources = {80'000, 20'000, 1 << 30, {{"license", 30'000}}};
  n.labels = {{"rack", "7"}};
  n.beside_control = true;
  return n;
}

TEST(Join, RoundTrip) {
  EXPECT_EQ(decode_join_ask(encode(JoinAsk{node()}))->node, node());
  const auto answer = decode_join_answer(encode(JoinAnswer{ClusterId{3, 4}, NodeId{5, 6}}));
  EXPECT_EQ(answer->cluster, (ClusterId{3, 4}));
  EXPECT_EQ(answer->control, (NodeId{5, 6}));
}

TEST(Join, WhatIsOutOfBoundsIsRefused) {
  const auto refused = [](auto change) {
    NodeDescription n = node();
    change(n);
    const auto result = decode_join_ask(encode(JoinAsk{n}));
    return !result.ok() && result.error().code() == Code::invalid_argument;
  };
  EXPECT_TRUE(refused([](auto& n) { n.id = {}; }));
  EXPECT_TRUE(refused([](auto& n) { n.name = std::string(257, 'x'); }));
  EXPECT_TRUE(refused([](auto& n) { n.address = std::string(1, '\0'); }));
  EXPECT_TRUE(refused([](auto& n) { n.public_key = "short"; }));
  EXPECT_TRUE(refused([](auto& n) { n.resources.cpus = -1; }));
  EXPECT_TRUE(refused([](auto& n) { n.resources.memory = std::int64_t{1} << 62; }));
  EXPECT_TRUE(refused([](auto& n) { n.resources.custom.assign(65, {"a", 1}); }));
  EXPECT_TRUE(refused([](auto& n) { n.labels.assign(65, {"a", "b"}); }));
  EXPECT_TRUE(refused([](auto& n) { n.labels[0].second = std::string(1000, 'x'); }));
  EXPECT_FALSE(decode_join_answer(encode(JoinAnswer{})).ok());
}

TEST(Join, HostileBytesNeverReadMoreThanThereIs) {
  const Blob good = encode(JoinAsk{node()});
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode_join_ask(BlobView(good).first(size)).ok()) << size;
  Blob longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_join_ask(longer).ok());
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    Blob bytes = good;
    for (int flips = 1 + static_cast<int>(random.below(4)); flips > 0; --flips)
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random());
    (void)decode_join_ask(bytes);
    (void)decode_join_answer(bytes);
  }
}

}  // namespace
}  // namespace troupe::control
