/// What the Directory hears from agents and what it tells them: actors, their places and their ends.
/// Plain data.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/scheduling/policy.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::control {

/// Everything that a node needs to make the actor.
struct ActorSpec {
  ActorId id;
  JobId job;
  std::string name;  ///< empty: none
  std::string name_space;
  std::string class_name;
  std::string creation;  ///< the constructor's call; opaque here
  ObjectId lifetime;     ///< the object that its handles count ...
  NodeId owner;          ///< ... and the node that keeps these counts
  scheduling::ResourceDemand demand;
  std::int32_t max_restarts = 0;                       ///< -1: without limit
  Duration restart_window = std::chrono::seconds(60);  ///< zero: the actor's whole existence
  bool detached = false;
};

enum class ActorState : std::uint8_t { pending = 0, placing, alive, restarting, dead };
std::string_view name_of(ActorState state) noexcept;

/// What watchers of an actor receive: its state and place.
struct ActorLocation {
  ActorId actor;
  ActorState state = ActorState::pending;
  std::uint64_t incarnation = 0;
  NodeId node;  ///< alive: where
  Epoch epoch = 0;
  ProcessIndex worker;
  /// Dead: the cause. Neither dead nor alive: how its last life ended, if it had one.
  std::shared_ptr<const ErrorInfo> error;
  Duration retry_in{};  ///< pause until its next life, counted from the sending of this message
};

// --- in

struct SpawnActor {
  NodeId from;
  std::uint64_t request = 0;
  ActorSpec spec;
  bool get_if_exists = false;
  bool again = false;  ///< it was sent to an earlier control, which may have begun a life of it
};
/// One actor in the NodeHosts of an agent.
struct HostedActor {
  ActorSpec spec;
  std::uint64_t incarnation = 0;
  ProcessIndex worker;         ///< 0: it is being made; ActorStarted or ActorStartFailed follows
  std::uint32_t restarts = 0;  ///< so far, within its window
  /// The process of this life is gone, and the agent has not heard what followed. Its ActorGone
  /// comes again.
  bool ended = false;
};
/// Agent -> control after each Registered, behind the ActorStarted that it sends again: all actors
/// that the node hosts. Pages count only when all of them have arrived.
struct NodeHosts {
  NodeId node;
  Epoch epoch = 0;
  /// As in Registered. From then on the agent refuses starts by an older control.
  Epoch control_epoch = 0;
  std::vector<HostedActor> actors;
  std::uint32_t page = 0;
  bool more = false;         ///< the next page follows
  std::uint64_t number = 0;  ///< of the Registered that it follows
};

// --- out

/// Asks Service to choose a node for this demand; on_placed or on_unplaceable answers.
struct PlaceActor {
  ActorId actor;
  std::uint64_t incarnation = 0;
  scheduling::ResourceDemand demand;
};
/// Tells an agent to start a life. It always answers with ActorStarted or ActorStartFailed, also
/// when it refuses the start for its epochs.
struct StartActorAt {
  NodeId node;
  Epoch epoch = 0;
  std::shared_ptr<const ActorSpec> spec;
  std::uint64_t incarnation = 0;
  bool restarted = false;
  std::uint32_t restarts = 0;  ///< so far, within its window
};
/// Tells an agent to end a life. The agent reports the worker's death like any other (ActorGone).
struct StopActorAt {
  NodeId node;
  Epoch epoch = 0;
  ActorId actor;
  std::uint64_t incarnation = 0;
  bool graceful = false;  ///< the actor first finishes the calls it received; else it is killed
  std::string why;
  /// No other life follows. The agent reports the end as intended, also to a later control that
  /// does not know of this stop.
  bool for_good = false;
};
/// Answer to a spawn or a find.
struct ActorReply {
  NodeId to;
  std::uint64_t request = 0;
  ActorId actor;  ///< zero: not found, or an error
  std::string class_name;
  ObjectId lifetime;  ///< as in its ActorSpec
  NodeId owner;
  bool created = false;  ///< false: get_if_exists found it
  std::shared_ptr<const ErrorInfo> error;
};
struct ActorUpdateTo {
  NodeId watcher;
  ActorLocation location;
};
/// A log line for people: the actor's lives end again and again. Comes at the 4th, 8th, 16th …
/// short life in a row.
struct ActorTrouble {
  std::string line;
};
/// Answer to on_job_ending: every actor of the job that is not detached has ended, or was killed
/// because its time was over.
struct JobIdle {
  JobId job;
};
using DirectoryEvent = std::variant<PlaceActor, StartActorAt, StopActorAt, ActorReply,
                                    ActorUpdateTo, ActorTrouble, JobIdle>;

}  // namespace troupe::control
