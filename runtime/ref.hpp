/// Ref<T>: a handle to a value that exists somewhere in the cluster, or will exist when its work
/// has ended.
///
///     troupe::Ref<double> a = ctx.submit<area>(2.0);     // at once
///     double v = ctx.get(a);                             // blocks; or `co_await a` in a coroutine
///     auto b = ctx.submit<area>(a);                      // the value goes from worker to worker
///
/// Refs may be copied, stored, passed as arguments, returned and put into values. The value lives
/// as long as a Ref to it does, in any process. A Ref that a detached actor holds outlives the
/// program. A Ref may remain after run() or a Session has ended, and may then be destroyed. A later
/// session throws InvalidArgument for it in every verb, except that wait() counts it as ready.
#pragma once

#include "troupe/runtime/engine/engine.hpp"

namespace troupe {

namespace detail {
struct Access;
}  // namespace detail

/// A counted handle to an object of type T. With T = void it stands for the end of the work only. A
/// copy is one atomic increment; thread-safe like shared_ptr. A default Ref is empty and cannot be
/// waited for.
template <class T>
class Ref {
 public:
  using value_type = T;
  Ref() noexcept = default;
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  /// Returns the object's id, which is unique in the cluster for ever.
  ObjectId id() const noexcept { return handle_.id(); }
  /// True if both name the same object.
  friend bool operator==(const Ref& a, const Ref& b) noexcept { return a.handle_ == b.handle_; }

 private:
  friend struct detail::Access;
  detail::ObjectHandle handle_;
};

/// A Ref without its type, for a wait on Refs of several types. as<T>() restores the type.
class AnyRef {
 public:
  AnyRef() noexcept = default;
  template <class T>
  AnyRef(const Ref<T>& ref);
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  ObjectId id() const noexcept { return handle_.id(); }
  /// Returns the Ref with type T, which the caller must know. With a wrong type, get throws
  /// InvalidArgument or returns a wrong value.
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

/// Reads and sets the private members of public types, for the templates in detail/.
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
