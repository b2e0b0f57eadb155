// Tests AgentLink: AGENT-1 to AGENT-4.
#include "troupe/runtime/client/agent_link.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::client::agent_link_test {
namespace {

struct AgentLinkTest : testing::Test {
  AgentLinkTest() : bell(ring::Doorbell::create().value()) {
    auto memory = ring::ChannelMemory::create().value();
    std::vector<Fd> descriptors;
    for (const int one : {memory.fd(), bell.memory_fd(), bell.event_fd()})
      descriptors.emplace_back(::dup(one));
    link.attach(std::move(descriptors), 3, 4);
    agent = ring::Channel(std::move(memory), 0,
                          std::make_shared<ring::Doorbell>(ring::Doorbell::create().value()), 0);
  }
  const char* arrive(std::uint64_t count) {
    return link.tell(wire::Arrived{ProcessIndex{1}, count}, {});
  }
  /// Sends until a message waits behind the full ring. Returns how many are in the ring.
  std::uint64_t fill() {
    std::uint64_t told = 0;
    while (link.channel().waiting() == 0) arrive(++told);
    return told - 1;
  }
  /// Reads the agent's ring as far as it goes; returns the counts of the Arrived there.
  std::vector<std::uint64_t> read() {
    std::vector<std::uint64_t> counts;
    std::size_t size = 0;
    while (agent.receive(frame.data(), size) == ring::Pop::frame) {
      const auto decoded = wire::decode_node(BlobView(frame.data(), size));
      if (decoded) counts.push_back(std::get<wire::Arrived>(decoded->message).frames);
    }
    return counts;
  }

  ring::Doorbell bell;  ///< the agent's
  ring::Channel agent;
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame;
  AgentLink link;
};

TEST_F(AgentLinkTest, MessagesGoOutInOrderAlsoBehindAFullRing) {
  std::uint64_t told = 0;
  while (link.channel().waiting() == 0) ASSERT_EQ(arrive(++told), nullptr);
  ASSERT_EQ(arrive(++told), nullptr);
  EXPECT_EQ(link.slot(), 4u);
  std::vector<std::uint64_t> all = read();
  EXPECT_EQ(link.settle(), nullptr);
  EXPECT_EQ(link.channel().waiting(), 0u);
  const std::vector<std::uint64_t> rest = read();
  all.insert(all.end(), rest.begin(), rest.end());
  ASSERT_EQ(all.size(), told);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i + 1);
}

TEST_F(AgentLinkTest, NothingIsSentAfterTheLossAndTheFirstReasonStays) {
  EXPECT_FALSE(link.is_lost());
  EXPECT_TRUE(link.lose(Error(Code::cancelled, "the node's agent has died")));
  EXPECT_FALSE(link.lose(Error(Code::unavailable, "later")));
  EXPECT_TRUE(link.is_lost());
  EXPECT_EQ(link.why_lost().code(), Code::cancelled);
  EXPECT_EQ(link.why_lost().message(), "the node's agent has died");
  EXPECT_EQ(arrive(1), nullptr);
  EXPECT_TRUE(read().empty());
}

TEST_F(AgentLinkTest, LossDropsWhatIsQueuedAndNobodyWaits) {
  const std::uint64_t sent = fill();
  link.lack().met(steady_now());
  link.lose(Error(Code::unavailable, "the node's agent has died"));
  EXPECT_EQ(link.channel().waiting(), 0u);
  EXPECT_EQ(link.lack().next_look(), Time::max());
  EXPECT_EQ(link.settle(), nullptr) << "it waited for the agent";
  link.await_close(Duration::max());
  std::vector<std::uint32_t> slots;
  bell.take(slots);
  EXPECT_EQ(read().size(), sent);
  EXPECT_EQ(link.settle(), nullptr);
  EXPECT_FALSE(bell.take(slots)) << "the agent was rung";
  EXPECT_TRUE(read().empty());
}

TEST_F(AgentLinkTest, SettleEndsWhenTheAgentHasClosedTheSocket) {
  auto [ours, theirs] = os::LocalSocket::pair().value();
  link.connect(std::move(ours));
  fill();
  {
    const Fd closed = std::move(theirs);
  }
  EXPECT_EQ(link.settle(), nullptr) << "it waited for the agent";
  EXPECT_EQ(link.channel().waiting(), 0u);
  EXPECT_FALSE(link.is_lost()) << "the reader of the socket says why";
}

TEST_F(AgentLinkTest, AwaitCloseDropsWhatArrivesUntilTheAgentCloses) {
  auto [ours, theirs] = os::LocalSocket::pair().value();
  link.connect(std::move(ours));
  os::LocalSocket agents(std::move(theirs));
  wire::FrameWriter writer;
  ASSERT_TRUE(agents.send(writer.encode(wire::NodeMessage(wire::Arrived{ProcessIndex{1}, 1})), {}));
  const Time begun = steady_now();
  link.await_close(std::chrono::milliseconds(1));
  EXPECT_GE(steady_now() - begun, std::chrono::milliseconds(1)) << "its side was open";
  EXPECT_EQ(agents.receive(frame).kind, os::Received::Kind::closed);
  agents = os::LocalSocket();
  link.await_close(Duration::max() / 2);
}

TEST_F(AgentLinkTest, WelcomeWithoutDescriptorsIsAnError) {
  AgentLink other;
  EXPECT_THROW(other.attach({}, 1, 1), Unavailable);
}

TEST_F(AgentLinkTest, ReadableSocketIsTakenOnce) {
  EXPECT_TRUE(link.take_readable()) << "what came before the first look";
  EXPECT_FALSE(link.take_readable());
  link.note_readable();
  EXPECT_TRUE(link.take_readable());
}

}  // namespace
}  // namespace troupe::client::agent_link_test
