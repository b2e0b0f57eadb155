/// Who waits for whom: joins a get or wait to its object, the task that makes it, the task's
/// arguments, its lease request, the worker and what that worker runs. WaitGraph asks the owner of
/// each thing through a callback and says in plain sentences what a wait comes down to. A plain
/// state machine.
///
///     WaitGraph graph(ask);
///     print(graph.explain({Thing::Kind::object, id, "node-0/8185"}).lines);
///     print(graph.survey(waiting).lines());   // without an id: what goes wrong in the cluster
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::observe {

/// Something that waits, or that is waited for.
struct Thing {
  /// thread: one of a driver or worker that is in get or wait. call: of an actor. request: for a
  /// lease. worker: a process that holds a lease.
  enum class Kind : std::uint8_t { thread, object, task, call, actor, request, worker };
  Kind kind = Kind::object;
  std::string id;     ///< as tables print it; differs from other ids of the kind
  std::string owner;  ///< who knows about it, like node-0/8185 or node-0
  friend bool operator==(const Thing& a, const Thing& b) noexcept {
    return a.kind == b.kind && a.id == b.id;
  }
  friend auto operator<=>(const Thing& a, const Thing& b) noexcept {
    return std::pair(a.kind, std::string_view(a.id)) <=> std::pair(b.kind, std::string_view(b.id));
  }
};

/// What its owner knows about a thing.
struct Fact {
  /// ready: nothing is awaited any more. runs: goes on by itself. waits: for `waits_for`. blocked:
  /// the same, inside its function, so that it keeps its lease. lacks: resources that others use
  /// now. paused: until a retry. impossible: no node can ever give what it needs. lost: dead, or on
  /// a dead node.
  enum class State : std::uint8_t { ready, runs, waits, blocked, lacks, paused, impossible, lost };
  Thing thing;
  State state = State::ready;
  std::vector<Thing> waits_for;
  bool any = false;   ///< one of `waits_for` is enough: wait_any, a lease of several holders
  std::string name;   ///< of a function, an actor's class, a driver's program
  std::string actor;  ///< of a call: the actor, with its class
  std::string place;  ///< where it runs
  std::string needs;  ///< resources: of a request, or that a worker holds
  std::string why;    ///< the owner's own sentence, such as LeaseTable::explain gives
  std::uint64_t since_ns = 0;  ///< how long it has been in this state; 0: unknown
  std::uint64_t count = 1;     ///< of a request: tasks behind it
};

/// What a wait comes down to, the mildest first.
enum class Cause : std::uint8_t { ready, runs, paused, lacks, unanswered, lost, impossible, cycle };
std::string_view name_of(Cause cause) noexcept;

struct Explanation {
  Cause cause = Cause::ready;
  std::vector<std::string> lines;  ///< one sentence each, from the thing to what runs or lacks
};

/// What goes wrong in a cluster.
struct Survey {
  /// Waits that come down to one cause.
  struct Group {
    Cause cause = Cause::ready;
    std::string text;
    std::uint64_t count = 0;       ///< of tasks, actors and threads
    std::uint64_t longest_ns = 0;  ///< since the first of them waits
  };
  struct Cycle {
    std::string text;  ///< who waits for each other
    std::vector<Thing> things;
    std::vector<std::string> lines;  ///< one sentence for each step round it
  };
  std::vector<Group> impossible;  ///< demands that nobody can meet
  std::vector<Cycle> cycles;
  std::vector<Group> groups;  ///< waits of kLong and more, the largest first
  bool complete = true;       ///< false: the most steps were not enough, or a source was silent
  std::vector<std::string> lines() const;
};

class WaitGraph {
 public:
  static constexpr std::size_t kMaxSteps = 1000;          ///< questions to owners
  static constexpr std::size_t kMaxFollowed = 64;         ///< of one thing's `waits_for`
  static constexpr std::uint64_t kLong = 10'000'000'000;  ///< ns; a shorter wait is no news
  /// Returns what the owner knows. Errors: timed_out and unavailable mean that the owner is silent:
  /// it is not asked again. Any other error means that it does not know this thing.
  using Ask = std::function<Result<Fact>(const Thing&)>;

  explicit WaitGraph(Ask ask, std::size_t most_steps = kMaxSteps)
      : ask_(std::move(ask)), steps_left_(most_steps) {}

  /// Follows the thing to what runs or lacks.
  Explanation explain(const Thing& from);
  /// `waiting`: what owners know about the threads, requests and actors that wait.
  Survey survey(const std::vector<Fact>& waiting);

 private:
  /// A thing with its fact. Where nobody has told one, the cause is unanswered.
  struct Item {
    Fact fact;
    bool known = false;
    std::vector<std::size_t> needs;   ///< items of waits_for
    std::optional<Cause> cause;       ///< none: in a cycle, or behind one
    std::optional<std::size_t> next;  ///< the item to which the cause leads
    std::vector<std::size_t> needed_by;
    std::size_t open = 0;  ///< needs that have no cause yet
  };
  std::size_t item_of(const Thing& thing);
  void learn(std::size_t item, Fact fact);
  void explore();
  void find_causes();
  void settle(std::size_t item, Cause cause, std::optional<std::size_t> next);
  std::vector<std::vector<std::size_t>> cycles() const;
  std::vector<std::size_t> way_round(const std::vector<std::size_t>& component) const;
  std::vector<std::size_t> way_from(std::size_t item) const;
  std::vector<std::string> sentences(const std::vector<std::size_t>& way, bool is_cycle) const;
  std::string sentence(const Item& item, const Item* next, const Item* behind) const;
  std::string holders_of(const Item& item) const;
  Survey::Group group_of(std::size_t root) const;

  const Ask ask_;
  std::size_t steps_left_;
  bool complete_ = true;
  std::vector<Item> items_;
  std::map<Thing, std::size_t> index_;
  std::vector<std::size_t> unasked_;
  std::set<std::string> silent_;                       // owners
  std::map<Cause, std::vector<std::size_t>> settled_;  // items whose followers are not looked at
};

}  // namespace troupe::observe
