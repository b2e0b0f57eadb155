// A driver's engine whose agent, peers and node the test plays: the test reads what the engine
// sends, and answers.
#pragma once

#include "fake_agent.hpp"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace troupe::client {

using Kind = wire::Value::Kind;

constexpr ProcessIndex kThere = 9;     // a process of another node, by its local index
constexpr ProcessIndex kNode = 50;     // that node
constexpr ProcessIndex kBeside = 10;   // another process of this node
inline const ObjectId kObject{77, 1};  // an object of another process
inline const std::string kLarge(10'000, 'x');

inline const detail::Callable kFunction{[](detail::Invocation&) {}, detail::CallableKind::function};

inline BlobView bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}
inline std::string text_of(const detail::Value& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}
inline wire::Value value_of(Kind kind) {
  wire::Value value;
  value.kind = kind;
  return value;
}
inline wire::Value forwarded(ObjectId object) {
  wire::Value value = value_of(Kind::forwarded);
  value.forward = object;
  return value;
}
inline wire::Value failed(Code code, const char* why) {
  wire::Value value = value_of(Kind::error);
  value.error = Error(code, why).shared_info();
  return value;
}
inline wire::Value far_away() {
  wire::Value value = value_of(Kind::remote);
  value.remote_bytes = kLarge.size();
  return value;
}

struct Driver : ::testing::Test {
  explicit Driver(wire::ProcessKind kind = wire::ProcessKind::driver) : agent(kind) {}
  ClientEngine& engine() { return *agent.engine; }

  detail::ObjectHandle put(const std::string& text) {
    return agent.finish(agent.meanwhile([&] { return engine().put(bytes_of(text), {}); }));
  }
  detail::ObjectHandle submit(const std::vector<detail::ObjectHandle>& arguments, int retries = 3) {
    detail::Call call;
    call.callable = &kFunction;
    for (const auto& object : arguments) call.arguments.push_back({0, 0, 0, 0, object});
    detail::Request request;
    request.max_retries = retries;
    detail::ObjectHandle result;
    engine().submit(std::move(call), &request, {&result, 1});
    return result;
  }
  // Grants the engine's request for a lease with this worker.
  void lease(ProcessIndex worker, bool remote, ProcessIndex holder) {
    const auto request = agent.next<wire::RequestLease>();
    agent.connect(worker, remote, holder);
    agent.grant(request.key, LeaseId::of(worker.value), worker);
  }
  void lease_remote() { lease(kThere, true, kNode); }
  void reply(ProcessIndex worker, std::uint64_t sequence, const wire::Value& value,
             BlobView payload = {}) {
    wire::Reply reply;
    reply.sequence = sequence;
    reply.value = value;
    agent.peer_says(worker, reply, payload);
  }
  // Returns a result whose bytes lie on another node: its task ran there, and the result forwards
  // to kObject.
  detail::ObjectHandle remote_result() {
    auto result = submit({});
    lease_remote();
    agent.next_from<wire::Call>(kThere);
    reply(kThere, 1, forwarded(kObject));
    EXPECT_FALSE(agent.next<wire::Await>().fetch);
    agent.tell(wire::Ready{kObject, far_away()});
    agent.run_until([&] { return engine().is_ready(result); }, "the result is known");
    return result;
  }
  auto getting(const detail::ObjectHandle& object, Duration timeout = 10s) {
    return agent.meanwhile([this, object, timeout] { return engine().try_get(object, timeout); });
  }

  FakeAgent agent;
};

}  // namespace troupe::client
