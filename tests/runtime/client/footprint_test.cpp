// Tests how much memory each waiting task, object and call needs: a million of them may exist at
// once.
#include "troupe/runtime/client/actor_calls.hpp"
#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/client/tasks.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

namespace troupe::client::footprint_test {
namespace {

/// A world without leases and without live actors, so that everything waits.
struct Silent final : TaskManager::Out, ActorCalls::Out {
  bool send(ProcessIndex, Task&) override { return false; }
  bool send(ProcessIndex, ActorCall&) override { return false; }
  void request_lease(LeaseKey, std::uint32_t) override {}
  void return_lease(LeaseId) override {}
  void recall(ProcessIndex) override {}
  void watch(ActorId) override {}
  void fail(Task&, const Error&) override {}
  void fail(ActorCall&, const Error&) override {}
};

/// Returns the bytes that malloc has handed out, with its own overhead.
double heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

/// Returns a call of f(int, int).
detail::Call small_call() {
  static const detail::Callable callable{[](detail::Invocation&) {}};
  detail::Call call;
  call.callable = &callable;
  call.arguments.resize(2);
  call.arguments[0] = {0, 4, 0, 0, {}};
  call.arguments[1] = {16, 4, 0, 0, {}};
  call.bytes.resize(20);
  return call;
}

constexpr int kMany = 50'000;

/// Calls `one` kLeft + kMany times, and returns the heap bytes for each of the last kMany. All
/// results stay. The first kLeft calls fill memory that earlier tests have freed.
template <class One>
double bytes_each(One&& one) {
  constexpr int kLeft = 200'000;
  std::vector<detail::ObjectHandle> kept;
  kept.reserve(kLeft + kMany);
  for (int i = 0; i < kLeft; ++i) kept.push_back(one());
  const double before = heap_bytes();
  for (int i = 0; i < kMany; ++i) kept.push_back(one());
  return (heap_bytes() - before) / kMany;
}

class Footprint : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's heap says nothing";
#endif
  }
  Silent out;
  ObjectTable objects{1};
};

TEST_F(Footprint, QueuedTask) {
  TaskManager tasks(out);
  EXPECT_LE(bytes_each([&] {
              detail::ObjectHandle result = objects.create();
              auto task = std::make_unique<Task>();
              task->call = small_call();
              task->results.push_back(result);
              tasks.submit(std::move(task), Time{});
              return result;
            }),
            445);
}

TEST_F(Footprint, QueuedActorCall) {
  ActorCalls calls(out);
  EXPECT_LE(bytes_each([&] {
              detail::ObjectHandle result = objects.create();
              auto call = std::make_unique<ActorCall>();
              call->actor = ActorId{3, 5};
              call->call = small_call();
              call->results.push_back(result);
              calls.submit(std::move(call));
              return result;
            }),
            445);
}

TEST_F(Footprint, SmallObject) {
  const auto one = [&] {
    detail::ObjectHandle object = objects.create();
    Entry& entry = entry_of(object);
    auto stored = std::allocate_shared<Stored>(FreeListAllocator<Stored>());
    stored->bytes = BlobView{};
    entry.kind = wire::Value::Kind::inline_bytes;
    entry.value = std::move(stored);
    entry.ready.store(true);
    return object;
  };
  EXPECT_LE(bytes_each(one), 280);
}

}  // namespace
}  // namespace troupe::client::footprint_test
