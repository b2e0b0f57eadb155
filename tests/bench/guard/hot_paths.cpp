// The hot paths of a call, one after another in this process. Valgrind counts their instructions,
// and guard.sh compares the counts with recorded.txt. Each path is a function named hot_…, which
// handles kChunk messages and is called so often that its median is steady.
//   hot_paths            runs all paths
//   hot_paths --build    prints the compiler for which counts are valid, or nothing
//   hot_paths --chunk    prints the number of messages per call of a path
//   hot_paths --paths    prints the names of the paths
#include "bench/guard/agent_paths.hpp"
#include "runtime/client/fake_agent.hpp"

#include "troupe/runtime/wire/plain.hpp"

#include <gtest/gtest.h>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

namespace {

using namespace troupe;
using namespace troupe::client;

constexpr int kChunk = 64;
constexpr int kTimes = 9;
constexpr char kPaths[] =
    "hot_task_core hot_actor_core hot_put hot_get hot_wire_plain hot_wire_general "
    "hot_ring hot_submit hot_call hot_collect hot_work";
static_assert(kChunk == guard::kAgentChunk, "guard.sh divides all paths by one number");
constexpr ProcessIndex kWorker = 20;
constexpr ProcessIndex kHost = 21;
constexpr ProcessIndex kLeased = 23;
const ActorId kActor{3, 5};
const detail::Callable kFunction{[](detail::Invocation&) {}, detail::CallableKind::function};
const detail::Callable kMethod{[](detail::Invocation&) {}, detail::CallableKind::method};

detail::Call call_of(const detail::Callable& callable) {
  detail::Call call;
  call.callable = &callable;
  call.arguments.resize(2);
  call.arguments[0] = {0, 4, 0, 0, {}};
  call.arguments[1] = {16, 8, 0, 0, {}};
  call.bytes.resize(24);
  return call;
}

/// An output that numbers tasks and calls and sends nothing.
struct Counting final : TaskManager::Out, ActorCalls::Out {
  bool send(ProcessIndex, Task& task) override { return (task.sequence = ++tasks, true); }
  bool send(ProcessIndex, ActorCall& call) override { return (call.sequence = ++calls, true); }
  void request_lease(LeaseKey, std::uint32_t) override {}
  void return_lease(LeaseId) override {}
  void recall(ProcessIndex) override {}
  void watch(ActorId) override {}
  void fail(Task&, const Error&) override {}
  void fail(ActorCall&, const Error&) override {}
  std::uint64_t tasks = 0, calls = 0;
};

/// The peer's side of calls, played between the counted parts.
constexpr ProcessIndex kPeer = 22;

void answer(FakeAgent& agent, ProcessIndex peer, int calls) {
  for (int i = 0; i < calls; ++i) {
    wire::PlainReply reply;
    reply.sequence = agent.next_from<wire::Call>(peer).message.sequence;
    reply.ran_ns = 1000;
    reply.value.size = 4;
    agent.peer_says_plainly(peer, reply, BlobView(std::array<std::byte, 4>{}));
  }
}

/// The state that all paths share.
struct Scene {
  FakeAgent agent;
  Counting out;
  TaskManager tasks{out};
  ActorCalls actors{out};
  std::uint64_t ended = 0, answered = 0;
  std::vector<detail::ObjectHandle> results = std::vector<detail::ObjectHandle>(kChunk);
  detail::ActorHandle actor;
  std::unique_ptr<ring::ChannelMemory> memory;
  ring::Producer producer;
  ring::Consumer consumer;
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame;

  ClientEngine& engine() { return *agent.engine; }
};

}  // namespace

#define HOT extern "C" __attribute__((noinline, visibility("default"))) void

/// The core that places tasks: they are submitted, sent and ended.
HOT hot_task_core(Scene& s) {
  for (int i = 0; i < kChunk; ++i) {
    auto task = std::make_unique<Task>();
    task->call = call_of(kFunction);
    s.tasks.submit(std::move(task), Time{});
  }
  for (int i = 0; i < kChunk; ++i)
    if (s.tasks.in_flight(kWorker, ++s.ended) == nullptr ||
        !s.tasks.ended(kWorker, s.ended, 1us, Time{}))
      std::abort();
}
HOT hot_actor_core(Scene& s) {
  for (int i = 0; i < kChunk; ++i) {
    auto call = std::make_unique<ActorCall>();
    call->actor = kActor;
    call->call = call_of(kMethod);
    s.actors.submit(std::move(call));
  }
  for (int i = 0; i < kChunk; ++i) {
    if (s.actors.in_flight(kHost, ++s.answered) == nullptr) std::abort();
    s.actors.ended(kHost, s.answered);
  }
}
HOT hot_put(Scene& s) {
  std::array<std::byte, 8> bytes{};
  for (auto& result : s.results) result = s.engine().put(bytes, {});
}
HOT hot_get(Scene& s) {
  for (auto& result : s.results)
    if (s.engine().get(result, 10s).bytes.size() != 8) std::abort();
}
/// A plain call and its reply, written and read.
HOT hot_wire_plain(Scene&) {
  wire::PlainFrame frame;
  wire::PlainCall call;
  wire::PlainReply reply;
  BlobView payload;
  call.count = 2;
  for (int i = 0; i < kChunk; ++i) {
    call.sequence = reply.sequence = static_cast<std::uint64_t>(i);
    if (!wire::read_plain(wire::write_plain(call, frame), call, payload)) std::abort();
    if (!wire::read_plain(wire::write_plain(reply, frame), reply, payload)) std::abort();
  }
}
/// A call with a ref inside, whose encoding walks the message schema.
HOT hot_wire_general(Scene&) {
  static wire::FrameWriter writer;
  wire::Call call;
  call.arguments.resize(2);
  for (auto& argument : call.arguments) argument.kind = wire::Value::Kind::inline_bytes;
  call.arguments[0].refs = {ObjectId{1, 2}};
  const wire::CallMessage message(std::move(call));
  for (int i = 0; i < kChunk; ++i)
    if (!wire::decode_call(writer.encode(message))) std::abort();
}
HOT hot_ring(Scene& s) {
  std::array<std::byte, 144> bytes{};
  std::size_t size = 0;
  for (int i = 0; i < kChunk; ++i) {
    if (!s.producer.push(bytes)) std::abort();
    if (s.consumer.pop(s.frame.data(), size) != ring::Pop::frame || s.consumer.take_starved())
      std::abort();
  }
}

/// The caller's part of a task: the call is made and sent to a worker with room.
HOT hot_submit(Scene& s) {
  for (auto& result : s.results) s.engine().submit(call_of(kFunction), nullptr, {&result, 1});
}
/// The caller's part of an actor call, and then reading and dropping its result. Receiving the
/// replies is not counted, since either of two threads may do it.
HOT hot_call(Scene& s) {
  for (auto& result : s.results) s.engine().call(s.actor, call_of(kMethod), {&result, 1});
}
HOT hot_collect(Scene& s) {
  for (auto& result : s.results) {
    if (s.engine().get(result, 10s).bytes.size() != 4) std::abort();
    result = {};
  }
}
/// The worker's part of calls that have arrived, without the function and its arguments.
HOT hot_work(FakeAgent& agent) {
  for (int i = 0; i < kChunk; ++i) {
    std::shared_ptr<Incoming> call;
    std::optional<ActorStart> actor;
    std::function<void()> resume;
    if (!agent.engine->next_work(call, actor, resume) || !call) std::abort();
    wire::PlainReply reply;
    reply.sequence = call->call.sequence;
    reply.value.size = 4;
    agent.engine->reply_plain(call->from, reply, BlobView(call->payload).first(4));
  }
}

namespace {

wire::ActorUpdate alive() {
  wire::ActorUpdate update;
  update.actor = kActor;
  update.state = wire::ActorState::alive;
  update.incarnation = 1;
  update.worker = kHost;
  return update;
}

/// Fills the spare lists of this thread for all rounds of two paths, since another thread may
/// free the records.
template <class Record>
void have_spare() {
  std::vector<std::unique_ptr<Record>> records;
  for (int i = 0; i < 2 * (kTimes + 1) * kChunk; ++i) records.push_back(std::make_unique<Record>());
}

/// Gives the cores a worker with a lease, and an actor.
void prepare(Scene& s) {
  have_spare<Entry>();
  have_spare<Task>();
  have_spare<ActorCall>();
  for (int i = 0; i < 2; ++i) {  // the first run time sets how many tasks may wait at a worker
    auto task = std::make_unique<Task>();
    s.tasks.submit(std::move(task), Time{});
    if (i == 0) s.tasks.granted(0, 1, kWorker, Time{});
    s.tasks.ended(kWorker, ++s.ended, 1us, Time{});
  }
  auto call = std::make_unique<ActorCall>();
  call->actor = kActor;
  s.actors.submit(std::move(call));
  s.actors.update(alive());
  s.actors.ended(kHost, ++s.answered);
  s.memory = std::make_unique<ring::ChannelMemory>(ring::ChannelMemory::create().value());
  s.producer = s.memory->producer(0);
  s.consumer = s.memory->consumer(1);
}

void submit(Scene& s) {
  // The first task's run time is known, so many tasks may wait at its worker. The second task is
  // never answered, so the lease stays in use. Nothing else happens there for a millisecond, so
  // one more worker is requested, as is usual when many tasks are in flight.
  detail::ObjectHandle first, second;
  s.engine().submit(call_of(kFunction), nullptr, {&first, 1});
  const auto request = s.agent.next<wire::RequestLease>();
  s.agent.connect(kLeased, false);
  s.agent.grant(request.key, 1, kLeased);
  answer(s.agent, kLeased, 1);
  s.engine().get(first, 10s);
  for (auto* result : {&second, &first})
    s.engine().submit(call_of(kFunction), nullptr, {result, 1});
  s.agent.next<wire::RequestLease>();
  s.agent.next_from<wire::Call>(kLeased);
  answer(s.agent, kLeased, 1);
  for (int i = 0; i < kTimes; ++i) {
    hot_submit(s);
    answer(s.agent, kLeased, kChunk);
    s.agent.run_until([&] { return s.engine().is_ready(s.results.back()); }, "all results");
    for (auto& result : s.results) result = {};
  }
}

void call_and_collect(Scene& s) {
  s.actor.id = kActor;
  s.actor.lifetime = s.engine().put(std::array<std::byte, 1>{}, {});
  detail::ObjectHandle first;
  s.engine().call(s.actor, call_of(kMethod), {&first, 1});
  s.agent.connect(kHost, false);
  s.agent.tell(alive());
  answer(s.agent, kHost, 1);
  s.engine().get(first, 10s);
  for (int i = 0; i < kTimes; ++i) {
    hot_call(s);
    answer(s.agent, kHost, kChunk);
    s.agent.run_until([&] { return s.engine().is_ready(s.results.back()); }, "all replies");
    hot_collect(s);
  }
}

void work(FakeAgent& agent) {
  agent.connect(kPeer, false);
  const detail::ActorHandle nobody{kActor, agent.engine->put(std::array<std::byte, 1>{}, {})};
  detail::ObjectHandle never;
  agent.engine->call(nobody, call_of(kMethod), {&never, 1});
  std::uint64_t sequence = 0;
  for (int i = 0; i < kTimes; ++i) {
    for (int k = 0; k < kChunk + 1; ++k) {
      wire::PlainCall call;
      call.sequence = ++sequence;
      call.count = 2;
      call.arguments[1].offset = 16;
      agent.peer_says_plainly(kPeer, call, BlobView(std::array<std::byte, 24>{}));
    }
    // All calls are taken in now, by whichever thread: is_ready() takes them in before it
    // answers.
    if (agent.engine->is_ready(never)) std::abort();
    std::shared_ptr<Incoming> first;
    std::optional<ActorStart> actor;
    std::function<void()> resume;
    agent.engine->next_work(first, actor, resume);
    hot_work(agent);
    for (int k = 0; k < kChunk; ++k) agent.next_from<wire::Reply>(kPeer);
  }
}

/// Names the compiler, since counts compare only for optimized code of one compiler without a
/// sanitizer.
void say_build() {
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__) && defined(__x86_64__)
  std::printf("g++-%d\n", __GNUC__);
#elif defined(__OPTIMIZE__) && defined(__clang__) && defined(__x86_64__)
  std::printf("clang-%d\n", __clang_major__);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);  // the fake agent reports errors through it
  if (argc > 1 && std::strcmp(argv[1], "--build") == 0) return say_build(), 0;
  if (argc > 1 && std::strcmp(argv[1], "--chunk") == 0) return std::printf("%d\n", kChunk), 0;
  if (argc > 1 && std::strcmp(argv[1], "--paths") == 0)
    return std::printf("%s %s\n", kPaths, guard::kAgentPaths), 0;
  {
    Scene s;
    prepare(s);
    for (const auto& path : {hot_task_core, hot_actor_core, hot_put, hot_get, hot_wire_plain,
                             hot_wire_general, hot_ring})
      for (int i = 0; i < kTimes; ++i) path(s);
    submit(s);
    call_and_collect(s);
    s.results.clear();
    s.actor = {};
    s.agent.engine->stop();
  }
  guard::run_agent_paths(kTimes);
  {
    FakeAgent agent(wire::ProcessKind::worker);
    work(agent);
    agent.engine->stop();
  }
  return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}
