/// AsyncEvent: lets a coroutine of an actor wait for another thread of its process. In the other
/// direction, notify_when_ready() tells a thread that a value is ready.
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
/// An event is set or not set. set() resumes the coroutine that waits, or lets the next one pass
/// without a wait. Each set() serves one wait, and several before a wait count as one (an
/// auto-reset event).
#pragma once

#include "troupe/runtime/detail/coroutine.hpp"

#include <mutex>

namespace troupe {

/// An auto-reset event for one waiter: a second coroutine that awaits it throws InvalidArgument.
/// Destroying the event destroys the coroutine that waits; the caller of that coroutine then sees
/// the end of the actor.
class TROUPE_API AsyncEvent {
 public:
  AsyncEvent() = default;
  AsyncEvent(const AsyncEvent&) = delete;
  AsyncEvent& operator=(const AsyncEvent&) = delete;

  /// Sets the event. The actor's executor resumes the waiting coroutine, after the work that it has
  /// begun. Writes made before set() are visible after the co_await. Call it from any thread; it
  /// never blocks. Does nothing once the process's runtime has ended.
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
    std::shared_ptr<detail::CoroutineRoot> root;  ///< owns the coroutine that waits
    std::coroutine_handle<> handle;
  };
  bool take();
  bool wait(Waiter waiter);

  std::mutex mutex_;
  bool set_ = false;
  std::optional<Waiter> waiter_;
};

/// Calls `told` once, when `ref` has a value or an error, or when no wait for it can end any more.
/// get() then returns or throws without a wait.
/// Blocking: none. `told` runs before this function returns if the ref is ready.
/// Threads: otherwise `told` runs on any thread of the runtime, under its lock. So it must not
/// block, throw or use the runtime; it may put a message into a queue of the caller.
/// Errors: throws Unavailable outside run() and Session, InvalidArgument for an empty Ref.
template <class T>
void notify_when_ready(const Ref<T>& ref, std::function<void()> told) {
  const detail::ObjectHandle& object = detail::Access::handle(ref);
  if (!object) throw InvalidArgument(Code::invalid_argument, "notify_when_ready() of an empty Ref");
  detail::running_engine().notify_when_ready(object, std::move(told));
}

}  // namespace troupe
