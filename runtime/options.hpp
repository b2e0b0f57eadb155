/// Options of tasks and actors: the resources that they reserve, the nodes on which they may run,
/// and what happens when they fail. with() takes them (detail/verbs.hpp).
///
///     ctx.with({.cpus = 2, .max_retries = 5}).submit<f>(x);
///     ctx.with({.name = "counter", .max_restarts = 3}).spawn<Counter>(0);
///     troupe::TaskOptions o; o.gpus = 0.5; ctx.with(o).submit<g>(x);      // in any order
///
/// The structs are trivially copyable. with() copies them and the texts that they name, so a
/// string_view needs to live only until with() returns. The order of the members is part of the
/// contract, since designated initializers follow it.
#pragma once

#include "troupe/runtime/engine/engine.hpp"

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <typeinfo>

namespace troupe {

namespace detail {
[[noreturn]] TROUPE_API void throw_too_many(const char* what, std::size_t limit);

/// A list of at most N values without an allocation, so that options stay trivially copyable.
template <class T, std::size_t N>
class Few {
 public:
  constexpr Few() noexcept = default;
  constexpr Few(std::initializer_list<T> values) {
    if (values.size() > N) throw_too_many("options take at most so many entries", N);
    for (const T& value : values) values_[size_++] = value;
  }
  constexpr void add(const T& value) {
    if (size_ == N) throw_too_many("options take at most so many entries", N);
    values_[size_++] = value;
  }
  constexpr const T* begin() const noexcept { return values_.data(); }
  constexpr const T* end() const noexcept { return values_.data() + size_; }
  constexpr std::size_t size() const noexcept { return size_; }

 private:
  std::array<T, N> values_{};
  std::size_t size_ = 0;
};
}  // namespace detail

/// An amount of a resource that the program defines, e.g. {"tpu", 1}. Fractions down to 0.0001.
struct Resource {
  std::string_view name = {};
  double amount = 0;
};
using Resources = detail::Few<Resource, 8>;

/// A label with a value, which a node must have.
struct Label {
  std::string_view key = {};
  std::string_view value = {};
};
using Labels = detail::Few<Label, 8>;

/// Which node to choose among those that have room. Default: near the caller and the data.
class Placement {
 public:
  constexpr Placement() noexcept = default;
  /// On as few nodes as possible.
  static const Placement pack;
  /// On as many nodes as possible.
  static const Placement spread;
  /// On this node. If it has no room or is gone: with `soft` on another node, else Infeasible.
  static constexpr Placement on(NodeId node, bool soft = false) noexcept {
    return {detail::Request::Placement::node, node, soft};
  }
  constexpr detail::Request::Placement kind() const noexcept { return kind_; }
  constexpr NodeId node() const noexcept { return node_; }
  constexpr bool soft() const noexcept { return soft_; }

 private:
  constexpr Placement(detail::Request::Placement kind, NodeId node, bool soft) noexcept
      : kind_(kind), node_(node), soft_(soft) {}
  detail::Request::Placement kind_ = detail::Request::Placement::any;
  NodeId node_;
  bool soft_ = false;
};
inline constexpr Placement Placement::pack{detail::Request::Placement::pack, NodeId{}, false};
inline constexpr Placement Placement::spread{detail::Request::Placement::spread, NodeId{}, false};

/// The exception types after which a task runs again: troupe::errors<NetError, TimeoutError>(). At
/// most 8. A derived class does not match: the types are compared by name.
class Errors {
 public:
  constexpr Errors() noexcept = default;
  const detail::Few<const char*, 8>& names() const noexcept { return names_; }

 private:
  template <class... E>
  friend Errors errors();
  detail::Few<const char*, 8> names_;
};
template <class... E>
Errors errors() {
  Errors errors;
  (errors.names_.add(typeid(E).name()), ...);
  return errors;
}

/// Options for tasks and actors alike.
struct Options {
  /// A task's name stands before its function in errors (`nightly: area(double)`). An actor is
  /// found by its name, and `troupe list actors` shows it. Default: none.
  std::string_view name = {};
  /// CPUs reserved, in fractions down to 0.0001. The scheduler starts work only where they are
  /// free, but does not limit how much it uses. 0 reserves none. Default: 1 for a task, since most
  /// code uses one; none for an actor, since most actors mostly wait.
  std::optional<double> cpus = {};
  /// GPUs reserved. Fractions share a device. A worker sees only its own devices. Default 0.
  double gpus = 0;
  /// Bytes of memory reserved for the work, not limited to that. 0 reserves none.
  Bytes memory = {};
  Resources resources = {};
  Placement placement = {};
  Labels labels = {};
};

/// Options for tasks. Members without a comment are those of Options.
struct TaskOptions {
  std::string_view name = {};
  double cpus = 1;
  double gpus = 0;
  Bytes memory = {};
  Resources resources = {};
  Placement placement = {};
  Labels labels = {};
  /// How often the task runs again when its worker or node dies, or a result is lost, even if it
  /// may have run. -1: without limit. A function that runs again should give the same bytes
  /// (runtime/docs/object.md, "A lost value"). Default 3.
  int max_retries = 3;
  /// Exceptions of the function after which the task runs again too. These runs count as retries of
  /// max_retries. Default: none, since most exceptions are bugs.
  Errors retry_on = {};
  /// Starts the task on a second worker as well when it takes unusually long: three times the
  /// median of the function's last 31 tasks of this process, of which there must be at least five,
  /// and at least 100 ms. The first attempt that ends well counts. The other runs to its end, and
  /// its result is dropped. For functions that may run twice at the same time; InvalidArgument with
  /// max_retries 0. Cost: the CPU time of both. Default false.
  bool second_attempt = false;
  /// Keeps the task out of the process of the task that awaits it. For a function that may crash,
  /// that needs the locks of its caller, or that changes the state of its process. Cost: a process
  /// for as long as the caller waits, and a round trip. Default false: Context::get may run the
  /// task in place.
  bool isolated = false;
};

/// Options for actors. Members without a comment are those of Options.
struct ActorOptions {
  std::string_view name = {};
  /// CPUs reserved as long as the actor lives, idle or not. Default: none, since most actors mostly
  /// wait.
  std::optional<double> cpus = {};
  double gpus = 0;
  Bytes memory = {};
  Resources resources = {};
  Placement placement = {};
  Labels labels = {};
  /// Keeps the actor alive without handles: it ends by kill, or with its cluster (a private cluster
  /// ends with its driver). It needs a name to be found again. Default false.
  bool detached = false;
  /// Makes spawn return the actor that has the name, if there is one, and create it otherwise,
  /// atomically. It needs a name. Default false: spawn with a name that is taken is
  /// InvalidArgument.
  bool get_if_exists = false;
  /// How many new lives the actor gets after deaths, each constructed from the same arguments. -1:
  /// without limit. Default 0: after the first death, calls end in ActorDied. A constructor that
  /// throws in the first life ends the actor at once, with its text in ActorDied; in a later life
  /// that is a death like any other. After lives that end in their constructor, or within a second
  /// of it, the next one begins after a growing pause, from 0.1 s to 10 s. A limit of 50 or less
  /// restarts is used up within 5 s.
  int max_restarts = 0;
  /// The time over which restarts are counted, without the pauses between lives. 0 and forever: the
  /// actor's whole life. Negative: InvalidArgument. Default: one minute.
  Duration restart_window = std::chrono::seconds(60);
};

static_assert(std::is_trivially_copyable_v<Options> && std::is_trivially_copyable_v<TaskOptions> &&
              std::is_trivially_copyable_v<ActorOptions>);

namespace detail {
/// Returns the options with copies of all texts. Throws InvalidArgument for amounts that are
/// negative or not finite, and for options that contradict each other.
TROUPE_API Request request_of(const Options& options);
TROUPE_API Request request_of(const TaskOptions& options);
TROUPE_API Request request_of(const ActorOptions& options);
}  // namespace detail

}  // namespace troupe
