/// What agents and control say to each other, and the bytes of it (control.capnp; conversations 3
/// to control, 4 from it, 5 between agents).
///
/// Most of it are the inputs and outputs of control's cores, as they are. Everything travels over a
/// Link, exactly once and in order. To control and from it, who sent a message and who gets it is
/// known from the connection and does not travel: `from`, `to` and the `node` of Heartbeat, Leaving
/// and NodeHosts are zero when they are read, and whoever receives the message sets what it needs.
/// Of a NodeReport's view only what changes travels: free, gpu_free, accepts and waiting; a
/// ClusterRow's is completed from its description.
///
///     Blob bytes = encode(ToControl(WatchActor{actor}));
///     Result<ToControl> m = decode_to_control(bytes);
#pragma once

#include "troupe/runtime/control/directory.hpp"
#include "troupe/runtime/control/jobs.hpp"
#include "troupe/runtime/control/key_values.hpp"
#include "troupe/runtime/control/membership.hpp"
#include "troupe/runtime/control/object_names.hpp"
#include "troupe/runtime/control/self_fencing.hpp"
#include "troupe/runtime/scheduling/policy.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe::control {

// --- agent -> control; RegisterNode, Heartbeat, Leaving, SpawnActor, NodeHosts, StartJob and
// NameObject are the cores' own

/// What the node has free; sent when it changed, at most every 100 ms.
struct NodeReport {
  scheduling::NodeView view;
  std::uint64_t store_capacity = 0, store_used = 0;  ///< bytes
  std::uint32_t workers = 0;
  std::vector<NodeId> unreachable;  ///< to which it gets no connection; at most kMaxUnreachable
};
inline constexpr std::size_t kMaxUnreachable = 64;
/// How long tasks ran there; at most twice a second.
struct NodePace {
  std::vector<wire::SitePace> sites;  ///< at most wire::kMaxSites
};
/// Answers StartActorAt.
struct ActorStarted {
  ActorId actor;
  std::uint64_t incarnation = 0;
  std::uint64_t worker = 0;
};
/// Answers StartActorAt. With an error the constructor threw; without, no worker could be had.
struct ActorStartFailed {
  ActorId actor;
  std::uint64_t incarnation = 0;
  std::shared_ptr<const ErrorInfo> error;
};
/// The process of an actor that had started is dead.
struct ActorGone {
  ActorId actor;
  std::uint64_t incarnation = 0;
  std::shared_ptr<const ErrorInfo> error;
  bool intended = false;  ///< it was told to end, or ended itself
};
struct KillActor {
  ActorId actor;
  bool may_restart = false;
  std::uint64_t life = 0;  ///< with may_restart: no later one than this; 0: the one that there is
  JobId job;               ///< whose process kills it; zero: the agent itself
  std::uint64_t request = 0;  ///< not 0: answered by ActorReply if it is refused
};
/// No handle is left anywhere (its lifetime object's owner says so).
struct HandlesGone {
  ActorId actor;
};
/// Answered by ActorReply.
struct FindActor {
  std::uint64_t request = 0;
  std::string name_space, name;
};
struct WatchActor {
  ActorId actor;
  bool on = true;
};
struct FinishJob {
  JobId job;
};
struct DriverDied {
  JobId job;
  std::string why;
};
/// Answered by JobInfo.
struct GetJob {
  std::uint64_t request = 0;
  JobId job;
};
/// Answered by KvReply.
struct KeyValueRequest {
  enum class Verb : std::uint8_t { get = 0, put = 1, erase = 2, list = 3 };
  std::uint64_t request = 0;
  Verb verb = Verb::get;
  std::string name_space, key;  ///< list: a prefix
  std::string value, expected;  ///< put
  PutMode mode = PutMode::always;
};
/// Answered by ListReply: what `troupe list` shows.
struct ListRequest {
  enum class What : std::uint8_t { nodes = 0, actors = 1, jobs = 2, objects = 3 };
  std::uint64_t request = 0;
  What what = What::nodes;
};
/// Nothing new on this node; it leaves when it is empty. Answered by ListReply of the nodes.
struct DrainRequest {
  std::uint64_t request = 0;
  NodeId node;
};

using ToControl =
    std::variant<RegisterNode, Heartbeat, Leaving, NodeReport, SpawnActor, ActorStarted,
                 ActorStartFailed, ActorGone, KillActor, HandlesGone, FindActor, WatchActor,
                 NodeHosts, StartJob, FinishJob, DriverDied, GetJob, KeyValueRequest, ListRequest,
                 DrainRequest, NodePace, NameObject>;

// --- control -> agent

/// One node as others need to know it: to reach it and to place work there.
struct ClusterRow {
  NodeDescription description;
  Epoch epoch = 0;
  bool suspect = false;
  bool draining = false;
  NodeReport report;
  bool avoided = false;  ///< it is slow: nothing new goes there that others can take
  std::string slow;      ///< why, or that it is tried again; empty: it is as fast as others
};
/// All live nodes; a higher version replaces a lower one. Sent at registration and when something
/// changed, at most every 100 ms.
struct ClusterNodes {
  std::uint64_t version = 0;
  std::vector<ClusterRow> rows;  ///< sorted by id; at most 4096
};
/// A node is dead for ever: what it had may be running elsewhere.
struct NodeIsDead {
  NodeId node;
  Epoch epoch = 0;
  std::string why;
};
struct JobInfo {
  std::uint64_t request = 0;
  std::optional<JobRecord> job;
};
struct ActorRow {
  ActorId actor;
  JobId job;
  std::string name, name_space, class_name;
  ActorState state = ActorState::pending;
  NodeId node;
  std::uint64_t incarnation = 0;
  std::uint32_t restarts = 0;
  bool detached = false;
  std::string why;  ///< dead: in a few words
};
struct ListReply {
  std::uint64_t request = 0;
  std::vector<ClusterRow> nodes;
  std::vector<ActorRow> actors;  ///< the newest first
  std::vector<JobRecord> jobs;
  std::vector<ObjectName> objects;  ///< in order of their names
  std::uint32_t left_off = 0;       ///< rows for which there was no room, the last ones
};

using FromControl =
    std::variant<Registered, HeartbeatAnswer, Roster, Fence, DrainNode, ClusterNodes, NodeIsDead,
                 StartActorAt, StopActorAt, ActorReply, ActorLocation, JobReply, JobEnded, JobInfo,
                 KvReply, ListReply, NamedObject, ObjectForgotten>;

/// Agent to agent, about control.
using BetweenAgents = std::variant<AskControl, ControlAnswer>;

/// The answer, with an error, to a message that has one; none for the others.
std::optional<FromControl> refusal_of(const ToControl& message,
                                      const std::shared_ptr<const ErrorInfo>& why);

// --- bytes

/// Errors: none: a message of ours that would break a bound is a broken invariant, except texts,
/// which are cut, and amounts beyond 2^61, which are that. The size is a multiple of 8 and may
/// exceed what a Link takes: compare before sending.
Blob encode(const ToControl& message);
Blob encode(const FromControl& message);
Blob encode(const BetweenAgents& message);
/// Checks every size, count, enum and text before use. Errors: invalid_argument with the field;
/// `unavailable` ("unsupported message N") for a kind that is not known. A message of over 1 MiB is
/// refused.
Result<ToControl> decode_to_control(BlobView bytes);
Result<FromControl> decode_from_control(BlobView bytes);
Result<BetweenAgents> decode_between_agents(BlobView bytes);

}  // namespace troupe::control
