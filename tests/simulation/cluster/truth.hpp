/// The promises that a simulated cluster must keep under all faults: the content of each object,
/// how often and in which order calls may run, and which errors are excused. It also counts how
/// often rare paths were taken.
///
///     truth.promise(handle.id(), content_of(spec));           // at submit
///     truth.began(call);                                      // at the worker, before it answers
///     truth.method_ended(spec, error);                        // at the caller
#pragma once

#include "troupe/runtime/agent/transfer_ids.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/random.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace troupe::sim::cluster {

/// Faults that the kernel does not know, and rare paths that the schedules must take now and
/// then.
enum class Mark : std::uint8_t {
  // faults
  kill_worker,
  kill_actor_worker,
  kill_starting_worker,
  kill_blocked_worker,
  kill_driver,
  kill_by_handle,
  kill_may_restart,
  worker_start_fails,
  worker_start_slow,
  slow_task,
  task_throws,
  flaky_task,
  constructor_throws,
  ring_small,
  ring_read_late,
  agent_pass_late,
  memory_short,
  bulk_lost,
  bulk_closed,
  pull_refused,
  report_burst,
  control_restart,
  commit_torn,
  bit_flip,
  agent_restart,
  resource_hog,
  late_probe,
  name_clash,
  link_window_small,
  backlog_small,
  carry_window_small,
  transfers_small,
  talk_dropped,
  kill_control_aimed,
  kill_maker_aimed,
  kill_idle_at_request,
  slow_news_of_death,
  node_slow,
  killed_in_a_frame,
  agent_stopped,
  agent_stopped_long,
  machine_slept,
  machine_slept_long,
  all_stopped,
  all_stopped_long,
  fault_count_,
  // rare paths
  spilled = fault_count_,
  spill_failed,
  remote_grant,
  handed_back,
  recalled,
  reclaimed,
  blocked,
  retried,
  forwarded,
  pulled,
  pulled_bulk,
  passed_on,
  remote_actor,
  actor_restarted,
  found_by_name,
  peer_reset,
  control_reset,
  node_declared_dead,
  node_exited,
  refused_store,
  held_answers,
  actor_halted,
  proxy_stalled,
  lost_object,
  killed_twice,
  next_life_waited,
  nested_got,
  placed_on_node,
  resumed,
  sent_elsewhere,
  lingered,
  in_flight_undone,
  second_attempt,
  served_beside_stopped,
  stood_still_alone,
  two_lives,
  count_
};
inline constexpr std::size_t kMarks = static_cast<std::size_t>(Mark::count_);
inline constexpr std::size_t kFaultMarks = static_cast<std::size_t>(Mark::fault_count_);
std::string_view name_of(Mark mark) noexcept;

/// What a task or method does. It travels as the bytes of the call's first argument.
struct Spec {
  enum class Kind : std::uint8_t {
    leaf,      ///< returns a small value
    large,     ///< returns a value in shared memory
    bulk,      ///< returns a value for the bulk connection
    nested,    ///< waits for children
    forward,   ///< returns its child's result
    bundle,    ///< returns a value with refs inside
    unwrap,    ///< opens the refs inside its argument
    throwing,  ///< throws in every attempt
    flaky,     ///< throws in its first attempt
    method,
    constructor
  };
  std::uint64_t id = 0;
  Kind kind = Kind::leaf;
  std::uint8_t fanout = 0, depth = 0;
  std::uint64_t run_ns = 0;
  std::uint64_t submission = 0;          ///< tasks: number of the submit() that made it
  std::uint64_t caller = 0, number = 0;  ///< methods: the number-th call of this caller
};

inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t state = a * 0x9e3779b97f4a7c15ULL ^ b;
  return splitmix64(state);
}
/// Returns the n-th child of a task. It is the same in each attempt.
inline Spec child_of(const Spec& parent, std::uint64_t n) {
  Spec child;
  child.id = mixed(parent.id, n + 1);
  const std::uint64_t dice = child.id % 100;
  using Kind = Spec::Kind;
  child.kind = dice < 40   ? Kind::leaf
               : dice < 55 ? Kind::large
               : dice < 70 ? Kind::bundle
                           : Kind::leaf;
  if (parent.depth > 0 && dice >= 70) {
    child.kind = dice < 85 ? Kind::nested : Kind::forward;
    child.depth = static_cast<std::uint8_t>(parent.depth - 1);
    child.fanout = static_cast<std::uint8_t>(1 + dice % 3);
  }
  if (child.kind == Kind::bundle) child.fanout = static_cast<std::uint8_t>(1 + dice % 3);
  child.run_ns = 100'000 + child.id % 3'000'000;
  return child;
}
/// Returns the content of the result of `spec`.
inline std::uint64_t content_of(const Spec& spec) {
  return spec.kind == Spec::Kind::forward ? content_of(child_of(spec, 0)) : mixed(spec.id, 0x76);
}

struct Truth {
  std::function<void(std::string)> fail;
  std::array<std::uint64_t, kMarks> marks{};
  std::uint64_t started_calls = 0, settled = 0, settled_ok = 0, excused = 0;
  /// Numbers of deaths and of broken talks so far, which can excuse an error.
  std::uint64_t process_deaths = 0, breaks = 0;
  bool user_throws = false;
  /// An actor may be lost when its node and control die together, before one has told the other.
  std::uint64_t node_deaths = 0, control_deaths = 0;
  /// Objects on their way over bulk connections, by receiving node and connection. A
  /// connection that is closed for its silence over one of them counts as broken by the network.
  std::map<std::pair<NodeId, agent::ConnectionId>, std::set<ObjectId>> on_bulk;

  void mark(Mark one) { ++marks[static_cast<std::size_t>(one)]; }
  void check(bool holds, const char* why) {
    if (!holds) fail(why);
  }

  // Objects.
  void promise(ObjectId object, std::uint64_t content) { promised_[object] = content; }
  void delivered(ObjectId object, std::uint64_t content) {
    const auto at = promised_.find(object);
    if (at != promised_.end() && at->second != content)
      fail("an object has another value than the one that was computed for it");
  }

  // Tasks. A task begins as often as its retries allow, and each attempt begins once. When the
  // caller has the result, only an attempt before the one that gave it may still begin. Such an
  // attempt was counted as begun when its worker was lost.
  void submitted(const Spec& spec, int retries) { tasks_[spec.submission].retries = retries; }
  /// Notes a second attempt beside a slow first one. Their order is not promised.
  void second_attempt(const Spec& spec) { tasks_[spec.submission].twice = true; }
  void began(const Spec& spec, std::uint32_t attempt) {
    Submission& task = tasks_[spec.submission];
    ++task.begun;
    if (task.ended && task.outcome == Outcome::not_executed)
      fail("a task that was called not executed was executed: " + task.how);
    if (task.twice) return;
    if (task.ended && task.outcome != Outcome::unknown && attempt >= task.ended_by)
      fail("a task was executed after its caller had its result: " + task.how);
    if (!task.attempts.insert(attempt).second) fail("an attempt of a task was executed twice");
    if (task.retries >= 0 && task.begun > task.retries + 1)
      fail("a task was executed more often than its retries allow");
  }
  void task_ended(const Spec& spec, std::uint32_t attempt, const Error* error) {
    Submission& task = tasks_[spec.submission];
    task.ended = true;
    task.ended_by = attempt;
    task.outcome = error == nullptr ? Outcome::executed : error->outcome();
    task.how = error == nullptr ? "a value" : error->what();
    if (task.outcome == Outcome::not_executed && task.begun > 0)
      fail("a task that was executed is called not executed: " + task.how);
  }

  // Methods.
  /// Notes a call that its caller makes after it has killed the actor for good.
  void after_kill(const Spec& spec) { after_kill_.insert(spec.id); }
  /// Checks that this life of the actor may begin the call. Returns true when it is the first
  /// call of a life that follows another.
  bool began(ActorId actor, std::uint64_t incarnation, const Spec& spec) {
    if (after_kill_.count(spec.id) != 0) fail("a call that came after kill() was executed");
    if (!begun_.insert(spec.id).second) fail("an actor call was executed twice");
    if (not_executed_.count(spec.id) != 0) fail("a call that was called not executed was executed");
    std::uint64_t& newest = newest_life_[actor];
    if (incarnation < newest) fail("an old life of an actor serves after a newer one did");
    const bool next_life = newest != 0 && incarnation > newest;
    newest = incarnation;
    std::uint64_t& last = last_call_[{actor, incarnation, spec.caller}];
    if (spec.number <= last) fail("calls of one caller began out of order");
    last = spec.number;
    const auto [life, first] = hosts_.try_emplace(incarnation, actor);
    if (!first && life->second != actor) fail("two actors share an incarnation");
    return next_life;
  }
  /// Checks that this life may answer a call.
  void answers(ActorId actor, std::uint64_t incarnation) {
    if (is_old(actor, incarnation))
      fail("an old life of an actor answers after a newer one served");
  }
  void method_ended(const Spec& spec, const Error* error) {
    if (error == nullptr) {
      if (begun_.count(spec.id) == 0) fail("a call that never began has a result");
    } else if (error->outcome() == Outcome::not_executed) {
      if (begun_.count(spec.id) != 0) fail("a call that was executed is called not executed");
      not_executed_.insert(spec.id);
    }
  }
  /// Notes that a process is this life of the actor, and checks that no other process is.
  void lives(ActorId actor, std::uint64_t incarnation, std::uint64_t process_key) {
    const auto [at, first] = processes_.try_emplace({actor, incarnation}, process_key);
    if (!first && at->second != process_key) fail("one life of an actor in two processes");
    if (is_old(actor, incarnation)) fail("an old life of an actor begins after a newer one served");
  }

  // What control says, by its epoch. A message of an earlier control may arrive late; the next
  // control then has the life stopped.
  void said_dead(ActorId actor, std::uint64_t incarnation, Epoch control) {
    const auto [at, first] = said_dead_.try_emplace(actor, incarnation, control);
    if (first || incarnation < at->second.first) return;
    if (incarnation > at->second.first || control < at->second.second)
      at->second = {incarnation, control};
  }
  void made(ActorId actor, std::uint64_t incarnation, Epoch control) {
    const auto dead = said_dead_.find(actor);
    if (dead != said_dead_.end() && incarnation > dead->second.first &&
        control >= dead->second.second)
      fail("an actor that was said to be dead is made anew");
  }
  void epoch_given(Epoch epoch, NodeId node) {
    const auto [at, first] = epochs_.try_emplace(epoch, node);
    if (!first && at->second != node) fail("two nodes have the same epoch");
  }
  std::set<JobId> ended_jobs;
  // Acknowledged by control.
  std::map<ActorId, std::string> acknowledged;  ///< detached and named, not killed since
  std::set<JobId> acknowledged_jobs;
  std::set<ActorId> killed;
  /// A spawn whose maker was told that there is no such actor.
  struct Refused {
    NodeId maker;
    bool made = false;  ///< the maker was told earlier that control had made it
  };
  std::map<ActorId, Refused> refused;
  /// The newest life that each node has told control to end with a restart.
  std::map<NodeId, std::map<ActorId, std::uint64_t>> killed_lives;

 private:
  bool is_old(ActorId actor, std::uint64_t incarnation) const {
    const auto newest = newest_life_.find(actor);
    return newest != newest_life_.end() && incarnation < newest->second;
  }
  struct Submission {
    std::int64_t retries = -1, begun = 0;
    bool twice = false, ended = false;
    std::uint32_t ended_by = 0;          ///< the attempt that gave the result
    Outcome outcome = Outcome::unknown;  ///< what the caller was told
    std::string how;
    std::set<std::uint32_t> attempts;  ///< attempts that have begun
  };
  std::map<std::uint64_t, Submission> tasks_;
  std::map<ObjectId, std::uint64_t> promised_;
  std::set<std::uint64_t> begun_, not_executed_, after_kill_;
  std::map<Epoch, NodeId> epochs_;
  std::map<ActorId, std::pair<std::uint64_t, Epoch>> said_dead_;  ///< a life, and its control
  std::map<ActorId, std::uint64_t> newest_life_;
  std::map<std::tuple<ActorId, std::uint64_t, std::uint64_t>, std::uint64_t> last_call_;
  std::map<std::uint64_t, ActorId> hosts_;
  std::map<std::pair<ActorId, std::uint64_t>, std::uint64_t> processes_;
};

}  // namespace troupe::sim::cluster
