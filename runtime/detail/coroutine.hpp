/// What is below Task<T>: promises, awaiters, and the root that keeps a running coroutine alive.
///
/// Everything runs on one executor thread at a time, so there is no lock. A coroutine is owned by
/// its root, and the root by whatever will resume it: when the engine stops and drops its pending
/// resumptions, the frames go with them.
#pragma once

#include "troupe/runtime/detail/encode.hpp"

#include <coroutine>
#include <exception>

namespace troupe::detail {

/// The engine of this process; throws Unavailable outside run() and Session.
TROUPE_API Engine& running_engine();

/// The outermost coroutine of a call with its arguments and its result sink.
class CoroutineRoot : public std::enable_shared_from_this<CoroutineRoot> {
 public:
  CoroutineRoot() = default;
  CoroutineRoot(const CoroutineRoot&) = delete;
  CoroutineRoot& operator=(const CoroutineRoot&) = delete;
  virtual ~CoroutineRoot() = default;
  /// Called after every resumption: publishes the result once there is one.
  virtual void resumed() noexcept = 0;
};

/// Resumes `handle` when the object is ready; the pending resumption owns the root.
TROUPE_API void resume_when_ready(const ObjectHandle& object, CoroutineRoot& root,
                                  std::coroutine_handle<> handle);

struct PromiseBase {
  CoroutineRoot* root = nullptr;
  std::coroutine_handle<>
      parent;  ///< waits for this one; null while it runs inside the parent's await
  std::exception_ptr error;

  std::suspend_always initial_suspend() noexcept { return {}; }
  struct Final {
    bool await_ready() noexcept { return false; }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> self) noexcept {
      const std::coroutine_handle<> next = self.promise().parent;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  Final final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { error = std::current_exception(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  template <class U = T>
  void return_value(U&& result) {
    static_assert(std::is_convertible_v<U&&, T>,
                  "troupe: co_return of something that is no T of this Task<T>");
    value.emplace(static_cast<U&&>(result));
  }
  T take() {
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
};
template <>
struct Promise<void> : PromiseBase {
  void return_void() noexcept {}
  void take() {
    if (error) std::rethrow_exception(error);
  }
};

/// Waits for a Ref without holding a thread.
template <class T>
class RefAwaiter {
 public:
  explicit RefAwaiter(const ObjectHandle& object) : object_(object) {
    if (!object_) throw_empty_handle("co_await of an empty Ref");
  }
  bool await_ready() const { return running_engine().is_ready(object_); }
  template <class P>
  void await_suspend(std::coroutine_handle<P> self) {
    static_assert(std::is_base_of_v<PromiseBase, P>,
                  "troupe: a Ref can be awaited in a troupe::Task only");
    const ObjectHandle object = object_;  // this awaiter may be gone before the next line returns
    resume_when_ready(object, *self.promise().root, self);
  }
  T await_resume() {
    const Result<Value> value = running_engine().peek(object_);
    if (!value) raise(value.error());
    if constexpr (!std::is_void_v<T>) return decode_value<T>(*value);
  }

 private:
  ObjectHandle object_;
};

/// Runs a Task inside the awaiting one. A Task that ends without waiting never suspends its parent,
/// so that a long loop of such awaits needs no stack.
template <class P>
class TaskAwaiter {
 public:
  explicit TaskAwaiter(std::coroutine_handle<P> task) noexcept : task_(task) {}
  bool await_ready() const noexcept { return task_.done(); }
  template <class Q>
  bool await_suspend(std::coroutine_handle<Q> parent) {
    static_assert(std::is_base_of_v<PromiseBase, Q>,
                  "troupe: a Task can be awaited in another troupe::Task only");
    task_.promise().root = parent.promise().root;
    task_.resume();
    if (task_.done()) return false;
    task_.promise().parent = parent;
    return true;
  }
  decltype(auto) await_resume() { return task_.promise().take(); }

 private:
  std::coroutine_handle<P> task_;
};

}  // namespace troupe::detail
