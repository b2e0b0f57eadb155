/// Context: what a driver or a task does with the cluster. ActorContext: what an actor method does.
///
///     troupe::Ref<double> a = ctx.submit<area>(2.0);
///     auto [ready, pending] = ctx.wait(refs, {.count = 2, .timeout = 5s});
///     for (auto& ref : ctx.as_completed(refs)) use(ctx.get(ref));
///     troupe::Ref<Model> model = ctx.put(Model{…});
///     troupe::Ref<Model> safe = ctx.put(Model{…}, {.replicas = 2});
///     ctx.detach(safe, "weights");                  // stays when this program has ended
///     auto found = ctx.find_object<Model>("weights");  // … for another one
///
/// A function gets a Context by taking Context& before its arguments, an actor method an
/// ActorContext& (it has no get and no wait: methods co_await, so that they hold no thread).
#pragma once

#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/detail/verbs.hpp"
#include "troupe/runtime/view.hpp"

namespace troupe {

/// As long as it takes. So is every timeout that is too long to be counted from now; zero and
/// negative ones only look.
inline constexpr Duration forever = detail::kNoTimeout;

struct WaitOptions {
  std::size_t count = 1;       ///< how many must be ready; more than there are means all
  Duration timeout = forever;  ///< 0 and less only look
};

/// How a value that is put outlives the node where that is done.
struct PutOptions {
  /// On so many nodes, that one among them. With 2 and more the call blocks until all of them have
  /// it; the value is there as long as one of them lives, and whoever misses it finds it by itself.
  /// A lost copy is made again elsewhere while the first node lives, not later. Refs inside keep
  /// what they name, which is not copied: put that so, too. Infeasible if there are fewer nodes,
  /// InvalidArgument below 1, and what the others said (OutOfMemory, OutOfDisk) or Unavailable when
  /// they could not take it; nothing is kept then. Costs a transfer and the bytes once more for
  /// each. Default 1: no message and no wait, and the value goes with its node (ObjectLost).
  int replicas = 1;
  /// How long that may take, then Unavailable; 0 and less: not at all. Default 60 s.
  Duration timeout = std::chrono::seconds(60);
};

/// What wait() found: the ready ones in order of completion, the rest in the order in which they
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

/// An Array<T> that is being written in place; seal it, or drop it to give the memory back.
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
  /// Ends the writing: no other process could ever alter the elements, and who kept data() must not
  /// any more. The Builder is of no use from here on, also if this throws. Options as for put().
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

/// Goes through refs as they become ready; each step may block. A single pass.
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
  std::vector<R> ready_;  ///< the next one last
};

/// A cheap handle (one pointer) to this process's runtime: copy it freely. May be shared by threads
/// and used from any of them; it must not outlive run() or the Session that gave it.
class Context : public detail::Verbs<Context, detail::Purpose::any>, public detail::With<Context> {
 public:
  explicit Context(detail::Engine& engine) noexcept : engine_(&engine) {}
  /// This process's, for code that nobody gave one: a library's function or thread inside a task,
  /// an actor or a driver. A task asks for a Context& parameter instead. Throws Unavailable outside
  /// run() and Session. Never blocks.
  static Context current() { return Context(detail::running_engine()); }

  // --- objects
  /// Stores a copy of the value. Copied once, straight into shared memory above 4 KiB. Throws
  /// OutOfMemory. With replicas at other nodes it blocks until they are there: see PutOptions.
  /// Where it was called stands in `troupe memory`; leave `at` alone.
  template <class T>
  auto put(const T& value, PutOptions options = {},
           detail::CallSite at = detail::CallSite::here()) const;
  /// Room for n elements in shared memory, written in place and then sealed: no copy at all.
  template <class T>
  Builder<T> create(std::size_t n, detail::CallSite at = detail::CallSite::here()) const {
    return Builder<T>(*engine_, n, at);
  }
  /// Blocks until the value is there; a worker gives its CPU back meanwhile. Result: a copy of its
  /// own, each time. Throws the Error that the work ended in, or TimedOut (the work goes on).
  /// Instead of TimedOut, when a call waits for an actor whose node says nothing and is not known
  /// to be dead: ActorUnavailable (the call goes on when the node does). A timeout of zero only
  /// looks.
  /// Inside a task, a get without a timeout may run the awaited task on the calling thread: one
  /// that this task, or another in its process, has submitted and nobody has begun. Hold no lock
  /// across get. A crash of the awaited task takes the caller along, and both run again in
  /// processes of their own. TaskOptions::isolated opts out.
  template <class T>
  T get(const Ref<T>& ref, Duration timeout = forever) const;
  /// All of them, in order; the timeout is for the whole.
  template <class T>
  auto get(const std::vector<Ref<T>>& refs, Duration timeout = forever) const;
  /// A tuple of the values; std::monostate for a Ref<void>.
  template <class A, class B, class... C>
  auto get(const Ref<A>& a, const Ref<B>& b, const Ref<C>&... c) const;
  /// As get, with the error as a value; TimedOut is one too.
  template <class T>
  Result<T> try_get(const Ref<T>& ref, Duration timeout = forever) const;
  /// Blocks as get does, then shows the value in place: no copy of a vector of trivial elements, a
  /// string or an Array.
  template <class T>
  View<T> view(const Ref<T>& ref, Duration timeout = forever) const;

  // --- objects that outlive the program
  /// Gives the value a name in the cluster and keeps it under that name until forget_object(),
  /// whoever ends: this program, its job, control. What it names by refs inside stays with it,
  /// however deep; work that has not ended ends with the program that waits for it, and what cannot
  /// be computed again without that program is ObjectLost. Blocks until the value is there and the
  /// name is on control's disk; other programs find it from then on. The value goes with its node
  /// all the same: put it with `replicas`, or use a shared spill folder, and it stays as long as
  /// one copy does. Of a node that a session brought along (a join token) and takes away again it
  /// is not kept in any other way. Throws the error that the work ended in, TimedOut,
  /// InvalidArgument (another object has the name; a name has 1 to 256 bytes), Overloaded (65,536
  /// names), Unavailable (control does not answer; then it may have the name nevertheless). Doing
  /// it twice is doing it once; a value may have several names. Its bytes count for the job that
  /// made it, which has no quota any more when it has ended.
  template <class T>
  void detach(const Ref<T>& ref, const std::string& name, Duration timeout = forever) const;
  /// The value of that name, if there is one; the Ref keeps it also when the name is let go of.
  /// Asks control once. Throws InvalidArgument when it is no T (both types are named). At get:
  /// ObjectLost when the nodes that had it are gone; then the name is still taken.
  template <class T>
  std::optional<Ref<T>> find_object(const std::string& name) const;
  /// Lets go of the name; the value is freed when the last Ref to it goes, anywhere. False: there
  /// was none. The command `troupe forget NAME` does the same.
  bool forget_object(const std::string& name) const { return engine_->forget_object(name); }
  /// Where the values are now, one answer for each ref: whether it is there, its size, the nodes
  /// that have it. Moves nothing and waits for no value; it is as of a moment ago when it comes.
  /// Asks each node once for 512 refs, and leaves out who does not answer within 2 s. For people
  /// and for placing work by hand; tasks go to their large arguments by themselves.
  template <class R>
  std::vector<ObjectLocation> locations(const std::vector<R>& refs) const;

  // --- waiting
  /// Blocks until `count` of the refs are ready or the timeout has passed; never throws their
  /// errors, a failed one is ready. Result: exactly min(count, refs.size()) ready ones unless the
  /// timeout passed. Linear in the number of refs.
  template <class R>
  Waited<R> wait(std::vector<R> refs, WaitOptions options = {}) const;
  template <class T>
  Waited<Ref<T>> wait(std::initializer_list<Ref<T>> refs, WaitOptions options = {}) const {
    return wait(std::vector<Ref<T>>(refs), options);
  }
  /// A range over the refs in order of completion: `for (auto& ref : ctx.as_completed(refs))`.
  template <class R>
  AsCompleted<R> as_completed(std::vector<R> refs) const {
    return {*engine_, std::move(refs)};
  }

  // --- actors
  /// The actor of that name, if there is one and it is an A. Asks control once.
  template <class A>
  std::optional<Actor<A>> find(const std::string& name) const;
  /// Ends the actor now; calls in flight end in ActorDied, and no destructor runs (actor.hpp says
  /// how actors end otherwise). With may_restart it counts as a death like any other. Returns at
  /// once; the process ends within milliseconds of the word's arrival.
  template <class A>
  void kill(const Actor<A>& actor, bool may_restart = false) const {
    if (!actor) detail::throw_empty_handle("this Actor handle is empty");
    engine_->kill(detail::Access::actor(actor), may_restart);
  }

  // --- where am I
  /// The nodes as this one sees them now.
  ClusterInfo cluster() const { return {engine_->nodes()}; }
  NodeId node() const { return engine_->node(); }
  /// The node's numbers of the devices reserved here; CUDA sees these alone, numbered from 0.
  std::vector<int> gpu_ids() const { return engine_->gpu_ids(); }

 private:
  template <class, detail::Purpose>
  friend class detail::Verbs;
  friend class detail::With<Context>;
  detail::Engine& engine_for_verbs() const noexcept { return *engine_; }
  const detail::Request* request_for_verbs() const noexcept { return nullptr; }
  detail::Engine* engine_;
};

/// What a method that takes ActorContext& first may do. Lives as long as the method runs,
/// suspensions included.
class ActorContext : public detail::Verbs<ActorContext, detail::Purpose::any>,
                     public detail::With<ActorContext> {
 public:
  explicit ActorContext(detail::Invocation& invocation)
      : engine_(&invocation.engine()),
        actor_(invocation.actor()),
        restarted_(invocation.restarted()) {}

  /// As Context::put.
  template <class T>
  auto put(const T& value, PutOptions options = {},
           detail::CallSite at = detail::CallSite::here()) const {
    return Context(*engine_).put(value, options, at);
  }
  /// As Context::find.
  template <class A>
  std::optional<Actor<A>> find(const std::string& name) const {
    return Context(*engine_).find<A>(name);
  }
  /// A handle to this actor; A must be its class. A kept one keeps the actor alive. What the actor
  /// calls or tells itself runs in the order of the calls, after this method or while it awaits. To
  /// block for such a result is InvalidArgument: co_await it, or return the Ref.
  template <class A>
  Actor<A> self() const {
    return detail::Access::make_actor<Actor<A>>(actor_);
  }
  /// As Context's. The value must be there: co_await it first (else TimedOut).
  template <class T>
  void detach(const Ref<T>& ref, const std::string& name) const {
    Context(*engine_).detach(ref, name, Duration::zero());
  }
  template <class T>
  std::optional<Ref<T>> find_object(const std::string& name) const {
    return Context(*engine_).find_object<T>(name);
  }
  bool forget_object(const std::string& name) const { return engine_->forget_object(name); }
  /// True in the second and later lives.
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

/// Chooses one of several functions of a name: submit<troupe::overload<int(double)>(f)>(2.0).
template <class Signature>
constexpr Signature* overload(Signature* function) noexcept {
  return function;
}
/// Chooses one of several methods of a name: call<troupe::overload<int(double) const>(&A::m)>(2.0).
template <class Signature, class C>
constexpr auto overload(Signature C::* method) noexcept {
  return method;
}

/// Whether submit<F>(Arguments…) compiles; for generic code.
template <auto F, class... Arguments>
inline constexpr bool callable_remotely_with =
    detail::call_ok<detail::Signature<std::remove_const_t<decltype(F)>>,
                    detail::Lead::actor_context, Arguments...>();

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// The handle inside a Ref that is waited for.
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
/// The handles inside refs, without copying them: a ref is its handle and nothing else.
template <class R>
std::span<const ObjectHandle> handles_of(const std::vector<R>& refs) {
  static_assert(sizeof(R) == sizeof(ObjectHandle) && std::is_standard_layout_v<R>);
  for (const R& ref : refs)
    if (!ref) throw_empty_handle("a Ref that is waited for is empty");
  return {reinterpret_cast<const ObjectHandle*>(refs.data()), refs.size()};
}
/// Splits refs into those of the indices, in their order, and the rest, in its own. Moves each ref
/// at most once.
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
  // Everything that is ready by now comes out of one pass.
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
  engine_->detach(detail::handle_of(ref), name, detail::shape_of<T>.hash, detail::class_name<T>(),
                  timeout);
}

template <class T>
std::optional<Ref<T>> Context::find_object(const std::string& name) const {
  static_assert(detail::MustCross<T>::value && !std::is_void_v<T>);
  detail::ObjectHandle found =
      engine_->find_object(name, detail::shape_of<T>.hash, detail::class_name<T>());
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
