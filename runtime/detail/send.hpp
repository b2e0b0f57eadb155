/// Turns arguments that check.hpp has accepted into calls of the engine. verbs.hpp, actor.hpp and
/// context.hpp call these functions.
#pragma once

#include "troupe/runtime/detail/check.hpp"

namespace troupe::detail {

/// Makes the Call for a Target. A class template, since only a partial specialization can match two
/// packs of types, the arguments A and the parameters P, at once.
template <class Target, class Results, class Arguments, class Parameters>
struct Sender;
template <class Target, class Results, class... A, class... P>
struct Sender<Target, Results, List<A...>, List<P...>> {
  static Call make(Engine& engine, std::remove_reference_t<A>&... arguments) {
    return make_call(engine, Entry<Target, Results, typename Passing<A, P>::Wire...>::get(),
                     Leaving<A, P>(arguments)...);
  }
};
template <class Target, class Results, class... A>
Call call_of(Engine& engine, std::remove_reference_t<A>&... arguments) {
  return Sender<Target, Results, List<A...>, rest_of<typename Target::Sig>>::make(engine,
                                                                                  arguments...);
}

/// The T of the Ref<T> that a call of Target returns.
template <class Target>
using value_of = result_value<typename Target::Sig::Result>;

template <class Target, class... A>
Ref<value_of<Target>> submit_to(Engine& engine, const Request* request, A&&... arguments) {
  ObjectHandle result;
  engine.submit(call_of<Target, Whole, A&&...>(engine, arguments...), request,
                std::span(&result, 1));
  return Access::make_ref<Ref<value_of<Target>>>(std::move(result));
}

/// The Refs to the parts of a tuple or pair; `valid` is false for other types and the empty tuple.
template <class T>
struct SplitResult {
  static constexpr bool valid = false;
};
template <class... T>
struct SplitResult<std::tuple<T...>> {
  static constexpr bool valid = sizeof...(T) != 0;
  static constexpr std::uint16_t size = sizeof...(T);
  using Refs = std::tuple<Ref<std::remove_cvref_t<T>>...>;
  static Refs refs(std::array<ObjectHandle, size>& handles) {
    return refs(handles, std::make_index_sequence<size>{});
  }
  template <std::size_t... I>
  static Refs refs(std::array<ObjectHandle, size>& handles, std::index_sequence<I...>) {
    return Refs{Access::make_ref<Ref<std::remove_cvref_t<T>>>(std::move(handles[I]))...};
  }
};
template <class A, class B>
struct SplitResult<std::pair<A, B>> : SplitResult<std::tuple<A, B>> {};

template <class Target, class... A>
auto split_to(Engine& engine, const Request* request, A&&... arguments) {
  using Split_ = SplitResult<value_of<Target>>;
  std::array<ObjectHandle, Split_::size> results;
  engine.submit(call_of<Target, Several<Split_::size>, A&&...>(engine, arguments...), request,
                results);
  return Split_::refs(results);
}

template <class Target, class... A>
Ref<value_of<Target>> call_to(const ActorHandle& actor, A&&... arguments) {
  Engine& engine = running_engine();
  ObjectHandle result;
  engine.call(actor, call_of<Target, Whole, A&&...>(engine, arguments...), std::span(&result, 1));
  return Access::make_ref<Ref<value_of<Target>>>(std::move(result));
}
template <class Target, class... A>
void tell_to(const ActorHandle& actor, A&&... arguments) {
  Engine& engine = running_engine();
  engine.call(actor, call_of<Target, Whole, A&&...>(engine, arguments...), {});
}

// --- constructors
//
// No language feature gives the parameters of a constructor. So the type that crosses is that of
// the argument, decayed.

/// The type as which an argument of type A crosses: a span as a vector, a string_view or C string
/// as a string, any other type decayed.
template <class A>
struct Carried {
  using type = std::decay_t<A>;
};
template <class A>
  requires is_span<std::remove_cvref_t<A>>
struct Carried<A> {
  using type = std::vector<std::remove_const_t<typename std::remove_cvref_t<A>::element_type>>;
};
template <class A>
  requires(is_string_view<std::remove_cvref_t<A>> || std::is_same_v<std::decay_t<A>, const char*> ||
           std::is_same_v<std::decay_t<A>, char*>)
struct Carried<A> {
  using type = std::string;
};
template <class A>
using carried = typename Carried<A>::type;

/// True if A(P…) or A{P…} compiles.
template <class A, class... P>
consteval bool constructible() {
  if constexpr (std::is_aggregate_v<A>)
    return requires { A{std::declval<P>()...}; };
  else
    return std::is_constructible_v<A, P...> || requires { A{std::declval<P>()...}; };
}
/// Chooses for every Ref<U> whether the constructor gets the Ref or the U. A recursion over the
/// arguments tries the Ref first and takes the first combination with which an A can be
/// constructed: `found` says whether there is one, `type` lists its types. Cost: up to 2^n
/// instances for n Refs.
template <class A, class Chosen, class Left>
struct Choose;
template <class A, class... Chosen>
struct Choose<A, List<Chosen...>, List<>> {
  static constexpr bool found = constructible<A, Chosen...>();
  using type = List<Chosen...>;
};
template <class A, class... Chosen, class First, class... Left>
struct Choose<A, List<Chosen...>, List<First, Left...>>
    : Choose<A, List<Chosen..., First>, List<Left...>> {};
template <class A, class... Chosen, class U, class... Left>
  requires(!std::is_void_v<U>)
struct Choose<A, List<Chosen...>, List<Ref<U>, Left...>>
    : std::conditional_t<Choose<A, List<Chosen..., Ref<U>>, List<Left...>>::found,
                         Choose<A, List<Chosen..., Ref<U>>, List<Left...>>,
                         Choose<A, List<Chosen..., U>, List<Left...>>> {};

/// Returns whether spawn<A>(P…) is right, and explains a false by a static_assert.
template <class A, class... P>
consteval bool check_spawn() {
  static_assert(std::is_class_v<A> && !std::is_abstract_v<A>,
                "troupe: an actor is an object of a class");
  static_assert(std::is_destructible_v<A>, "troupe: an actor needs a public destructor");
  static_assert(!std::is_class_v<A> || Choose<A, List<>, List<carried<P>...>>::found,
                "troupe: the actor's class cannot be made from these arguments, neither as A(...) "
                "nor as A{...} (they are "
                "moved in; a Ref<U> is given as Ref<U> or as U)");
  if constexpr (std::is_class_v<A> && Choose<A, List<>, List<carried<P>...>>::found)
    return (MustCross<carried<P>>::value && ...);
  else
    return false;
}

template <class A, class Wires>
struct Maker;
template <class A, class... W>
struct Maker<A, List<W...>> {
  template <class... P>
  static Call make(Engine& engine, P&... arguments) {
    // Encodes as if for a function that takes the chosen types by value.
    return make_call(engine, ConstructorEntry<A, W...>::get(), Leaving<P&&, W>(arguments)...);
  }
};
template <class A, class... P>
Actor<A> spawn_to(Engine& engine, const Request* request, P&&... arguments) {
  using Wires = typename Choose<A, List<>, List<carried<P>...>>::type;
  return Access::make_actor<Actor<A>>(
      engine.spawn(Maker<A, Wires>::template make<P...>(engine, arguments...), request));
}

// --- objects

/// Stores a value. A small one without replicas is encoded on the stack and kept inside its record;
/// any other is encoded straight into shared memory.
template <class T>
Ref<T> put_value(Engine& engine, const T& value, const Replication& how, CallSite at) {
  const std::size_t size = measure(value).size();
  std::vector<ObjectHandle> handles;
  if (size <= kInlineArgument && how.replicas == 1) {
    alignas(64) std::byte bytes[kInlineArgument];
    encode_into(std::span(bytes, size), handles, value);
    return Access::make_ref<Ref<T>>(engine.put(BlobView(bytes, size), handles));
  }
  const std::unique_ptr<Building> building = engine.create(size, at);
  encode_into(building->bytes().first(size), handles, value);
  return Access::make_ref<Ref<T>>(building->seal(handles, how));
}

}  // namespace troupe::detail
