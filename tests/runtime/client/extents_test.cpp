// Tests threads of one process that request extents at the same time. Each gets its own answer,
// through the ring or the socket, in any order.
#include "fake_agent.hpp"

#include <gtest/gtest.h>

namespace troupe::client {
namespace {

TEST(Extents, AnAnswerGoesToWhoAskedAlsoWhenALaterOneComesFirst) {
  FakeAgent agent;
  agent.grants = false;
  const auto put = [&](std::size_t size) {
    return agent.meanwhile([&agent, size] { return agent.engine->put(Blob(size), {}); });
  };
  auto first = put(2 << 20);
  const auto asked_first = agent.next<wire::NeedExtent>();
  auto second = put(3 << 20);
  const auto asked_second = agent.next<wire::NeedExtent>();
  ASSERT_NE(asked_first.request, asked_second.request);
  wire::GiveExtent refused;  // comes through the ring; the grant comes through the socket
  refused.error = Error(Code::out_of_memory, "not three").shared_info();
  refused.request = asked_second.request;
  agent.tell(refused);
  EXPECT_THROW(agent.finish(std::move(second)), OutOfMemory);
  agent.grant(asked_first);
  EXPECT_TRUE(agent.finish(std::move(first)));
}

TEST(Extents, AnAnswerThatNobodyWaitsForIsMemoryForLater) {
  FakeAgent agent;
  agent.grants = false;
  auto put = agent.meanwhile([&] { return agent.engine->put(Blob(std::size_t{2} << 20), {}); });
  auto asked = agent.next<wire::NeedExtent>();
  const std::uint64_t request = std::exchange(asked.request, asked.request + 1000);
  agent.grant(asked);  // answers a request that was never sent
  wire::GiveExtent again;
  again.request = request;
  agent.tell(again);  // says that another try will find room
  EXPECT_TRUE(agent.finish(std::move(put)));
}

TEST(Extents, WhoWaitsForMemoryHearsAtOnceThatTheAgentIsGone) {
  FakeAgent agent;
  agent.grants = false;
  auto put = agent.meanwhile([&] { return agent.engine->put(Blob(std::size_t{2} << 20), {}); });
  agent.next<wire::NeedExtent>();
  const Time begun = steady_now();
  agent.die();
  EXPECT_THROW(agent.finish(std::move(put)), Unavailable);
  EXPECT_LT(steady_now() - begun, std::chrono::seconds(5));
}

}  // namespace
}  // namespace troupe::client
