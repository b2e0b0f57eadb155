/// Entries: what a function, method or constructor is called by in another process.
///
/// A Target says how to call; an Entry adds the types of the arguments as they arrive. One Entry
/// exists per template instance and registers itself before main. Its thunk decodes, calls and
/// encodes.
#pragma once

#include "troupe/runtime/detail/arguments.hpp"
#include "troupe/runtime/task.hpp"

#include <typeinfo>

namespace troupe::detail {

template <auto F>
constexpr const char* value_text() {
  return __PRETTY_FUNCTION__;
}
template <class T>
constexpr const char* class_text() {
  return __PRETTY_FUNCTION__;
}
/// The name inside a value_text or class_text, as a person would write it. Lives as long as the
/// process.
TROUPE_API const char* readable_name(const char* text);
/// `name(parameter, …)` of such texts.
TROUPE_API const char* signature_name(const char* text, std::span<const char* const> parameters);
/// Best effort, from the mangled name of a template over the function: static functions (`L` in
/// Itanium mangling), anonymous namespaces and lambdas.
TROUPE_API bool names_internal_linkage(const char* mangled_target);

/// The name of an actor class, for find().
template <class A>
const char* class_name() {
  static const char* const name = readable_name(class_text<A>());
  return name;
}

// --- targets

template <auto F>
struct FunctionTarget {
  using Sig = Signature<std::remove_const_t<decltype(F)>>;
  using Actor_ = void;
  static constexpr CallableKind kind = CallableKind::function;
  static constexpr const char* text() { return value_text<F>(); }
  template <class... P>
  static decltype(auto) call(void*, P&&... arguments) {
    return F(static_cast<P&&>(arguments)...);
  }
};
template <class L>
struct LambdaTarget {
  using Sig = Signature<L>;
  using Actor_ = void;
  static constexpr CallableKind kind = CallableKind::function;
  static constexpr const char* text() { return class_text<L>(); }
  static inline L code{};  // a coroutine lambda refers to itself while it runs
  template <class... P>
  static decltype(auto) call(void*, P&&... arguments) {
    return code(static_cast<P&&>(arguments)...);
  }
};
template <class A, auto M>
struct MethodTarget {
  using Sig = Signature<std::remove_const_t<decltype(M)>>;
  using Actor_ = A;
  static constexpr CallableKind kind = CallableKind::method;
  static constexpr const char* text() { return value_text<M>(); }
  template <class... P>
  static decltype(auto) call(void* self, P&&... arguments) {
    A& actor = *static_cast<A*>(self);
    if constexpr (Sig::on_rvalue)
      return (std::move(actor).*M)(static_cast<P&&>(arguments)...);
    else
      return (actor.*M)(static_cast<P&&>(arguments)...);
  }
};

template <auto F>
struct TargetOf {
  using type = FunctionTarget<F>;
};
template <auto F>
  requires std::is_class_v<std::remove_const_t<decltype(F)>>
struct TargetOf<F> {
  using type = LambdaTarget<std::remove_const_t<decltype(F)>>;
};
template <auto F>
using target_of = typename TargetOf<F>::type;

/// What stands before the arguments: nothing, Context& or ActorContext&.
template <class Parameters, Lead lead = Split<Parameters>::lead>
struct LeadHolder {
  explicit LeadHolder(Invocation&) {}
  template <class Call>
  decltype(auto) with(Call&& call) {
    return call();
  }
};
template <class First, class... Rest>
struct LeadHolder<List<First, Rest...>, Lead::context> {
  std::remove_cvref_t<First> context;
  explicit LeadHolder(Invocation& invocation) : context(invocation.engine()) {}
  template <class Call>
  decltype(auto) with(Call&& call) {
    return call(context);
  }
};
template <class First, class... Rest>
struct LeadHolder<List<First, Rest...>, Lead::actor_context> {
  std::remove_cvref_t<First> context;
  explicit LeadHolder(Invocation& invocation) : context(invocation) {}
  template <class Call>
  decltype(auto) with(Call&& call) {
    return call(context);
  }
};

// --- results

template <class T>
void publish(ResultSink& sink, std::size_t index, const T& value) {
  std::vector<ObjectHandle> handles;
  encode_into(sink.allocate(index, measure(value).size()), handles, value);
  sink.publish(index, handles);
}
inline void publish_nothing(ResultSink& sink) {
  sink.allocate(0, 0);
  sink.publish(0, {});
}
template <class R>
void finish(ResultSink& sink, const R& result) {
  if constexpr (is_ref<R>) {
    if (!result) throw_empty_handle("the function returned an empty Ref");
    sink.forward(0, Access::handle(result));
  } else {
    publish(sink, 0, result);
  }
}
/// A tuple as several results.
struct Whole {
  static constexpr std::uint16_t results = 1;
  template <class R>
  static void finish(ResultSink& sink, const R& result) {
    detail::finish(sink, result);
  }
};
template <std::uint16_t N>
struct Several {
  static constexpr std::uint16_t results = N;
  template <class R>
  static void finish(ResultSink& sink, const R& result) {
    std::apply(
        [&](const auto&... part) {
          std::size_t index = 0;
          (publish(sink, index++, part), ...);
        },
        result);
  }
};

// --- running

/// The decoded arguments and the call on them; lives as long as the function runs.
template <class Target, class Rest, class... W>
class Frame;
template <class Target, class... P, class... W>
class Frame<Target, List<P...>, W...> {
 public:
  explicit Frame(Invocation& invocation)
      : Frame(invocation, invocation.arguments(), std::index_sequence_for<P...>{}) {}
  decltype(auto) call(void* self) {
    return lead_.with([&](auto&... lead) -> decltype(auto) {
      return std::apply(
          [&](auto&... argument) -> decltype(auto) {
            return Target::call(self, lead..., argument.pass()...);
          },
          arguments_);
    });
  }

 private:
  template <std::size_t... I>
  Frame(Invocation& invocation, [[maybe_unused]] std::span<const ArgumentView> views,
        std::index_sequence<I...>)
      : lead_(invocation), arguments_(checked(views)[I]...) {}
  static std::span<const ArgumentView> checked(std::span<const ArgumentView> views) {
    if (views.size() != sizeof...(P))
      throw_malformed("a call has another number of arguments than its function");
    return views;
  }
  LeadHolder<typename Target::Sig::Parameters> lead_;
  std::tuple<Arriving<P, W>...> arguments_;
};

/// A coroutine that was called: arguments, frame and where its result goes.
template <class Frame, class T, class Results>
class Running final : public CoroutineRoot {
 public:
  Running(Invocation& invocation, const char* name) : name_(name), frame_(invocation) {
    for (const ArgumentView& view : invocation.arguments())
      if (view.keep != nullptr && *view.keep != nullptr) keeps_.push_back(*view.keep);
  }
  /// Runs to the first wait. The result of a coroutine that does not wait goes straight to the
  /// invocation.
  void start(Invocation& invocation) {
    invocation.enter(Phase::running);
    task_.emplace(frame_.call(invocation.self()));
    auto coroutine = Access::coroutine(*task_);
    coroutine.promise().root = this;
    coroutine.resume();
    if (coroutine.done())
      deliver(invocation, [&] { invocation.enter(Phase::results); });
    else
      sink_ = invocation.defer();
  }
  void resumed() noexcept override {
    if (!sink_ || !Access::coroutine(*task_).done()) return;
    const std::shared_ptr<ResultSink> sink = std::move(sink_);
    Phase phase = Phase::running;
    try {
      deliver(*sink, [&] { phase = Phase::results; });
    } catch (...) {
      sink->fail(error_from_current_exception(name_, phase));
    }
  }

 private:
  /// Says when user code has ended well.
  template <class Ended>
  void deliver(ResultSink& sink, Ended&& ended) {
    auto& promise = Access::coroutine(*task_).promise();
    if constexpr (std::is_void_v<T>) {
      promise.take();
      ended();
      publish_nothing(sink);
    } else {
      const T result = promise.take();
      ended();
      Results::finish(sink, result);
    }
  }
  const char* name_;
  std::vector<std::shared_ptr<const void>> keeps_;
  Frame frame_;
  std::shared_ptr<ResultSink> sink_;
  std::optional<Task<T>> task_;  // last: it ends before what it refers to
};

template <class... T>
constexpr std::uint64_t fingerprint_of(std::uint64_t hash) {
  ((hash = mix(hash, wire_shape<T>().hash)), ...);
  return hash;
}
template <class T>
constexpr std::uint64_t result_hash() {
  if constexpr (std::is_void_v<T>)
    return 1;
  else
    return shape_of<T>.hash;
}

/// One entry point: registered before main, found again in other processes by its thunk.
template <class Target, class Results, class... W>
class Entry {
  using Sig = typename Target::Sig;
  using R = std::remove_cvref_t<typename Sig::Result>;
  using F = Frame<Target, typename Split<typename Sig::Parameters>::Rest, W...>;

  static void thunk(Invocation& invocation) {
    if constexpr (is_task<R>) {
      auto running = std::make_shared<Running<F, typename R::value_type, Results>>(
          invocation, registered.callable.name);
      running->start(invocation);
    } else {
      F frame(invocation);
      invocation.enter(Phase::running);
      if constexpr (std::is_void_v<R>) {
        frame.call(invocation.self());
        invocation.enter(Phase::results);
        publish_nothing(invocation);
      } else {
        const auto& result = frame.call(invocation.self());
        invocation.enter(Phase::results);
        Results::finish(invocation, result);
      }
    }
  }
  struct Registered {
    Callable callable;
    Registered() {
      const char* const texts[] = {class_text<W>()..., nullptr};
      callable.thunk = &thunk;
      callable.kind = Target::kind;
      callable.results = Results::results;
      callable.is_coroutine = is_task<R>;
      callable.internal_linkage = names_internal_linkage(typeid(Target).name());
      callable.fingerprint = fingerprint_of<W...>(result_hash<result_value<R>>());
      callable.name = signature_name(Target::text(), std::span(texts).first(sizeof...(W)));
      if constexpr (!std::is_void_v<typename Target::Actor_>)
        callable.class_name = class_name<typename Target::Actor_>();
      register_callable(&callable);
    }
  };
  static inline Registered registered{};

 public:
  static const Callable& get() noexcept { return registered.callable; }
};

/// Makes actors of class A from arguments that arrive as W...; publishes nothing, sets the
/// instance.
template <class A, class... W>
class ConstructorEntry {
  static void thunk(Invocation& invocation) {
    make(invocation, invocation.arguments(), std::index_sequence_for<W...>{});
  }
  template <std::size_t... I>
  static void make(Invocation& invocation, [[maybe_unused]] std::span<const ArgumentView> views,
                   std::index_sequence<I...>) {
    if (views.size() != sizeof...(W))
      throw_malformed("a call has another number of arguments than its constructor");
    std::tuple<W...> values{decode_value<W>(views[I].bytes, views[I].refs, views[I].keep)...};
    invocation.enter(Phase::running);
    if constexpr (std::is_aggregate_v<A>)
      invocation.set_self(new A{std::move(std::get<I>(values))...});
    else if constexpr (std::is_constructible_v<A, W...>)
      invocation.set_self(new A(std::move(std::get<I>(values))...));
    else
      invocation.set_self(new A{std::move(std::get<I>(values))...});
  }
  struct Registered {
    Callable callable;
    Registered() {
      const char* const texts[] = {class_text<W>()..., nullptr};
      callable.thunk = &thunk;
      callable.kind = CallableKind::constructor;
      callable.results = 0;
      callable.internal_linkage = names_internal_linkage(typeid(Tag<A>).name());
      callable.fingerprint = fingerprint_of<W...>(0);
      callable.class_name = class_name<A>();
      callable.name = signature_name(class_text<A>(), std::span(texts).first(sizeof...(W)));
      callable.destroy = [](void* self) { delete static_cast<A*>(self); };
      register_callable(&callable);
    }
  };
  static inline Registered registered{};

 public:
  static const Callable& get() noexcept { return registered.callable; }
};

}  // namespace troupe::detail
