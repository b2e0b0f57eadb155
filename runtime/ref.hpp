/// Ref<T>: a handle to a value that exists somewhere in the cluster, or will.
///
///     troupe::Ref<double> a = ctx.submit<area>(2.0);     // at once
///     double v = ctx.get(a);                             // blocks; or `co_await a` in a coroutine
///     auto b = ctx.submit<area>(a);                      // the value goes from worker to worker
///
/// Refs may be copied, stored, passed as arguments, returned and put into values; the value lives
/// as long as some Ref to it does, in whatever process; a detached actor's outlives the program. A
/// Ref that is left when run() or a Session ends may be dropped; each verb of the next one refuses
/// it (InvalidArgument), and wait() takes it for ready.
#pragma once

#include "troupe/runtime/engine/engine.hpp"

namespace troupe {

namespace detail {
struct Access;
}  // namespace detail

/// A counted handle to an object of type T; T may be void (nothing but the end of the work).
/// Copying is one atomic increment; thread-safe like shared_ptr. A default Ref names nothing and
/// cannot be waited for.
template <class T>
class Ref {
 public:
  using value_type = T;
  Ref() noexcept = default;
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  /// The object's id; unique in the cluster for ever.
  ObjectId id() const noexcept { return handle_.id(); }
  /// Same object.
  friend bool operator==(const Ref& a, const Ref& b) noexcept { return a.handle_ == b.handle_; }

 private:
  friend struct detail::Access;
  detail::ObjectHandle handle_;
};

/// A Ref of any type, for waiting on mixed ones. The type comes back by as<T>().
class AnyRef {
 public:
  AnyRef() noexcept = default;
  template <class T>
  AnyRef(const Ref<T>& ref);
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  ObjectId id() const noexcept { return handle_.id(); }
  /// The caller knows the type: a wrong one ends in InvalidArgument, or in nonsense, at get.
  template <class T>
  Ref<T> as() const;
  friend bool operator==(const AnyRef& a, const AnyRef& b) noexcept {
    return a.handle_ == b.handle_;
  }

 private:
  friend struct detail::Access;
  detail::ObjectHandle handle_;
};

namespace detail {

/// Reaches the handles inside public types.
struct Access {
  template <class R>
  static const ObjectHandle& handle(const R& ref) noexcept {
    return ref.handle_;
  }
  template <class R>
  static R make_ref(ObjectHandle handle) noexcept {
    R ref;
    ref.handle_ = std::move(handle);
    return ref;
  }
  template <class A>
  static const ActorHandle& actor(const A& actor) noexcept {
    return actor.handle_;
  }
  template <class A>
  static A make_actor(ActorHandle handle) noexcept {
    A actor;
    actor.handle_ = std::move(handle);
    return actor;
  }
  template <class T>
  static auto coroutine(const T& task) noexcept {
    return task.coroutine_;
  }
  template <class A>
  static A make_array(std::shared_ptr<const void> keep, const typename A::value_type* data,
                      std::size_t size) noexcept {
    A array;
    array.keep_ = std::move(keep);
    array.data_ = data;
    array.size_ = size;
    return array;
  }
};

}  // namespace detail

template <class T>
AnyRef::AnyRef(const Ref<T>& ref) : handle_(detail::Access::handle(ref)) {}
template <class T>
Ref<T> AnyRef::as() const {
  return detail::Access::make_ref<Ref<T>>(handle_);
}

}  // namespace troupe
