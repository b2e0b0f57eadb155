// Tests Sender: SENDER-1 and SENDER-3 on a private node, SENDER-2 over a network that refuses.
#include "troupe/runtime/agent/sender.hpp"

#include "tests/runtime/agent/network_world.hpp"
#include "tests/runtime/agent/played_processes.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace troupe::agent::sender_test {
namespace {

struct SenderTest : testing::Test, PlayedProcesses {
  std::unique_ptr<LocalControl> local_control;
  std::unique_ptr<Network> network;
  Sender sender{{events, processes, local_control, network}};
};

TEST_F(SenderTest, ProcessThatHasEndedGetsNothing) {
  auto ends = os::LocalSocket::pair().value();
  Process& one = processes.add(os::LocalSocket(std::move(ends.first)));
  one.introduced = true;
  os::LocalSocket peer(std::move(ends.second));
  std::vector<std::byte> packet(os::kMaxPacket);
  EXPECT_TRUE(sender.is_alive(one.index));
  Sender& way = sender;
  way.send(one.index, wire::Shutdown{"first"}, {});
  way.send(one.index, wire::Shutdown{"second"}, {});
  for (const char* why : {"first", "second"}) {
    const os::Received received = peer.receive(packet);
    const auto decoded = wire::decode_node(BlobView(packet.data(), received.size));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(std::get<wire::Shutdown>(decoded.value().message).why, why);
  }
  processes.break_off(one, "a test ends it");
  EXPECT_FALSE(sender.is_alive(one.index));
  way.send(one.index, wire::Shutdown{"third"}, {});
  EXPECT_NE(peer.receive(packet).kind, os::Received::Kind::packet);
}

TEST_F(SenderTest, ControlOfAPrivateNodeAnswersInTheNextPass) {
  local_control = std::make_unique<LocalControl>(kSelfNode);
  EXPECT_FALSE(sender.has_control()) << "there is nothing to ask";
  control::FindActor question;
  question.request = 7;
  question.name = "nobody";
  sender.send(control::ToControl(question));
  EXPECT_TRUE(local_control->pending());
  const auto answers = sender.hear(Time{});
  ASSERT_EQ(answers.size(), 1u);
  const auto* reply = std::get_if<control::ActorReply>(&answers[0]);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->request, 7u);
  EXPECT_TRUE(sender.hear(Time{}).empty());
}

TEST_F(SenderTest, WhatNoLinkTakesIsAnsweredAsControlWouldRefuseIt) {
  test::FakeControl control;
  test::Agent agent(control);
  Sender other{{events, processes, local_control, agent.network}};
  EXPECT_TRUE(other.has_control());
  control::KeyValueRequest large;
  large.request = 9;
  large.value.assign(2 << 20, 'x');
  other.say_to_control(large);
  const auto answers = other.hear(Time{});
  ASSERT_EQ(answers.size(), 1u);
  const auto* reply = std::get_if<control::KvReply>(&answers[0]);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->request, 9u);
  EXPECT_TRUE(reply->error);
  EXPECT_TRUE(other.hear(Time{}).empty()) << "it is answered once";
}

}  // namespace
}  // namespace troupe::agent::sender_test
