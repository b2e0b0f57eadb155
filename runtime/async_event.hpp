/// AsyncEvent: where a coroutine of an actor waits for another thread of its process. The other way
/// round, notify_when_ready() tells a thread of a value that is ready.
///
///     class Sensor {
///      public:
///       Sensor() : reader_([this] { value_ = read(); changed_.set(); }) {}
///       troupe::Task<double> next() {
///         co_await changed_;          // other calls of the actor run meanwhile
///         co_return value_;
///       }
///      private:
///       std::atomic<double> value_;
///       troupe::AsyncEvent changed_;
///       std::jthread reader_;
///     };
///
/// An event is set or not. set() wakes the coroutine that waits, or lets the next one pass: each
/// set() serves one wait, and those before a wait count once (an auto-reset event).
#pragma once

#include "troupe/runtime/detail/coroutine.hpp"

#include <mutex>

namespace troupe {

/// One coroutine waits at a time; a second one throws InvalidArgument. Destroying it drops the one
/// that waits: its caller sees the end of the actor.
class TROUPE_API AsyncEvent {
 public:
  AsyncEvent() = default;
  AsyncEvent(const AsyncEvent&) = delete;
  AsyncEvent& operator=(const AsyncEvent&) = delete;

  /// Any thread; never blocks. The coroutine goes on by the executor of its actor, after what that
  /// has begun. What was written before set() is seen behind co_await. Does nothing once the
  /// process's runtime has ended.
  void set();

  class Awaiter {
   public:
    explicit Awaiter(AsyncEvent& event) noexcept : event_(event) {}
    bool await_ready() const { return event_.take(); }
    template <class P>
    bool await_suspend(std::coroutine_handle<P> self) const {
      static_assert(std::is_base_of_v<detail::PromiseBase, P>,
                    "troupe: an AsyncEvent can be awaited in a troupe::Task only");
      return event_.wait({self.promise().root->shared_from_this(), self});
    }
    void await_resume() const noexcept {}

   private:
    AsyncEvent& event_;
  };
  /// Waits for set() without holding a thread.
  Awaiter operator co_await() noexcept { return Awaiter(*this); }

 private:
  struct Waiter {
    std::shared_ptr<detail::CoroutineRoot> root;  ///< owns what waits
    std::coroutine_handle<> handle;
  };
  bool take();
  bool wait(Waiter waiter);

  std::mutex mutex_;
  bool set_ = false;
  std::optional<Waiter> waiter_;
};

/// Calls `told` once when the value of `ref` is ready, an error too, or when no wait for it can end
/// any more; get() gives the one or the other then, and does not wait. Never blocks. `told` runs on
/// any thread of the runtime, under its lock, or at once: it passes the news on, to a queue of the
/// caller's, and neither blocks, throws nor uses the runtime. Throws Unavailable outside run() and
/// Session, InvalidArgument for an empty Ref.
template <class T>
void notify_when_ready(const Ref<T>& ref, std::function<void()> told) {
  const detail::ObjectHandle& object = detail::Access::handle(ref);
  if (!object) throw InvalidArgument(Code::invalid_argument, "notify_when_ready() of an empty Ref");
  detail::running_engine().notify_when_ready(object, std::move(told));
}

}  // namespace troupe
