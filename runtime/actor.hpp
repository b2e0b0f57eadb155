/// Actor<A>: a handle to an object of class A that lives somewhere in the cluster and does one
/// thing at a time.
///
///     auto counter = ctx.spawn<Counter>(10);
///     counter.tell<&Counter::add>(1);                            // no reply wanted
///     troupe::Ref<int> six = counter.call<&Counter::add>(5);     // starts after the line above
///     troupe::call<&A::m>(actor, x);                             // the same in generic code
///
/// A handle may be copied, passed, stored in values and returned; a default one is empty.
///
/// How an actor ends that is not detached:
///  * When no handle is left anywhere, and no result of its calls, it is told to end. Calls that
///    were made before are run. Those that nobody holds a result of have 2 s until then, or 10 s
///    while one waits for its arguments. A result that is held keeps the actor as a handle does.
///  * Told to end, it runs what it was sent and what it has told itself, then its destructor. What
///    the destructor sends is delivered. 10 s later the process is killed and what it reserved is
///    free.
///  * At the end of its job the driver waits 2 s at most for calls that it has made. Then its
///    handles go, and actors end one after the other, those first that nobody else holds. Actors
///    that hold each other end together. 3 s later all that are left are killed, and the session
///    is over. A driver that throws ends its job in the same way, and so does one that is killed in
///    a cluster that it has joined. The cluster of its own of a killed driver ends at once, and no
///    destructor runs.
///  * kill, the death of its node or of its driver's node, and Ctrl-C, which every process of the
///    program gets, run no destructor. Nor does the end of the cluster, for detached actors.
/// Actors that hold each other keep each other until their job ends: kill one, or let it forget.
/// Until the process of an actor without handles has ended its name is taken: a spawn waits for
/// that, 8 s at most, then it is Unavailable.
#pragma once

#include "troupe/runtime/detail/send.hpp"

namespace troupe {

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

  /// Runs the method on the actor. Result: a Ref to what it returns. Calls of one caller start in
  /// the order in which they were made; one whose Ref argument is not ready holds back the later
  /// ones. Waits for no value and no worker; an argument above 4 KiB waits as submit's. Throws
  /// Overloaded when 1,048,576 calls of this process wait for the actor, InvalidArgument for an
  /// empty handle. At get/co_await: TaskFailed (an exception left the method, a troupe::Error as
  /// its cause), ActorDied, ActorUnavailable (no answer can come from its node, which is not known
  /// to be dead), each with its outcome; runs at most once. Arguments are copied or moved out
  /// before return. Cost: one message; an argument above 4 KiB goes through the object store once.
  template <auto Method, class... Arguments>
  auto call(Arguments&&... arguments) const {
    if constexpr (detail::check_method<A, Method, Arguments&&...>())
      return detail::call_to<detail::MethodTarget<A, Method>>(
          handle(), std::forward<Arguments>(arguments)...);
    else
      return Ref<void>{};
  }
  /// As call, without a reply: a failure is counted and logged, nothing more.
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

/// actor.call<Method>(arguments…), for code where `template` would have to be written.
template <auto Method, class A, class... Arguments>
auto call(const Actor<A>& actor, Arguments&&... arguments) {
  return actor.template call<Method>(std::forward<Arguments>(arguments)...);
}
/// actor.tell<Method>(arguments…).
template <auto Method, class A, class... Arguments>
void tell(const Actor<A>& actor, Arguments&&... arguments) {
  actor.template tell<Method>(std::forward<Arguments>(arguments)...);
}

}  // namespace troupe
