// Tests memory that runs out while a call is made: either the call was not sent, or its result
// can be read.
#include "driver.hpp"
#include "tests/runtime/wire/hostile.hpp"

#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#ifndef TROUPE_SANITIZED  // a sanitizer has an operator new of its own
namespace {
/// The number of this thread's allocations that still succeed; negative: all.
thread_local int g_left = -1;
}  // namespace

// Not inline: else their callers would see malloc and free.
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* at = g_left == 0 ? nullptr : std::malloc(size);
  if (at == nullptr) throw std::bad_alloc();
  if (g_left > 0) --g_left;
  return at;
}
[[gnu::noinline]] void operator delete(void* at) noexcept {
  std::free(at);
}
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept {
  std::free(at);
}

namespace troupe::client {
namespace {

/// More calls than a queue of calls under way has room for at first.
constexpr std::size_t kMany = 20;

/// While it lives, a thread that begins finds no spare records of this type.
template <class Record>
class UsedUp {
 public:
  UsedUp() {
    for (int left = 1; left != 0;) {
      g_left = 1;
      auto record = std::make_unique<Record>();
      left = std::exchange(g_left, -1);
      held_.push_back(std::move(record));
    }
  }

 private:
  std::vector<std::unique_ptr<Record>> held_;
};

struct NoMemory : Driver {
  void TearDown() override { engine().stop(); }

  /// Makes a call on a thread of its own, with that many allocations. Returns false when there
  /// was no memory.
  using Make = std::function<void(detail::Call&& call, detail::ObjectHandle& result)>;
  bool succeeds_with(int allocations, const Make& make, detail::ObjectHandle& result) {
    return agent.finish(agent.meanwhile([&] {
      detail::Call call;
      call.callable = &kFunction;
      g_left = allocations;
      try {
        make(std::move(call), result);
        g_left = -1;
        return true;
      } catch (const std::bad_alloc&) {
        g_left = -1;
        return false;
      }
    }));
  }
  /// Makes that many calls, each tried with one allocation more until it succeeds. Returns the
  /// number of failures.
  int make_calls(std::size_t calls, const Make& make) {
    int failures = 0;
    for (std::size_t i = 0; i < calls; ++i) {
      detail::ObjectHandle result;
      for (int memory = 0; !succeeds_with(memory, make, result); ++memory) {
        ++failures;
        if (memory == 100) throw std::runtime_error("it is not the memory");
      }
      results.push_back(std::move(result));
    }
    return failures;
  }
  /// Returns a Make that adds the result of the first call as an argument.
  Make with_argument(const Make& make) {
    return [this, make](detail::Call&& call, detail::ObjectHandle& result) {
      call.arguments.push_back({0, 0, 0, 0, results.front()});
      make(std::move(call), result);
    };
  }
  /// Expects that the calls that were made arrive in their order, and no others, and answers
  /// them.
  void answer_all(std::uint64_t first) {
    for (auto& result : results) {
      if (HasFailure()) return;
      wire::PlainReply answer;
      answer.sequence = agent.next_from<wire::Call>(kBeside).message.sequence;
      EXPECT_EQ(answer.sequence, first++);
      answer.ran_ns = 1000;
      answer.value.size = 4;
      agent.peer_says_plainly(kBeside, answer, BlobView(std::array<std::byte, 4>{}));
      agent.run_until([&] { return engine().is_ready(result); }, "the result");
    }
    results.clear();
  }
  wire::ActorUpdate alive() const {
    wire::ActorUpdate update;
    update.actor = kActor;
    update.state = wire::ActorState::alive;
    update.incarnation = 1;
    update.worker = kBeside;
    return update;
  }
  const UsedUp<Task> tasks;
  const UsedUp<ActorCall> calls;
  const UsedUp<Entry> entries;
  const ActorId kActor{3, 4};
  std::vector<detail::ObjectHandle> results;
};

struct NoMemoryForCalls : NoMemory {
  const Make make = [this](detail::Call&& call, detail::ObjectHandle& result) {
    engine().call(actor, std::move(call), {&result, 1});
  };
  void live() {
    agent.next<wire::WatchActor>();
    agent.connect(kBeside, false);
    agent.tell(alive());
  }
  const detail::ActorHandle actor{kActor, put("its lifetime")};
};

TEST_F(NoMemoryForCalls, OneThatCouldNotBeMadeWasNotSent) {
  EXPECT_GE(make_calls(2, make), 4) << "they wait until it is known where the actor lives";
  live();
  answer_all(1);
  EXPECT_GE(make_calls(kMany, make), 2 * int{kMany}) << "a record of each and of its result";
  answer_all(3);
}

TEST_F(NoMemoryForCalls, OneThatCouldNotBeMadeWaitsForNoArgument) {
  make_calls(1, make);
  EXPECT_GE(make_calls(2, with_argument(make)), 6) << "records, and who waits for the argument";
  live();
  answer_all(1);
}

struct NoMemoryForTasks : NoMemory {
  const Make make = [this](detail::Call&& call, detail::ObjectHandle& result) {
    engine().submit(std::move(call), nullptr, {&result, 1});
  };
};

TEST_F(NoMemoryForTasks, OneThatCouldNotBeMadeWasNotSent) {
  EXPECT_GE(make_calls(2, make), 4) << "they wait for a worker";
  lease(kBeside, false, 0);
  answer_all(1);
  EXPECT_GE(make_calls(kMany, make), 2 * int{kMany}) << "a record of each and of its result";
  answer_all(3);
}

TEST_F(NoMemoryForTasks, OneThatCouldNotBeMadeWaitsForNoArgument) {
  make_calls(1, make);
  EXPECT_GE(make_calls(2, with_argument(make)), 6) << "records, and who waits for the argument";
  lease(kBeside, false, 0);
  answer_all(1);
}

}  // namespace
}  // namespace troupe::client
#endif
