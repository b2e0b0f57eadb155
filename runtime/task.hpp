/// Task<T>: the result of a coroutine function or method. It waits without holding a thread.
///
///     troupe::Task<int> add_when_ready(troupe::Ref<int> k) {
///       int v = co_await k;          // others run meanwhile
///       co_return n += v;
///     }
///
/// `co_await` takes a Ref<T> (gives the T or throws its Error) or another Task<T>. The caller of
/// the function sees a Ref<T>. Arguments, also those taken by reference, live until the coroutine
/// has ended. After every co_await of an actor method say what still holds: other messages may have
/// run.
///
/// Start first, then await: `auto r = actor.call<&A::m>(Hp{1}); co_await r;`. g++ 12 destroys a
/// braced temporary twice when it stands inside a co_await expression.
#pragma once

#include "troupe/runtime/detail/coroutine.hpp"

namespace troupe {

/// Owns a coroutine that has not begun; it begins when it is awaited, or when the runtime runs it.
/// Await it once. Move-only; destroying it destroys the coroutine and what lives in it.
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

  /// Result: the T, or the exception that left the coroutine. The Task must live until then.
  auto operator co_await() const noexcept { return detail::TaskAwaiter<promise_type>(coroutine_); }

 private:
  friend struct detail::Access;
  explicit Task(std::coroutine_handle<promise_type> coroutine) noexcept : coroutine_(coroutine) {}
  std::coroutine_handle<promise_type> coroutine_;
};

/// Waits for the value; throws the Error that the work ended in.
template <class T>
detail::RefAwaiter<T> operator co_await(const Ref<T>& ref) {
  return detail::RefAwaiter<T>(detail::Access::handle(ref));
}

}  // namespace troupe
