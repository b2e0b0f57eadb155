/// Entries: the points through which other processes call a function, method or constructor.
/// send.hpp names an Entry in a Call; run_thunk() (engine/) runs its thunk in the worker.
///
/// A Target says how to call. An Entry adds the types of the arguments as they arrive. Its thunk
/// decodes the arguments, calls the target and encodes the result.
///
/// Registration. Each Entry has a static data member whose constructor registers it. The compiler
/// instantiates that member only where Entry::get() is used, which is where a program submits the
/// function. So each template instance that a program submits is in its executable once, and is
/// registered before main. The worker runs the same executable and has the same entries. It finds
/// one by the build-id of the executable and the offset of the thunk.
#pragma once

#include "troupe/runtime/detail/arguments.hpp"
#include "troupe/runtime/task.hpp"

#include <string_view>
#include <typeinfo>

namespace troupe::detail {

/// The compiler's text for the value F or the class T, with a frame around it that readable_name()
/// removes.
template <auto F>
constexpr const char* value_text() {
  return __PRETTY_FUNCTION__;
}
template <class T>
constexpr const char* class_text() {
  return __PRETTY_FUNCTION__;
}
/// Returns the name inside a value_text or class_text, as a person would write it. Lives as long as
/// the process.
TROUPE_API const char* readable_name(const char* text);
/// Returns `name(parameter, …)`, made of such texts. Lives as long as the process.
TROUPE_API const char* signature_name(const char* text, std::span<const char* const> parameters);
/// Returns whether the function in a mangled template name is visible in one file only: a static
/// function, one in an anonymous namespace, or a lambda. A best effort by the Itanium C++ ABI's
/// mangling; no language feature tells it.
TROUPE_API bool names_internal_linkage(const char* mangled_target);

/// The same for a class that only the source file `file` sees: the name shows the last two parts of
/// that file's path in the place of the anonymous namespace.
TROUPE_API const char* readable_name_in(const char* text, const char* file);
/// Returns whether the name inside a class_text contains an anonymous namespace.
constexpr bool in_anonymous_namespace(std::string_view text) noexcept {
  return text.find("{anonymous}") != text.npos || text.find("(anonymous namespace)") != text.npos;
}

/// Returns the name of a value's type, for messages. Types of two files may have the same name.
template <class T>
const char* type_name() {
  static const char* const name = readable_name(class_text<T>());
  return name;
}
/// Returns the name of an actor class, by which find() and each method check the class of an actor.
/// Two classes in anonymous namespaces of two files have two names.
template <class A>
const char* class_name() {
  if constexpr (in_anonymous_namespace(class_text<A>())) {
    static const char* const name = readable_name_in(class_text<A>(), __BASE_FILE__);
    return name;
  } else {
    return type_name<A>();
  }
}

// --- targets
//
// Each has Sig (the Signature), Actor_ (the actor's class, or void), kind, text() and call(self,
// arguments…).

/// A function in angle brackets.
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
/// A lambda without captures. All calls use one object, `code`.
template <class L>
struct LambdaTarget {
  using Sig = Signature<L>;
  using Actor_ = void;
  static constexpr CallableKind kind = CallableKind::function;
  static constexpr const char* text() { return class_text<L>(); }
  static inline L code{};  // static, since a coroutine of it refers to the lambda until it ends
  template <class... P>
  static decltype(auto) call(void*, P&&... arguments) {
    return code(static_cast<P&&>(arguments)...);
  }
};
/// A method M of an actor of class A; M may come from a base class of A.
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

/// Holds the context that a function takes before its arguments, if any. with(call) calls
/// call(context), or call() for a function without one.
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

/// Encodes a value straight into the memory of result `index` and ends that result.
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
/// Ends result 0. A function that returned a Ref forwards the result to that object.
template <class R>
void finish(ResultSink& sink, const R& result) {
  if constexpr (is_ref<R>) {
    if (!result) throw_empty_handle("the function returned an empty Ref");
    sink.forward(0, Access::handle(result));
  } else {
    publish(sink, 0, result);
  }
}
/// How an entry publishes the function's result: as one object.
struct Whole {
  static constexpr std::uint16_t results = 1;
  template <class R>
  static void finish(ResultSink& sink, const R& result) {
    detail::finish(sink, result);
  }
};
/// How an entry publishes a tuple or pair of N parts: as N objects, for submit_split.
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

/// The decoded arguments of one call; lives as long as the function runs. P... are the parameters,
/// W... the types as which the arguments arrive.
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

/// A call of a function that is a coroutine: its arguments, the coroutine, and the sink of its
/// result. It outlives the thunk if the coroutine waits; each pending resumption owns it
/// (coroutine.hpp).
template <class Frame, class T, class Results>
class Running final : public CoroutineRoot {
 public:
  Running(Invocation& invocation, const char* name) : name_(name), frame_(invocation) {
    for (const ArgumentView& view : invocation.arguments())
      if (view.keep != nullptr && *view.keep != nullptr) keeps_.push_back(*view.keep);
  }
  /// Runs the coroutine up to its first wait. If it ends without one, its result goes straight to
  /// the invocation, and exceptions leave to run_thunk().
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
  // `sink_` is empty while start() runs: a Ref that is ready resumes the coroutine inside start(),
  // which then delivers the result itself.
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
  /// Publishes the result, or throws the exception that left the coroutine. Calls `ended` between
  /// the user's code and the encoding, so that an error names the right Phase.
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
  std::vector<std::shared_ptr<const void>> keeps_;  // owners of the bytes that frame_ shows
  Frame frame_;
  std::shared_ptr<ResultSink> sink_;
  std::optional<Task<T>> task_;  // last, so that it is destroyed before the arguments it refers to
};

/// Folds the fingerprints of the types T... into `hash`.
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

/// The entry of a function or method. The address of its thunk identifies it within a build.
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

/// The entry of a constructor: makes an actor of class A from arguments that arrive as W.... It has
/// no result; it sets the instance of the invocation.
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
