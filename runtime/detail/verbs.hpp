/// submit, submit_split, map and spawn: the same verbs on Context, on ActorContext and on the
/// object that with() returns. The classes inherit them by CRTP (a base class template that gets
/// the derived class as argument).
#pragma once

#include "troupe/runtime/actor.hpp"
#include "troupe/runtime/options.hpp"

namespace troupe::detail {

/// The verbs that the options given to with() are for: any verb, those of tasks, or those of
/// actors.
enum class Purpose { any, tasks, actors };

/// Self has engine_for_verbs() and request_for_verbs(); the latter returns null without options.
template <class Self, Purpose purpose>
class Verbs {
 public:
  /// Runs F(arguments…) on some worker.
  ///
  /// Result: a Ref to the value that F returns, at once. It is ready when F has ended and its
  /// result is stored.
  /// Blocking: waits for no value and no worker. An argument above 4 KiB waits for room while the
  /// object store is full, then throws OutOfMemory or OutOfDisk.
  /// Order: none between two submits.
  /// Errors: throws Overloaded when 4,194,304 tasks of this process wait. get and co_await throw
  /// TaskFailed (an exception left F; a troupe::Error is its cause), ObjectLost, TimedOut or
  /// Infeasible.
  /// Retries: up to max_retries when the worker or node dies, even if F may have run. The results
  /// of an attempt that another one has replaced are refused.
  /// Ownership: arguments are copied or moved out before submit returns. The objects of Ref
  /// arguments live until F has ended.
  /// Cost: one message. An argument above 4 KiB goes through the object store once.
  template <auto F, class... Arguments>
  auto submit(Arguments&&... arguments) const {
    static_assert(
        purpose != Purpose::actors,
        "troupe: these options are for actors (max_restarts, detached, ...): for tasks say "
        "max_retries");
    if constexpr (purpose == Purpose::actors)
      return Ref<void>{};
    else if constexpr (check_function<F, Arguments&&...>())
      return submit_to<target_of<F>>(engine(), request(), std::forward<Arguments>(arguments)...);
    else
      return Ref<void>{};
  }
  /// Runs a lambda that captures nothing, like submit<F>:
  /// `submit([](int x) { return x + 1; }, 41)`.
  template <class L, class... Arguments>
  auto submit(L&& lambda, Arguments&&... arguments) const {
    static_cast<void>(lambda);
    static_assert(
        purpose != Purpose::actors,
        "troupe: these options are for actors (max_restarts, detached, ...): for tasks say "
        "max_retries");
    if constexpr (purpose == Purpose::actors)
      return Ref<void>{};
    else if constexpr (check_lambda<std::decay_t<L>, Arguments&&...>())
      return submit_to<LambdaTarget<std::decay_t<L>>>(engine(), request(),
                                                      std::forward<Arguments>(arguments)...);
    else
      return Ref<void>{};
  }
  /// Runs F(arguments…), like submit, where F returns a tuple or pair. Result: a tuple with one Ref
  /// for each part, so that the parts can be passed to different tasks.
  template <auto F, class... Arguments>
  auto submit_split(Arguments&&... arguments) const {
    static_assert(
        purpose != Purpose::actors,
        "troupe: these options are for actors (max_restarts, detached, ...): for tasks say "
        "max_retries");
    if constexpr (purpose == Purpose::actors) {
      return std::tuple<>{};
    } else if constexpr (check_function<F, Arguments&&...>()) {
      constexpr bool splits = SplitResult<value_of<target_of<F>>>::valid;
      static_assert(
          splits, "troupe: submit_split is for a function that returns a std::tuple or std::pair");
      if constexpr (splits)
        return split_to<target_of<F>>(engine(), request(), std::forward<Arguments>(arguments)...);
      else
        return std::tuple<>{};
    } else {
      return std::tuple<>{};
    }
  }
  /// Calls submit<F>(x) for each x of the range. Result: the Refs, in the range's order.
  template <auto F, class Range>
  auto map(Range&& range) const {
    using Result = decltype(submit<F>(*std::begin(range)));
    std::vector<Result> refs;
    if constexpr (requires { range.size(); }) refs.reserve(static_cast<std::size_t>(range.size()));
    for (auto&& element : range) refs.push_back(submit<F>(element));
    return refs;
  }
  /// Creates an actor of class A in a process of its own: A(arguments…), or A{arguments…} for an
  /// aggregate.
  ///
  /// Result: its handle, at once. Calls may be made before the actor exists.
  /// Blocking: with a name, until the directory of actors has answered, at most 10 s, then
  /// Unavailable. An argument above 4 KiB waits as submit's does. The constructor, not spawn, waits
  /// for Ref arguments that are not ready.
  /// Errors: every call on the actor ends in ActorDied if the constructor throws, if an argument
  /// ends in an error, or if no node can satisfy the options. That error is the cause in ActorDied.
  template <class A, class... Arguments>
  Actor<A> spawn(Arguments&&... arguments) const {
    static_assert(
        purpose != Purpose::tasks,
        "troupe: these options are for tasks (max_retries, retry_on): for actors say max_restarts");
    if constexpr (purpose == Purpose::tasks)
      return {};
    else if constexpr (check_spawn<A, Arguments&&...>())
      return spawn_to<A>(engine(), request(), std::forward<Arguments>(arguments)...);
    else
      return {};
  }

 private:
  Engine& engine() const { return static_cast<const Self&>(*this).engine_for_verbs(); }
  const Request* request() const { return static_cast<const Self&>(*this).request_for_verbs(); }
};

/// The verbs with options: the object that with() returns. It holds a copy of the options, and may
/// be kept and used many times.
template <Purpose purpose>
class Bound : public Verbs<Bound<purpose>, purpose> {
 public:
  Bound(Engine& engine, Request request) : engine_(&engine), request_(std::move(request)) {}

 private:
  friend class Verbs<Bound, purpose>;
  Engine& engine_for_verbs() const noexcept { return *engine_; }
  const Request* request_for_verbs() const noexcept { return &request_; }
  Engine* engine_;
  Request request_;
};

/// with(): returns the verbs with options. An argument such as `{.cpus = 2}` fits all three
/// overloads. The plain Options win, since overload resolution prefers a function over a template,
/// so such options serve every verb.
template <class Self>
class With {
 public:
  Bound<Purpose::any> with(const Options& options) const { return {engine(), request_of(options)}; }
  template <int = 0>
  Bound<Purpose::tasks> with(const TaskOptions& options) const {
    return {engine(), request_of(options)};
  }
  template <int = 0>
  Bound<Purpose::actors> with(const ActorOptions& options) const {
    return {engine(), request_of(options)};
  }

 private:
  Engine& engine() const { return static_cast<const Self&>(*this).engine_for_verbs(); }
};

}  // namespace troupe::detail
