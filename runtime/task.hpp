/// Task<T>: the return type of a coroutine function or method, which waits without holding a
/// thread.
///
///     troupe::Task<int> add_when_ready(troupe::Ref<int> k) {
///       int v = co_await k;          // others run meanwhile
///       co_return n += v;
///     }
///
/// `co_await` takes a Ref<T>, and returns the T or throws its Error, or takes another Task<T>. The
/// remote caller of the function gets a Ref<T>. Arguments, also those taken by reference, live
/// until the coroutine has ended. Other calls of an actor may run during a co_await: after each
/// one, check what the method assumed about the actor's state. While all runs of a process wait,
/// its resources are free for others, as during Context::get.
///
/// Start first, then await: `auto r = actor.call<&A::m>(Hp{1}); co_await r;`. g++ 12 destroys a
/// braced temporary twice when it stands inside a co_await expression.
#pragma once

#include "troupe/runtime/detail/coroutine.hpp"

namespace troupe {

/// Owns a coroutine, which begins when it is awaited or when the runtime runs it. Await it once.
/// Move-only. Its destructor destroys the coroutine and the objects that live in it.
template <class T>
class [[nodiscard]] Task {
 public:
  using value_type = T;
  struct promise_type : detail::Promise<T> {
    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
  };

  Task(Task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  ~Task() {
    if (coroutine_) coroutine_.destroy();
  }

  /// Runs the coroutine and returns its T, or throws the exception that left it. The Task must live
  /// until then.
  auto operator co_await() const noexcept { return detail::TaskAwaiter<promise_type>(coroutine_); }

 private:
  friend struct detail::Access;
  explicit Task(std::coroutine_handle<promise_type> coroutine) noexcept : coroutine_(coroutine) {}
  std::coroutine_handle<promise_type> coroutine_;
};

/// Waits for the value without holding a thread, and returns it. Throws the Error in which the work
/// ended.
template <class T>
detail::RefAwaiter<T> operator co_await(const Ref<T>& ref) {
  return detail::RefAwaiter<T>(detail::Access::handle(ref));
}

}  // namespace troupe
