// Tests a worker that leases itself: threads that a task has left submit tasks, and the agent
// grants this very process.
#include "driver.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace troupe::client {
namespace {

struct OwnLease : Driver {
  OwnLease() : Driver(wire::ProcessKind::worker) {}

  void lease_itself() {
    const auto request = agent.next<wire::RequestLease>();
    agent.connect_to_itself();
    agent.grant(request.key, LeaseId::of(5), FakeAgent::kProcess);
  }
  /// Returns the next call, as the worker's own thread gets it.
  std::shared_ptr<Incoming> take() {
    return agent.finish(agent.meanwhile([this] {
      std::shared_ptr<Incoming> call;
      std::optional<ActorStart> actor;
      std::function<void()> resume;
      engine().next_work(call, actor, resume);
      return call;
    }));
  }
  void answer(const Incoming& call) {
    wire::PlainReply reply;
    reply.sequence = call.call.sequence;
    reply.value.size = 4;
    engine().reply_plain(call.from, reply, bytes_of("done"));
  }
  std::string result(const detail::ObjectHandle& object) {
    const auto value = agent.finish(getting(object));
    return value ? text_of(value.value()) : value.error().message();
  }
};

/// One call is always in flight, so the lease stays.
TEST_F(OwnLease, EachCallHasANumberOfItsOwn) {
  auto last = submit({});
  lease_itself();
  auto call = take();
  ASSERT_TRUE(call);
  EXPECT_EQ(call->call.sequence, 1u);
  for (std::uint64_t number = 2; number < 6; ++number) {
    const auto next = submit({});  // sent after a frame has come from this process
    answer(*call);
    EXPECT_EQ(result(last), "done");
    last = next;
    call = take();
    ASSERT_TRUE(call);
    EXPECT_EQ(call->call.sequence, number);
  }
  answer(*call);
  EXPECT_EQ(result(last), "done");
}

TEST_F(OwnLease, CallsThatWaitHereAreHandedBackAndRunLater) {
  std::vector<detail::ObjectHandle> results{submit({})};
  lease_itself();
  auto call = take();
  ASSERT_TRUE(call);
  results.push_back(submit({}));
  answer(*call);
  EXPECT_EQ(result(results[0]), "done");
  call = take();
  ASSERT_TRUE(call);
  for (int i = 0; i < 4; ++i) results.push_back(submit({}));  // behind the one that runs
  agent.tell(wire::LeaseReclaim{LeaseId::of(5), {}});
  const auto request = agent.next<wire::RequestLease>();  // for those that come back
  answer(*call);
  EXPECT_EQ(result(results[1]), "done");
  EXPECT_EQ(agent.next<wire::LeaseReturned>().lease, LeaseId::of(5));
  agent.grant(request.key, LeaseId::of(6), FakeAgent::kProcess);
  for (std::size_t i = 2; i < results.size(); ++i) {
    call = take();
    ASSERT_TRUE(call);
    answer(*call);
    EXPECT_EQ(result(results[i]), "done");
  }
}

}  // namespace
}  // namespace troupe::client
