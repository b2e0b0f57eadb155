/// Context: the operations of a driver or a task on the cluster. ActorContext: those of an actor's
/// method.
///
///     troupe::Ref<double> a = ctx.submit<area>(2.0);
///     auto [ready, pending] = ctx.wait(refs, {.count = 2, .timeout = 5s});
///     for (auto& ref : ctx.as_completed(refs)) use(ctx.get(ref));
///     troupe::Ref<Model> model = ctx.put(Model{…});
///     troupe::Ref<Model> safe = ctx.put(Model{…}, {.replicas = 2});
///     ctx.detach(safe, "weights");                  // stays when this program has ended
///     auto found = ctx.find_object<Model>("weights");  // … for another one
///
/// A function that takes Context& before its arguments gets one. An actor's method gets an
/// ActorContext& in the same way. It has no get and no wait: a method uses co_await instead, so
/// that it holds no thread.
#pragma once

#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/detail/verbs.hpp"
#include "troupe/runtime/view.hpp"

namespace troupe {

/// The timeout without a limit. A timeout too long to be added to the present time counts as
/// forever. Zero and negative timeouts do not wait: they look at the state once.
inline constexpr Duration forever = detail::kNoTimeout;

struct WaitOptions {
  std::size_t count = 1;       ///< refs that must be ready; more than there are means all
  Duration timeout = forever;  ///< 0 and less: looks, and does not wait
};

/// Whether a value that is put outlives the node on which put() is called.
struct PutOptions {
  /// The number of nodes that keep the value, this one included. Default 1: put() sends no message
  /// and does not wait; the value is lost with its node (ObjectLost).
  ///
  /// With 2 and more the value can be read as long as one of the nodes lives. A reader finds a
  /// remaining copy without any action of the program. While the first node lives, a lost copy is
  /// made again on another node. Refs inside the value keep their objects alive, but those objects
  /// are not copied: put them with replicas too.
  /// Blocking: with 2 and more, until all nodes have the value.
  /// Errors: InvalidArgument below 1, or above 1,024. Infeasible if there are fewer nodes.
  /// OutOfMemory, OutOfDisk or Unavailable if other nodes could not take the value; then no copy is
  /// kept.
  /// Cost: for each replica a transfer and the bytes once more.
  int replicas = 1;
  /// The most time to wait for replicas; then Unavailable. 0 and less: no wait. Default 60 s.
  Duration timeout = std::chrono::seconds(60);
};

/// The result of wait(): the ready refs in order of completion, the rest in the order in which they
/// were given.
template <class R>
struct Waited {
  std::vector<R> ready;
  std::vector<R> pending;
};

using NodeInfo = detail::NodeInfo;
using ObjectLocation = detail::ObjectLocation;
struct ClusterInfo {
  std::vector<NodeInfo> nodes;
};

/// An Array<T> in shared memory that is written in place. seal() makes it an object; destruction
/// without seal() frees the memory.
template <class T>
class Builder {
  static_assert(detail::shape_of<T>.bytes,
                "troupe: create<T> is for trivially copyable T (no bool, no pointers)");

 public:
  Builder(Builder&&) noexcept = default;
  Builder& operator=(Builder&&) noexcept = default;
  /// The elements; they hold arbitrary values until written.
  T* data() noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  /// Makes the elements an immutable object and returns a Ref to it. From here on this process must
  /// not write through a pointer from data(); other processes cannot write at all. The Builder is
  /// empty afterwards, also if this throws. Blocks and throws as put() does with the same options.
  Ref<Array<T>> seal(PutOptions options = {}) && { return seal(options); }
  Ref<Array<T>> seal(PutOptions options = {}) & {
    if (!building_) detail::throw_invalid_argument("this Builder was sealed already");
    const detail::Replication how = detail::replication_of(options.replicas, options.timeout);
    data_ = nullptr;
    size_ = 0;
    return detail::Access::make_ref<Ref<Array<T>>>(
        std::exchange(building_, nullptr)->seal({}, how));
  }

 private:
  friend class Context;
  Builder(detail::Engine& engine, std::size_t n, detail::CallSite at) : size_(n) {
    if (n > (std::size_t{1} << 62) / sizeof(T))
      detail::throw_invalid_argument("create: no machine has so much memory");
    detail::Sizer sizer;
    sizer.varint(n);
    sizer.align(detail::run_alignment(n * sizeof(T), alignof(T)));
    building_ = engine.create(sizer.size() + n * sizeof(T), at);
    const std::span<std::byte> bytes = building_->bytes();
    std::vector<detail::ObjectHandle> handles;
    detail::Writer writer(bytes.first(sizer.size()), handles);
    writer.varint(n);
    writer.align(detail::run_alignment(n * sizeof(T), alignof(T)));
    data_ = reinterpret_cast<T*>(bytes.data() + sizer.size());
  }
  std::unique_ptr<detail::Building> building_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A range over refs in the order in which they become ready, for one pass. Each step may block.
template <class R>
class AsCompleted {
 public:
  AsCompleted(detail::Engine& engine, std::vector<R> refs)
      : engine_(&engine), pending_(std::move(refs)) {}
  struct End {};
  class Iterator {
   public:
    explicit Iterator(AsCompleted& range) : range_(&range) {}
    R& operator*() const { return range_->ready_.back(); }
    Iterator& operator++() {
      range_->ready_.pop_back();
      return *this;
    }
    bool operator==(End) const { return !range_->fill(); }

   private:
    AsCompleted* range_;
  };
  Iterator begin() { return Iterator(*this); }
  End end() const noexcept { return {}; }

 private:
  bool fill();
  detail::Engine* engine_;
  std::vector<R> pending_;
  std::vector<R> ready_;  ///< in reverse order of completion, so the next one is the last
};

/// A cheap handle (one pointer) to this process's runtime: copy it freely. May be shared by threads
/// and used from any of them. After run(), or the Session that gave it, its calls throw
/// Unavailable.
class Context : public detail::Verbs<Context, detail::Purpose::any>, public detail::With<Context> {
 public:
  explicit Context(detail::Engine& engine) noexcept : engine_(&engine) {}
  /// Returns the Context of this process. It serves code that has no parameter for one: a library's
  /// function or thread inside a task, an actor or a driver. A task takes a Context& parameter
  /// instead. Never blocks. Throws Unavailable outside run() and Session.
  static Context current() { return Context(detail::running_engine()); }

  // --- objects
  /// Stores a copy of the value as an object. Above 4 KiB it is encoded straight into shared
  /// memory.
  ///
  /// Result: a Ref, which is ready.
  /// Blocking: waits for room while the object store is full, and for replicas (PutOptions).
  /// Errors: OutOfMemory, and those of PutOptions.
  /// Cost: one copy of the value.
  /// `at` is for `troupe memory`, which shows where the program called put(); do not pass it.
  template <class T>
  auto put(const T& value, PutOptions options = {},
           detail::CallSite at = detail::CallSite::here()) const;
  /// Returns memory for n elements in shared memory, which the program writes in place and then
  /// seals. The value is never copied. Waits for room and throws as put() does.
  template <class T>
  Builder<T> create(std::size_t n, detail::CallSite at = detail::CallSite::here()) const {
    return Builder<T>(*engine_, n, at);
  }
  /// Returns a copy of the value, a new one at each call.
  ///
  /// Blocking: until the value is there. A worker returns its CPU to the agent meanwhile. On a
  /// thread that the task has started it does so only while the task's own thread waits too, in a
  /// call of troupe or of the system, such as a join. A timeout of zero does not wait.
  /// Errors: throws the Error in which the work ended, or TimedOut; after TimedOut the work goes
  /// on. For an actor's result it throws ActorUnavailable instead of TimedOut if no message comes
  /// from the actor's node and the node is not known to be dead. The call then goes on when the
  /// node does.
  ///
  /// In place: inside a task, a get without a timeout may run the awaited task on the calling
  /// thread. This happens to a task that this task, or another in its process, has submitted and
  /// that no worker has begun. Therefore hold no lock across get. A crash of the awaited task ends
  /// the caller's process too, and both run again in processes of their own. TaskOptions::isolated
  /// prevents it.
  template <class T>
  T get(const Ref<T>& ref, Duration timeout = forever) const;
  /// Returns all values, in the order of the refs. The timeout is for all together. Errors as
  /// above: the first one in the order of the refs.
  template <class T>
  auto get(const std::vector<Ref<T>>& refs, Duration timeout = forever) const;
  /// Returns a tuple of the values, with std::monostate for a Ref<void>. Waits without a timeout.
  template <class A, class B, class... C>
  auto get(const Ref<A>& a, const Ref<B>& b, const Ref<C>&... c) const;
  /// Waits like get, and returns the value or the error. TimedOut is an error too.
  template <class T>
  Result<T> try_get(const Ref<T>& ref, Duration timeout = forever) const;
  /// Waits like get, then shows the value in place. A vector of trivial elements, a string or an
  /// Array is not copied. The object stays pinned while the View lives.
  template <class T>
  View<T> view(const Ref<T>& ref, Duration timeout = forever) const;

  // --- objects that outlive the program
  /// Gives the value a name in the cluster, and keeps it until forget_object(), also when this
  /// program, its job or control ends. A second call with the same name and value changes nothing.
  /// A value may have several names.
  ///
  /// Refs inside the value keep their objects as well, at any depth. Work that has not ended by
  /// then ends with the program that waits for it. An object that cannot be computed again without
  /// that program becomes ObjectLost. The value is still lost with its node. It outlives the node
  /// if it was put with `replicas` or has a copy in a shared spill folder, as long as one copy
  /// exists. A node that a session started for a join token leaves with the session; its values
  /// survive only by such copies.
  /// Blocking: until the value is there and the name is on control's disk. Other programs find it
  /// from then on.
  /// Errors: throws the error in which the work ended, TimedOut, InvalidArgument (another object
  /// has the name, or the name has not 1 to 256 bytes), Overloaded (65,536 names), or Unavailable
  /// (control does not answer; it may have stored the name nevertheless).
  /// Limits: the bytes count for the job that made the value. A job that has ended has no quota.
  template <class T>
  void detach(const Ref<T>& ref, const std::string& name, Duration timeout = forever) const;
  /// Returns a Ref to the value of that name, or nullopt. The Ref keeps the value alive, also after
  /// the name is forgotten.
  /// Errors: throws InvalidArgument, which names both types, if the value is no T. get throws
  /// ObjectLost if the nodes that had the value are gone; the name is still taken then.
  /// Cost: one question to control.
  template <class T>
  std::optional<Ref<T>> find_object(const std::string& name) const;
  /// Removes the name. The value is freed when the last Ref to it in the cluster is gone. Returns
  /// false if no object had the name. The command `troupe forget NAME` does the same.
  bool forget_object(const std::string& name) const { return engine_->forget_object(name); }
  /// Returns where the values are, one answer for each ref: whether the value is there, its size,
  /// and the nodes that have it. It is for people, and for placing work by hand; the runtime sends
  /// tasks to their large arguments anyway. The answer may be out of date when it arrives. Moves
  /// nothing and waits for no value.
  /// Blocking: until all nodes have answered, 2 s at most; the answer leaves out nodes that have
  /// not.
  /// Cost: one question to each node for every 512 refs.
  template <class R>
  std::vector<ObjectLocation> locations(const std::vector<R>& refs) const;

  // --- waiting
  /// Blocks until `count` of the refs are ready or the timeout has passed. A ref that ended in an
  /// error is ready; its error is not thrown.
  /// Result: exactly min(count, refs.size()) ready refs, or fewer if the timeout has passed.
  /// Cost: linear in the number of refs.
  template <class R>
  Waited<R> wait(std::vector<R> refs, WaitOptions options = {}) const;
  template <class T>
  Waited<Ref<T>> wait(std::initializer_list<Ref<T>> refs, WaitOptions options = {}) const {
    return wait(std::vector<Ref<T>>(refs), options);
  }
  /// Returns a range over the refs in order of completion: `for (auto& ref :
  /// ctx.as_completed(refs))`.
  template <class R>
  AsCompleted<R> as_completed(std::vector<R> refs) const {
    return {*engine_, std::move(refs)};
  }

  // --- actors
  /// Returns the actor of that name, or nullopt if there is none or its class is not A. Cost: one
  /// question to the directory of actors.
  template <class A>
  std::optional<Actor<A>> find(const std::string& name) const;
  /// Ends the actor's process without running its destructor; actor.hpp says how actors end
  /// otherwise. Calls in flight end in ActorDied. With may_restart it counts as a death, after
  /// which the actor may restart. Never blocks: the process ends milliseconds after the message has
  /// reached its node.
  template <class A>
  void kill(const Actor<A>& actor, bool may_restart = false) const {
    if (!actor) detail::throw_empty_handle("this Actor handle is empty");
    engine_->kill(detail::Access::actor(actor), may_restart);
  }

  // --- where am I
  /// Returns the nodes of the cluster as this node knows them now.
  ClusterInfo cluster() const { return {engine_->nodes()}; }
  NodeId node() const { return engine_->node(); }
  /// Returns the GPUs reserved for this task or actor, by their numbers on the node. CUDA sees only
  /// these, numbered from 0.
  std::vector<int> gpu_ids() const { return engine_->gpu_ids(); }

  // --- lines of the job
  /// Passes each line that a task or actor of this job writes to `take`, instead of printing it; an
  /// empty function prints again. For drivers that joined a cluster; a private cluster's workers
  /// write to the program's own output, and `take` gets nothing.
  ///
  /// The lines of one process come in their order, each once. `take` runs on a thread of the
  /// library, one call at a time. A slow one stops no worker; beyond what a node keeps of a job,
  /// lines are left out, and a line says so. What it throws is logged.
  /// Blocking: until an earlier function does not run any more.
  /// Errors: InvalidArgument in a task or actor.
  void on_log(std::function<void(const LogLine&)> take) const { engine_->on_log(std::move(take)); }

 private:
  template <class, detail::Purpose>
  friend class detail::Verbs;
  friend class detail::With<Context>;
  detail::Engine& engine_for_verbs() const noexcept { return *engine_; }
  const detail::Request* request_for_verbs() const noexcept { return nullptr; }
  detail::Engine* engine_;
};

/// The operations of an actor's method that takes ActorContext& first. It lives as long as the
/// method runs, suspensions included.
class ActorContext : public detail::Verbs<ActorContext, detail::Purpose::any>,
                     public detail::With<ActorContext> {
 public:
  explicit ActorContext(detail::Invocation& invocation)
      : engine_(&invocation.engine()),
        actor_(invocation.actor()),
        restarted_(invocation.restarted()) {}

  /// Stores a value as Context::put does.
  template <class T>
  auto put(const T& value, PutOptions options = {},
           detail::CallSite at = detail::CallSite::here()) const {
    return Context(*engine_).put(value, options, at);
  }
  /// Finds an actor by name as Context::find does.
  template <class A>
  std::optional<Actor<A>> find(const std::string& name) const {
    return Context(*engine_).find<A>(name);
  }
  /// Returns a handle to this actor; A must be its class. The actor lives as long as the handle is
  /// kept. Calls that the actor makes to itself run in their order, after this method or while it
  /// awaits. Blocking for the result of such a call throws InvalidArgument: co_await it, or return
  /// the Ref.
  template <class A>
  Actor<A> self() const {
    return detail::Access::make_actor<Actor<A>>(actor_);
  }
  /// Names a value as Context::detach does. The value must be there, else it throws TimedOut:
  /// co_await it first.
  template <class T>
  void detach(const Ref<T>& ref, const std::string& name) const {
    Context(*engine_).detach(ref, name, Duration::zero());
  }
  template <class T>
  std::optional<Ref<T>> find_object(const std::string& name) const {
    return Context(*engine_).find_object<T>(name);
  }
  bool forget_object(const std::string& name) const { return engine_->forget_object(name); }
  /// Returns true in the second and later lives of the actor.
  bool restarted() const noexcept { return restarted_; }
  NodeId node() const { return engine_->node(); }
  std::vector<int> gpu_ids() const { return engine_->gpu_ids(); }

 private:
  template <class, detail::Purpose>
  friend class detail::Verbs;
  friend class detail::With<ActorContext>;
  detail::Engine& engine_for_verbs() const noexcept { return *engine_; }
  const detail::Request* request_for_verbs() const noexcept { return nullptr; }
  detail::Engine* engine_;
  detail::ActorHandle actor_;
  bool restarted_;
};

/// Chooses one of several functions with one name: submit<troupe::overload<int(double)>(f)>(2.0).
template <class Signature>
constexpr Signature* overload(Signature* function) noexcept {
  return function;
}
/// Chooses one of several methods with one name:
/// call<troupe::overload<int(double) const>(&A::m)>(2.0).
template <class Signature, class C>
constexpr auto overload(Signature C::* method) noexcept {
  return method;
}

/// True if submit<F>(Arguments…) compiles; for generic code.
template <auto F, class... Arguments>
inline constexpr bool callable_remotely_with =
    detail::call_ok<detail::Signature<std::remove_const_t<decltype(F)>>,
                    detail::Lead::actor_context, Arguments...>();

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// Returns the handle inside a Ref. Throws InvalidArgument if the Ref is empty.
template <class T>
const ObjectHandle& handle_of(const Ref<T>& ref) {
  if (!ref) throw_empty_handle("this Ref is empty");
  return Access::handle(ref);
}
template <class T>
auto get_or_nothing(Engine& engine, const Ref<T>& ref) {
  const Value value = engine.get(handle_of(ref), kNoTimeout);
  if constexpr (std::is_void_v<T>)
    return std::monostate{};
  else
    return decode_value<T>(value);
}
/// Returns the handles inside refs without a copy: a vector of refs is read as a vector of handles.
/// The static_assert proves the layout: a Ref has a handle as its only member.
template <class R>
std::span<const ObjectHandle> handles_of(const std::vector<R>& refs) {
  static_assert(sizeof(R) == sizeof(ObjectHandle) && std::is_standard_layout_v<R>);
  for (const R& ref : refs)
    if (!ref) throw_empty_handle("a Ref that is waited for is empty");
  return {reinterpret_cast<const ObjectHandle*>(refs.data()), refs.size()};
}
/// Splits refs into those at the indices, in the order of the indices, and the rest, in its old
/// order. Cost: linear.
template <class R>
Waited<R> split_off(std::vector<R> refs, const std::vector<std::size_t>& indices) {
  Waited<R> waited;
  waited.ready.reserve(indices.size());
  for (const std::size_t i : indices) waited.ready.push_back(std::move(refs[i]));
  std::erase_if(refs, [](const R& ref) { return !ref; });  // what was moved out is empty
  waited.pending = std::move(refs);
  return waited;
}
}  // namespace detail

template <class R>
bool AsCompleted<R>::fill() {
  if (!ready_.empty()) return true;
  if (pending_.empty()) return false;
  const std::span<const detail::ObjectHandle> handles = detail::handles_of(pending_);
  static_cast<void>(engine_->wait(handles, 1, detail::kNoTimeout));
  // One pass takes out all refs that are ready by now, so that n refs do not cost n passes.
  std::size_t ready = 0;
  for (const detail::ObjectHandle& handle : handles) ready += engine_->is_ready(handle) ? 1 : 0;
  const std::vector<std::size_t> order = engine_->wait(handles, ready, Duration::zero());
  Waited<R> waited = detail::split_off(std::move(pending_), order);
  pending_ = std::move(waited.pending);
  ready_.assign(std::make_move_iterator(waited.ready.rbegin()),
                std::make_move_iterator(waited.ready.rend()));
  return true;
}

template <class T>
auto Context::put(const T& value, PutOptions options, detail::CallSite at) const {
  using Stored = detail::carried<const T&>;
  const detail::Replication how = detail::replication_of(options.replicas, options.timeout);
  if constexpr (!detail::MustCross<Stored>::value) {
    return Ref<Stored>{};
  } else if constexpr (std::is_same_v<Stored, T>) {
    return detail::put_value<T>(*engine_, value, how, at);
  } else if constexpr (std::is_constructible_v<Stored, const T&>) {
    return detail::put_value<Stored>(*engine_, Stored(value), how, at);
  } else {
    return detail::put_value<Stored>(*engine_, Stored(std::begin(value), std::end(value)), how, at);
  }
}

template <class T>
T Context::get(const Ref<T>& ref, Duration timeout) const {
  const detail::Value value = engine_->get(detail::handle_of(ref), timeout);
  if constexpr (!std::is_void_v<T>) return detail::decode_value<T>(value);
}

template <class T>
auto Context::get(const std::vector<Ref<T>>& refs, Duration timeout) const {
  const Time end = deadline_after(steady_now(), timeout);
  if constexpr (std::is_void_v<T>) {
    for (const Ref<T>& ref : refs) get(ref, time_left(end, steady_now()));
  } else {
    std::vector<T> values;
    values.reserve(refs.size());
    for (const Ref<T>& ref : refs) values.push_back(get(ref, time_left(end, steady_now())));
    return values;
  }
}

template <class A, class B, class... C>
auto Context::get(const Ref<A>& a, const Ref<B>& b, const Ref<C>&... c) const {
  return std::tuple{detail::get_or_nothing(*engine_, a), detail::get_or_nothing(*engine_, b),
                    detail::get_or_nothing(*engine_, c)...};
}

template <class T>
Result<T> Context::try_get(const Ref<T>& ref, Duration timeout) const {
  Result<detail::Value> value = engine_->try_get(detail::handle_of(ref), timeout);
  if (!value) return value.error();
  if constexpr (std::is_void_v<T>)
    return {};
  else
    return detail::decode_value<T>(*value);
}

template <class T>
View<T> Context::view(const Ref<T>& ref, Duration timeout) const {
  static_assert(!std::is_void_v<T>, "troupe: a Ref<void> has nothing to view: get it");
  return View<T>(engine_->get(detail::handle_of(ref), timeout));
}

template <class R>
Waited<R> Context::wait(std::vector<R> refs, WaitOptions options) const {
  static_assert(detail::is_ref<R> || std::is_same_v<R, AnyRef>,
                "troupe: wait takes a vector of Ref<T> or of troupe::AnyRef");
  const std::size_t count = options.count < refs.size() ? options.count : refs.size();
  std::vector<std::size_t> ready;
  if (count != 0) ready = engine_->wait(detail::handles_of(refs), count, options.timeout);
  return detail::split_off(std::move(refs), ready);
}

template <class T>
void Context::detach(const Ref<T>& ref, const std::string& name, Duration timeout) const {
  static_assert(!std::is_void_v<T>, "troupe: a Ref<void> has no value that could have a name");
  engine_->detach(detail::handle_of(ref), name, detail::shape_of<T>.hash, detail::type_name<T>(),
                  timeout);
}

template <class T>
std::optional<Ref<T>> Context::find_object(const std::string& name) const {
  static_assert(detail::MustCross<T>::value && !std::is_void_v<T>);
  detail::ObjectHandle found =
      engine_->find_object(name, detail::shape_of<T>.hash, detail::type_name<T>());
  if (!found) return std::nullopt;
  return detail::Access::make_ref<Ref<T>>(std::move(found));
}

template <class R>
std::vector<ObjectLocation> Context::locations(const std::vector<R>& refs) const {
  static_assert(detail::is_ref<R> || std::is_same_v<R, AnyRef>,
                "troupe: locations takes a vector of Ref<T> or of troupe::AnyRef");
  return engine_->locations(detail::handles_of(refs));
}

template <class A>
std::optional<Actor<A>> Context::find(const std::string& name) const {
  std::optional<detail::ActorHandle> handle = engine_->find(name, detail::class_name<A>());
  if (!handle) return std::nullopt;
  return detail::Access::make_actor<Actor<A>>(std::move(*handle));
}

}  // namespace troupe
