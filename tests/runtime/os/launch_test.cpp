// Tests the messages between a launcher and its children.
#include "troupe/runtime/os/launch.hpp"

#include "troupe/runtime/os/local_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cstring>

namespace troupe::os {
namespace {

using namespace std::chrono_literals;

struct Ends {
  Fd launcher, child;
  Ends() {
    auto pair = LocalSocket::pair().value();
    launcher = std::move(pair.first);
    child = std::move(pair.second);
  }
  /// Sends a packet as a stranger might write it.
  void raw(const std::string& json, std::size_t secret = 32) {
    const std::string bytes = std::string(secret, '\0') + json;
    ASSERT_EQ(::send(launcher.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
};

AgentConfig agent() {
  AgentConfig config;
  config.cluster = ClusterId::random();
  config.node = NodeId::random();
  config.name = "node-0";
  config.cpus = 2.5;
  config.gpus = 1;
  config.memory = Bytes{64u << 20};
  config.labels = {{"rack", "a"}, {"zone", "eu"}};
  config.resources = {{"license", 0.5}};
  config.keys = net::CurveKeys::generate().value();
  config.control = {NodeId::random(), net::CurveKeys::generate().value().public_key,
                    "tcp://127.0.0.1:4000"};
  config.listen = "tcp://127.0.0.1:0";
  config.socket_name = "troupe-x";
  config.together = 3;
  config.beside_control = true;
  config.log_folder = "/somewhere/state";
  config.log_bytes = Bytes{1u << 20};
  return config;
}

ControlConfig control(std::size_t nodes) {
  ControlConfig config;
  config.cluster = ClusterId::random();
  config.node = NodeId::random();
  config.keys = net::CurveKeys::generate().value();
  config.data_folder = "/somewhere/data";
  config.listen = "tcp://127.0.0.1:0";
  for (std::size_t i = 0; i < nodes; ++i)
    config.admitted.push_back({NodeId::random(), config.keys.public_key});
  config.join_keys = {config.keys.public_key, net::CurveKeys::generate().value().public_key};
  return config;
}

TEST(Launch, AnAgentsConfigurationArrivesWhole) {
  Ends ends;
  const AgentConfig sent = agent();
  ASSERT_TRUE(send_config(ends.launcher.get(), sent));
  const AgentConfig got = receive_agent_config(ends.child.get(), 1s).value();
  EXPECT_EQ(got.cluster, sent.cluster);
  EXPECT_EQ(got.node, sent.node);
  EXPECT_EQ(got.name, sent.name);
  EXPECT_EQ(got.cpus, sent.cpus);
  EXPECT_EQ(got.gpus, sent.gpus);
  EXPECT_EQ(got.memory, sent.memory);
  EXPECT_EQ(got.labels, sent.labels);
  EXPECT_EQ(got.resources, sent.resources);
  EXPECT_EQ(got.keys.public_key, sent.keys.public_key);
  EXPECT_TRUE(got.keys.secret_key == sent.keys.secret_key);
  EXPECT_EQ(got.control.node, sent.control.node);
  EXPECT_EQ(got.control.key, sent.control.key);
  EXPECT_EQ(got.control.door, sent.control.door);
  EXPECT_EQ(got.listen, sent.listen);
  EXPECT_EQ(got.socket_name, sent.socket_name);
  EXPECT_EQ(got.together, 3u);
  EXPECT_TRUE(got.beside_control);
  EXPECT_FALSE(got.embedded);
}

TEST(Launch, ControlsConfigurationArrivesWholeForTheLargestCluster) {
  Ends ends;
  const ControlConfig sent = control(kMaxAdmitted);
  ASSERT_TRUE(send_config(ends.launcher.get(), sent));
  const ControlConfig got = receive_control_config(ends.child.get(), 1s).value();
  EXPECT_EQ(got.cluster, sent.cluster);
  EXPECT_EQ(got.node, sent.node);
  EXPECT_TRUE(got.keys.secret_key == sent.keys.secret_key);
  EXPECT_EQ(got.data_folder, sent.data_folder);
  EXPECT_EQ(got.listen, sent.listen);
  ASSERT_EQ(got.admitted.size(), kMaxAdmitted);
  EXPECT_EQ(got.admitted[7].node, sent.admitted[7].node);
  EXPECT_EQ(got.admitted[7].key, sent.admitted[7].key);
  EXPECT_EQ(got.join_keys, sent.join_keys);
}

TEST(Launch, ControlsStoreComesWithItsConfigurationAndNothingElseDoes) {
  Ends ends;
  ControlConfig sent = control(1);
  sent.store = Fd(memfd_create("store", MFD_CLOEXEC));
  ASSERT_EQ(write(sent.store.get(), "kept", 4), 4);
  ASSERT_TRUE(send_config(ends.launcher.get(), sent));
  ASSERT_TRUE(send_config(ends.launcher.get(), control(1)));
  const ControlConfig got = receive_control_config(ends.child.get(), 1s).value();
  ASSERT_TRUE(got.store);
  char text[4];
  EXPECT_EQ(pread(got.store.get(), text, 4, 0), 4);
  EXPECT_EQ(std::string(text, 4), "kept");
  EXPECT_EQ(fcntl(got.store.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_FALSE(receive_control_config(ends.child.get(), 1s).value().store);
}

TEST(Launch, ReadyTellsTheDoorOrWhyNot) {
  Ends ends;
  ASSERT_TRUE(send_ready(ends.child.get(), {"tcp://127.0.0.1:4001", ""}));
  ASSERT_TRUE(send_ready(ends.child.get(), {"", std::string(100'000, 'x')}));
  EXPECT_EQ(receive_ready(ends.launcher.get(), 1s, "control").value().door, "tcp://127.0.0.1:4001");
  EXPECT_GE(receive_ready(ends.launcher.get(), 1s, "control").value().error.size(), 4000u);
}

TEST(Launch, WhatExceedsABoundIsRefusedBeforeItIsSent) {
  Ends ends;
  AgentConfig long_name = agent();
  long_name.name = std::string(257, 'n');
  EXPECT_EQ(send_config(ends.launcher.get(), long_name).error().code(), Code::invalid_argument);
  AgentConfig many = agent();
  for (int i = 0; i < 65; ++i) many.labels.emplace_back(std::to_string(i), "x");
  EXPECT_EQ(send_config(ends.launcher.get(), many).error().code(), Code::invalid_argument);
  EXPECT_EQ(send_config(ends.launcher.get(), control(kMaxAdmitted + 1)).error().code(),
            Code::invalid_argument);
  EXPECT_EQ(receive_agent_config(ends.child.get(), 0s).error().code(), Code::timed_out);
}

TEST(Launch, BadPacketsAreRefusedByName) {
  const auto refusal = [](const std::string& json, std::size_t secret = 32) {
    Ends ends;
    ends.raw(json, secret);
    auto got = receive_control_config(ends.child.get(), 1s);
    EXPECT_FALSE(got.ok());
    EXPECT_EQ(got.error().code(), Code::invalid_argument);
    return got.error().message();
  };
  EXPECT_NE(refusal("", 31).find("31 bytes"), std::string::npos);
  refusal("");
  refusal("[]");
  refusal("{\"kind\":\"control\"");
  refusal(std::string(32'000, '['));
  refusal(std::string(40'000, 'x'));
  EXPECT_NE(refusal("{\"kind\":\"agent\"}").find("no control"), std::string::npos);
  EXPECT_NE(refusal("{\"kind\":\"control\"}").find("cluster"), std::string::npos);
  EXPECT_NE(refusal("{\"kind\":\"control\",\"cluster\":7}").find("cluster"), std::string::npos);
  const std::string zero(32, '0'), one(32, '1');
  EXPECT_NE(refusal("{\"kind\":\"control\",\"cluster\":\"" + zero + "\"}").find("cluster"),
            std::string::npos);
  EXPECT_NE(
      refusal("{\"kind\":\"control\",\"cluster\":\"" + one + "\",\"node\":\"x\"}").find("node"),
      std::string::npos);
}

TEST(Launch, TheOtherSidesEndAndItsSilenceAreTold) {
  Ends ends;
  const auto silent = receive_ready(ends.launcher.get(), 5ms, "the agent of node-2");
  EXPECT_EQ(silent.error().code(), Code::timed_out);
  EXPECT_NE(silent.error().message().find("node-2"), std::string::npos);
  ends.child.reset();
  const auto gone = receive_ready(ends.launcher.get(), 1s, "the agent of node-2");
  EXPECT_EQ(gone.error().code(), Code::unavailable);
  EXPECT_NE(gone.error().message().find("node-2"), std::string::npos);
  EXPECT_EQ(send_config(ends.launcher.get(), agent()).error().code(), Code::unavailable);
}

TEST(Launch, NoTextOfAPacketHoldsTheSecret) {
  Ends ends;
  AgentConfig config = agent();
  ASSERT_TRUE(send_config(ends.launcher.get(), config));
  std::string packet(kMaxPacket, '\0');
  const ssize_t n = recv(ends.child.get(), packet.data(), packet.size(), 0);
  ASSERT_GT(n, 32);
  const std::string json = packet.substr(32, static_cast<std::size_t>(n) - 32);
  const net::PublicKey as_hex = [&] {
    net::PublicKey key;
    std::memcpy(key.bytes.data(), config.keys.secret_key.data(), 32);
    return key;
  }();
  EXPECT_EQ(json.find(as_hex.str()), std::string::npos);
  EXPECT_NE(json.find(config.keys.public_key.str()), std::string::npos);
}

}  // namespace
}  // namespace troupe::os
