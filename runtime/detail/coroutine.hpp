/// The private half of Task<T>: promises, awaiters, and the root that keeps a running coroutine
/// alive.
///
/// Threads. All coroutines of a call run on its executor, one thread at a time, so there is no
/// lock.
///
/// Ownership. A root owns the outermost coroutine, which owns the Tasks that it awaits. The pending
/// resumption owns the root. When the engine stops, it drops its pending resumptions, and the
/// coroutine frames are destroyed with them.
///
/// Resumption. The engine resumes the innermost coroutine. When that ends, final_suspend passes
/// control to its parent by symmetric transfer (the compiler makes a tail call of it), so a chain
/// of awaits needs no stack. CoroutineRoot::resumed() then looks whether the outermost one has
/// ended.
#pragma once

#include "troupe/runtime/detail/encode.hpp"

#include <coroutine>
#include <exception>

namespace troupe::detail {

/// The engine of this process; throws Unavailable outside run() and Session.
TROUPE_API Engine& running_engine();

/// The owner of the outermost coroutine of a call, of its arguments and of its result sink. Running
/// (callable.hpp) derives from it.
class CoroutineRoot : public std::enable_shared_from_this<CoroutineRoot> {
 public:
  CoroutineRoot() = default;
  CoroutineRoot(const CoroutineRoot&) = delete;
  CoroutineRoot& operator=(const CoroutineRoot&) = delete;
  virtual ~CoroutineRoot() = default;
  /// Publishes the result once the outermost coroutine has ended. Called after every resumption.
  virtual void resumed() noexcept = 0;
};

/// Resumes `handle` when the object is ready, or before it returns if that is so already. The
/// pending resumption owns the root.
TROUPE_API void resume_when_ready(const ObjectHandle& object, CoroutineRoot& root,
                                  std::coroutine_handle<> handle);

/// The part of a promise that does not depend on T.
struct PromiseBase {
  CoroutineRoot* root = nullptr;
  std::coroutine_handle<>
      parent;  ///< awaits this one; null while this one runs inside the parent's await_suspend
  std::exception_ptr error;  ///< left the coroutine; take() rethrows it

  std::suspend_always initial_suspend() noexcept { return {}; }
  /// Suspends at the end, so that the frame stays until the Task is destroyed, and resumes the
  /// parent.
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

/// Awaits a Ref without holding a thread. The coroutine that awaits is a troupe::Task.
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
    // A ready object resumes the coroutine inside resume_when_ready. That may end the coroutine and
    // destroy this awaiter, so the handle is copied to the stack.
    const ObjectHandle object = object_;
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

/// Runs a Task inside the coroutine that awaits it. If the Task ends without waiting, await_suspend
/// returns false and the parent goes on at once. `parent` is set only afterwards: a Task that ends
/// inside resume() finds no parent and returns to await_suspend. So a long loop of such awaits does
/// not grow the stack.
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
