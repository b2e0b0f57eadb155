/// What may be asked of the place where a task or an actor runs, and of how it fails.
///
///     ctx.with({.cpus = 2, .max_retries = 5}).submit<f>(x);
///     ctx.with({.name = "counter", .max_restarts = 3}).spawn<Counter>(0);
///     troupe::TaskOptions o; o.gpus = 0.5; ctx.with(o).submit<g>(x);      // in any order
///
/// The structs are trivially copyable and are copied inside with(): a string_view needs to live
/// that long only. The order of the members is part of the contract, since designated initializers
/// follow it.
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

/// A few values without an allocation, so that options stay trivially copyable.
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

/// So much of a custom resource, e.g. {"tpu", 1}. Fractions down to 0.0001.
struct Resource {
  std::string_view name = {};
  double amount = 0;
};
using Resources = detail::Few<Resource, 8>;

/// A node must carry this label with this value.
struct Label {
  std::string_view key = {};
  std::string_view value = {};
};
using Labels = detail::Few<Label, 8>;

/// Where among the nodes that have room. Default: near the caller and the data.
class Placement {
 public:
  constexpr Placement() noexcept = default;
  /// On as few nodes as possible.
  static const Placement pack;
  /// On as many nodes as possible.
  static const Placement spread;
  /// On this node; with `soft` elsewhere when it has no room or is gone, else Infeasible then.
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

/// Exception types that are worth a retry, by exact type: troupe::errors<NetError, TimeoutError>().
/// At most 8.
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

/// For tasks and actors alike.
struct Options {
  /// A task's stands before its function in errors (`nightly: area(double)`). An actor is found by
  /// it, and `troupe list actors` shows it. Default: none.
  std::string_view name = {};
  /// CPUs reserved, down to 0.0001; 0 reserves none. Admission, not a limit. Default 1 for a task,
  /// as most code uses one; none for an actor, as most actors mostly wait.
  std::optional<double> cpus = {};
  /// GPUs reserved, fractions share a device; a worker sees its own only. Default 0.
  double gpus = 0;
  /// Memory reserved. Admission, not a limit; 0 reserves none.
  Bytes memory = {};
  Resources resources = {};
  Placement placement = {};
  Labels labels = {};
};

/// For tasks.
struct TaskOptions {
  std::string_view name = {};
  double cpus = 1;
  double gpus = 0;
  Bytes memory = {};
  Resources resources = {};
  Placement placement = {};
  Labels labels = {};
  /// Runs again when its worker or node dies, or a result is lost, even if it may have run (then it
  /// should give the same bytes: runtime/docs/object.md, "A lost value"); -1: without limit.
  /// Default 3.
  int max_retries = 3;
  /// Exceptions of the function that are retried too, out of the same number. Default: none, as
  /// most are bugs.
  Errors retry_on = {};
  /// Runs on a second worker, too, when it takes three times as long as the function's other tasks
  /// of this process (the median of the last 31, at least five and at least 100 ms); the first that
  /// ends well counts, and the other runs to its end for nothing. For functions that may run twice
  /// at once; InvalidArgument with max_retries 0. Costs the CPU time of both.
  bool second_attempt = false;
  /// Never runs in the process of the task that awaits it. For a function that may crash, that
  /// needs the locks of its caller, or that leaves its process other than it was. Costs a process
  /// for as long as the caller waits, and a round trip. Default false: Context::get may run it in
  /// place.
  bool isolated = false;
};

/// For actors.
struct ActorOptions {
  std::string_view name = {};
  /// Reserved as long as it lives, idle or not. Default: none, as most actors mostly wait; 1
  /// reserves one.
  std::optional<double> cpus = {};
  double gpus = 0;
  Bytes memory = {};
  Resources resources = {};
  Placement placement = {};
  Labels labels = {};
  /// Stays when no handle is left and ends by kill only, or with its cluster (a private one ends
  /// with its driver). Needs a name to be found again. Default false.
  bool detached = false;
  /// With a name: the actor of that name if there is one, made otherwise, atomically. Default
  /// false: InvalidArgument.
  bool get_if_exists = false;
  /// New lives after a death, made by the same constructor arguments; -1: without limit. Default 0:
  /// ActorDied. A constructor that throws in the first life ends the actor at once, with its words
  /// in ActorDied; in a later life that is a death like any other. Lives that end in their
  /// constructor, or within a second after it, are further and further apart: 0.1 s, up to 10 s. A
  /// limit of 50 and less is used up within 5 s.
  int max_restarts = 0;
  /// Restarts are counted over this time, without pauses between lives; 0 and forever: over its
  /// whole life. Negative: InvalidArgument. Default one minute.
  Duration restart_window = std::chrono::seconds(60);
};

static_assert(std::is_trivially_copyable_v<Options> && std::is_trivially_copyable_v<TaskOptions> &&
              std::is_trivially_copyable_v<ActorOptions>);

namespace detail {
/// Owned copies; throws InvalidArgument for negative or non-finite amounts.
TROUPE_API Request request_of(const Options& options);
TROUPE_API Request request_of(const TaskOptions& options);
TROUPE_API Request request_of(const ActorOptions& options);
}  // namespace detail

}  // namespace troupe
