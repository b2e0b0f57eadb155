/// Actor<A>: a handle to an object of class A that lives in a process of its own, somewhere in the
/// cluster, and runs one call at a time.
///
///     auto counter = ctx.spawn<Counter>(10);
///     counter.tell<&Counter::add>(1);                            // no reply wanted
///     troupe::Ref<int> six = counter.call<&Counter::add>(5);     // starts after the line above
///     troupe::call<&A::m>(actor, x);                             // the same in generic code
///
/// A handle may be copied, passed, stored in values and returned; a default one is empty.
///
/// How an actor ends that is not detached:
///  * Without holders. When no process holds a handle to it or a result of its calls, the runtime
///    tells it to end. Calls made before still run. Calls whose results no process holds have 2 s
///    until then, or 10 s while one of them waits for its arguments. A held result keeps the actor
///    alive as a handle does.
///  * Told to end, it runs the calls that it was sent and those that it told itself, then its
///    destructor. Messages that the destructor sends are delivered. Exit handlers and destructors
///    of static objects follow, for 2 s at most (session.hpp). After 10 s its process is killed,
///    and the resources that it reserved are free.
///  * With its job. The driver waits at most 2 s for calls that it has made. Then its handles go,
///    and actors end one after the other, first those that no other process holds. Actors that hold
///    each other end together. After 3 s all that are left are killed, and the session is over. A
///    driver that throws ends its job in the same way. So does a driver that is killed in a cluster
///    that it has joined. If a killed driver had a private cluster, that cluster ends at once, and
///    no destructor runs.
///  * No destructor runs after kill, after the death of its node or of its driver's node, and after
///    Ctrl-C, which reaches every process of the program. For a detached actor none runs at the end
///    of the cluster.
/// Actors that hold handles to each other keep each other alive until their job ends. To end them
/// earlier, kill one, or let it drop its handle.
/// The name of an actor without handles stays taken until its process has ended. A spawn with that
/// name waits at most 8 s, then throws Unavailable.
#pragma once

#include "troupe/runtime/detail/send.hpp"

namespace troupe {

/// A counted handle. It may be copied, passed, stored and used by any thread.
template <class A>
class Actor {
 public:
  using actor_type = A;
  Actor() noexcept = default;
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  ActorId id() const noexcept { return handle_.id; }
  friend bool operator==(const Actor& a, const Actor& b) noexcept {
    return a.handle_.id == b.handle_.id;
  }

  /// Runs the method on the actor, at most once.
  ///
  /// Result: a Ref to the value that the method returns, at once.
  /// Blocking: waits for no value and no worker. An argument above 4 KiB waits as submit's does.
  /// Order: the calls of one caller start in the order in which they were made. A call whose Ref
  /// argument is not ready holds back the later ones.
  /// Errors: throws Overloaded when 1,048,576 calls of this process to the actor have not ended,
  /// InvalidArgument for an empty handle. get and co_await throw TaskFailed (an exception left the
  /// method; a troupe::Error is its cause), ActorDied, or ActorUnavailable (no answer can come from
  /// its node, which is not known to be dead). Each has an outcome().
  /// Ownership: arguments are copied or moved out before call returns.
  /// Cost: one message. An argument above 4 KiB goes through the object store once.
  template <auto Method, class... Arguments>
  auto call(Arguments&&... arguments) const {
    if constexpr (detail::check_method<A, Method, Arguments&&...>())
      return detail::call_to<detail::MethodTarget<A, Method>>(
          handle(), std::forward<Arguments>(arguments)...);
    else
      return Ref<void>{};
  }
  /// Runs the method like call, but without a reply. A failure is counted and logged, nothing more.
  template <auto Method, class... Arguments>
  void tell(Arguments&&... arguments) const {
    if constexpr (detail::check_method<A, Method, Arguments&&...>())
      detail::tell_to<detail::MethodTarget<A, Method>>(handle(),
                                                       std::forward<Arguments>(arguments)...);
  }

 private:
  friend struct detail::Access;
  const detail::ActorHandle& handle() const {
    if (!handle_) detail::throw_empty_handle("this Actor handle is empty");
    return handle_;
  }
  detail::ActorHandle handle_;
};

/// Returns actor.call<Method>(arguments…), for generic code, where the keyword `template` would be
/// needed.
template <auto Method, class A, class... Arguments>
auto call(const Actor<A>& actor, Arguments&&... arguments) {
  return actor.template call<Method>(std::forward<Arguments>(arguments)...);
}
/// Does actor.tell<Method>(arguments…), for generic code.
template <auto Method, class A, class... Arguments>
void tell(const Actor<A>& actor, Arguments&&... arguments) {
  actor.template tell<Method>(std::forward<Arguments>(arguments)...);
}

}  // namespace troupe
