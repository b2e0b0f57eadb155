/// submit, submit_split, map and spawn: the same words on Context, ActorContext and what with()
/// returns.
#pragma once

#include "troupe/runtime/actor.hpp"
#include "troupe/runtime/options.hpp"

namespace troupe::detail {

/// What the options before a verb were for.
enum class Purpose { any, tasks, actors };

template <class Self, Purpose purpose>
class Verbs {
 public:
  /// Runs F(arguments…) on some worker. Result: a handle to what it returns; it completes when the
  /// result is sealed. Two submits are not ordered. Waits for no value and no worker; an argument
  /// above 4 KiB waits for room in the object store when that is full, then OutOfMemory or
  /// OutOfDisk. Throws Overloaded when 4,194,304 tasks of this process wait. At get/co_await:
  /// TaskFailed (an exception left F, a troupe::Error as its cause), ObjectLost, TimedOut,
  /// Infeasible. Retried up to max_retries when its worker or node dies, even if it may have run;
  /// late attempts are fenced. Arguments are copied or moved out before return; Ref arguments stay
  /// alive until F has ended. Cost: one message; an argument above 4 KiB goes through the object
  /// store once.
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
  /// The same for a lambda that captures nothing: `submit([](int x) { return x + 1; }, 41)`.
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
  /// For a function that returns a tuple or pair: a Ref to each part, which can then go different
  /// ways.
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
  /// One submit<F>(x) for each x of the range; the Refs in the range's order.
  template <auto F, class Range>
  auto map(Range&& range) const {
    using Result = decltype(submit<F>(*std::begin(range)));
    std::vector<Result> refs;
    if constexpr (requires { range.size(); }) refs.reserve(static_cast<std::size_t>(range.size()));
    for (auto&& element : range) refs.push_back(submit<F>(element));
    return refs;
  }
  /// Makes an actor of class A: A(arguments…), or A{arguments…} for an aggregate. Result: its
  /// handle, at once; with a name it blocks until that is answered, at most 10 s, then Unavailable.
  /// An argument above 4 KiB waits as submit's. The constructor waits for Ref
  /// arguments that are not ready. One that throws, an argument that ends in an error, or a request
  /// that no node can satisfy ends every call on the actor in ActorDied with that as its cause.
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

/// What with() returns: verbs with options. Holds its own copy of them and may be kept and used
/// many times.
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

/// with(): the plain Options win where several fit, so `with({.cpus = 2})` serves every verb.
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
