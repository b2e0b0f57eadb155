// The parts of an engine without the engine: the test plays what stands around them.
#pragma once

#include "troupe/runtime/client/agent_link.hpp"
#include "troupe/runtime/client/calls.hpp"
#include "troupe/runtime/client/engine_gate.hpp"
#include "troupe/runtime/client/waits.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::client {

inline void run_nothing(detail::Invocation&) {}
inline const detail::Callable kNothing{.thunk = &run_nothing, .name = "mix(int)"};

// Calls with what it needs, and the ring of one other process.
struct PartsWorld : testing::Test, Calls::Out, Recovery::Out, WorkQueue::Out {
  static constexpr ProcessIndex kSelf = 7, kOther = 11;
  using Handle = detail::ObjectHandle;

  PartsWorld() {
    self.process = kSelf;
    values.begin(kSelf, 5, 1);
    recovery.belongs_to(kSelf);
    work.belongs_to(kSelf);
    peers.bell() = ring::Doorbell::create().value();
  }
  // Calls::Out and Recovery::Out
  void settle_agent_queue() override {}
  void tell(const wire::NodeMessage&, BlobView) override {}
  void collect_released() override {}
  void notify() override {}
  void fire(const Waiter& waiter, Entry& entry) override { waiter.fire(calls, waiter.who, entry); }
  void unparked(Entry&) override {}
  void run_again(std::unique_ptr<Task> task) override { calls.run_again(std::move(task)); }
  void recovered() override {}
  // WorkQueue::Out
  void hand_back(ProcessIndex, const wire::HandBack&) override {}
  void drop_refs(const wire::Call&) override {}
  bool is_refused(ProcessIndex) override { return false; }
  void tell_blocked(bool) override {}

  // Opens the channel with kOther.
  Peers::Peer& connect() {
    const ring::Doorbell bell = ring::Doorbell::create().value();
    auto memory = ring::ChannelMemory::create().value();
    std::vector<Fd> descriptors;
    for (const int one : {memory.fd(), bell.memory_fd(), bell.event_fd()})
      descriptors.emplace_back(::dup(one));
    far_end = ring::Channel(std::move(memory), 0,
                            std::make_shared<ring::Doorbell>(ring::Doorbell::create().value()), 2);
    return *peers.open(wire::Channel{kOther, 1, 2, 2}, std::move(descriptors)).value();
  }
  static detail::Call call_of(std::vector<Handle> objects = {}) {
    detail::Call call;
    call.callable = &kNothing;
    for (Handle& object : objects) call.arguments.push_back({0, 0, 0, 0, std::move(object)});
    return call;
  }
  // Submits a task and returns its result.
  Handle submit(std::vector<Handle> objects = {}) {
    Handle result;
    const bool takes_objects = !objects.empty();
    calls.submit(call_of(std::move(objects)), nullptr, {&result, 1}, takes_objects);
    return result;
  }

  Identity self;
  Peers peers;
  ring::Channel far_end;  // kOther's
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame;
  StoreUse store;
  WorkQueue work{static_cast<WorkQueue::Out&>(*this)};
  EngineGate gate{static_cast<Recovery::Out&>(*this), values, store};
  Calls calls{static_cast<Calls::Out&>(*this), self, peers, values, recovery, work};
  Recovery recovery{static_cast<Recovery::Out&>(*this), values, calls.classes(), true,
                    Bytes{1 << 20}};
  Values values{static_cast<Values::Out&>(*this), recovery, store, calls.classes()};
};

// The same with threads that wait: what `arrives` does is read by the next wait.
struct WaitingWorld : PartsWorld, IoLoop::Host {
  WaitingWorld() { waits.begin(loop); }
  void notify() override { loop.notify(); }
  // IoLoop::Host
  Time drain(Time) override {
    if (arrives) std::exchange(arrives, nullptr)();
    return Time::max();
  }
  Time next_timer() const noexcept override { return Time::max(); }
  int socket_fd() const override { return socket.get(); }
  bool wants_write() const override { return false; }
  void socket_ready() noexcept override {}
  bool has_leftovers() const noexcept override { return gate.has_leftovers(); }
  bool watch_peer() noexcept override { return false; }
  bool drain_watched(Time) override { return false; }

  std::function<void()> arrives;
  const Fd socket{::eventfd(0, EFD_CLOEXEC)};
  ring::Doorbell bell = ring::Doorbell::create().value();
  AgentLink agent;
  WorkerLease lease;
  IoLoop loop{static_cast<IoLoop::Host&>(*this), bell, gate.lock()};
  Waits waits{self, gate, agent, work, calls, lease};
};

}  // namespace troupe::client
