// Tests a worker whose lease was held by a silent process: what it answers, and what becomes of
// that process's late calls.
#include "driver.hpp"

#include <gtest/gtest.h>

namespace troupe::client {
namespace {

struct SilentHolder : Driver {
  SilentHolder() : Driver(wire::ProcessKind::worker) { agent.connect(kBeside, false); }

  void call(std::uint64_t sequence) {
    wire::Call call;
    call.sequence = sequence;
    agent.peer_says(kBeside, call);
  }
  /// Asks the worker for the lease 5 of the holder, and waits until it has read that.
  void ask() {
    agent.tell(wire::LeaseReclaim{LeaseId::of(5), kBeside});
    wire::PeerDied nobody;
    nobody.peer = ProcessIndex::of(99);
    agent.tell(nobody);
    agent.next<wire::Arrived>();
  }
  void grant_to_holder() {
    wire::LeaseGranted lease;
    lease.worker = kBeside;
    lease.demand = wire::ResourceDemand{};
    agent.tell(lease);
  }
  std::uint64_t next_call() {
    return agent.finish(agent.meanwhile([this] {
      std::shared_ptr<Incoming> call;
      std::optional<ActorStart> actor;
      std::function<void()> resume;
      engine().next_work(call, actor, resume);
      return call ? call->call.sequence : 0;
    }));
  }
};

TEST_F(SilentHolder, AnIdleWorkerReturnsTheLeaseAndHandsLateCallsBack) {
  // As the agent does, the test repeats the question: the worker may lack the holder's channel.
  for (int i = 0; !agent.has_said<wire::LeaseReturned>() && i < 1000; ++i) ask();
  EXPECT_EQ(agent.next<wire::LeaseReturned>().lease, LeaseId::of(5));
  call(1);
  const auto back = agent.next_from<wire::HandBack>(kBeside).message;
  EXPECT_EQ(back.first, 1u);
  EXPECT_EQ(back.count, 1u);
  grant_to_holder();
  call(2);
  EXPECT_EQ(next_call(), 2u);
}

TEST_F(SilentHolder, AWorkerThatRunsDoesNotAnswer) {
  call(1);
  EXPECT_EQ(next_call(), 1u);
  ask();
  EXPECT_FALSE(agent.has_said<wire::LeaseReturned>());
}

}  // namespace
}  // namespace troupe::client
