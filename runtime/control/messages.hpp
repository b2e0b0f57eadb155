/// The messages between agents and control, and their bytes (control.capnp; conversations 3 to
/// control, 4 from it, 5 between agents).
///
/// Most messages are the inputs and outputs of control's cores. They travel over a Link, exactly
/// once and in order. The connection tells who sent a message to or from control and who receives
/// it. So `from`, `to`, and `node` of Heartbeat, Leaving and NodeHosts do not travel. They are zero
/// after reading, and the receiver sets those that it needs. Of a NodeReport's view only free,
/// gpu_free, accepts and waiting travel. The rest of a ClusterRow's view is filled in from its
/// description.
///
///     Blob bytes = encode(ToControl(WatchActor{actor}));
///     Result<ToControl> m = decode_to_control(bytes);
#pragma once

#include "troupe/runtime/control/dead_nodes.hpp"
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

/// What the node has free. Sent when it changed, at most every 100 ms.
struct NodeReport {
  scheduling::NodeView view;
  std::uint64_t store_capacity = 0, store_used = 0;  ///< bytes
  std::uint32_t workers = 0;
  std::vector<NodeId> unreachable;  ///< nodes without a connection; at most kMaxUnreachable
};
inline constexpr std::size_t kMaxUnreachable = 64;
/// How long tasks ran on the node. Sent at most twice a second.
struct NodePace {
  std::vector<wire::SitePace> sites;  ///< at most wire::kMaxSites
};
/// Answers StartActorAt.
struct ActorStarted {
  ActorId actor;
  std::uint64_t incarnation = 0;
  ProcessIndex worker;
};
/// Answers StartActorAt. With an error: the constructor threw, or the node can never take the
/// actor. Without: the agent had no worker for it.
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
  bool intended = false;  ///< the actor was told to end, or ended itself
};
struct KillActor {
  ActorId actor;
  bool may_restart = false;
  std::uint64_t life = 0;     ///< with may_restart: a later life than this is not killed; 0: any is
  JobId job;                  ///< the killing process's job; zero: the agent itself kills
  std::uint64_t request = 0;  ///< not 0: answered by ActorReply if it is refused
};
/// No handle of the actor is left anywhere. Sent by the owner of its lifetime object.
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
  /// Not empty: a person has stopped the job. How its driver then ended does not count.
  std::string stopped_why{};
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
/// Asks that the node gets no new work and leaves when it is empty, or else after `within`.
/// Answered by ListReply of the nodes.
struct DrainRequest {
  std::uint64_t request = 0;
  NodeId node;
  Duration within = Duration::max();
};

using ToControl =
    std::variant<RegisterNode, Heartbeat, Leaving, NodeReport, SpawnActor, ActorStarted,
                 ActorStartFailed, ActorGone, KillActor, HandlesGone, FindActor, WatchActor,
                 NodeHosts, StartJob, FinishJob, DriverDied, GetJob, KeyValueRequest, ListRequest,
                 DrainRequest, NodePace, NameObject>;

// --- control -> agent

/// One node with what others need to reach it and to place work there.
struct ClusterRow {
  NodeDescription description;
  Epoch epoch = 0;
  bool suspect = false;
  bool draining = false;
  NodeReport report;
  bool avoided = false;  ///< it is slow: it gets no new work that others can take
  std::string slow;      ///< why, or that it is tried again; empty: it is as fast as others
};
/// All live nodes; a higher version replaces a lower one. Sent at registration and when something
/// changed, at most every 100 ms.
struct ClusterNodes {
  std::uint64_t version = 0;
  std::vector<ClusterRow> rows;  ///< sorted by id; at most 4096
};
/// A node is dead for ever. Its actors may be running elsewhere.
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
  std::vector<ObjectName> objects;   ///< in order of their names
  std::uint32_t left_off = 0;        ///< how many rows had no room; the last ones are missing
  std::vector<DeadNode> dead_nodes;  ///< with the nodes; at most DeadNodes::kMost, the newest first
};

/// Tells every registered agent that the head ends the cluster. The agent ends its node.
struct ClusterEnds {
  std::string why;  ///< a sentence
};

/// Tells the agent beside control what control has put into its log, so that it becomes an event.
struct Notice {
  enum class Kind : std::uint8_t { refused = 0, actor_trouble = 1, slow_node = 2 };
  Kind kind = Kind::refused;
  std::string text;  ///< one line
};

using FromControl =
    std::variant<Registered, HeartbeatAnswer, Roster, Fence, DrainNode, ClusterNodes, NodeIsDead,
                 StartActorAt, StopActorAt, ActorReply, ActorLocation, JobReply, JobEnded, JobInfo,
                 KvReply, ListReply, NamedObject, ObjectForgotten, ClusterEnds, Notice>;

/// Agent to agent, about control.
using BetweenAgents = std::variant<AskControl, ControlAnswer>;

/// Returns the answer with this error, if the message is one that has an answer.
std::optional<FromControl> refusal_of(const ToControl& message,
                                      const std::shared_ptr<const ErrorInfo>& why);

// --- bytes

/// Returns the message's bytes. Texts are cut to their bounds and amounts to 2^61. Any other bound
/// that a message breaks is a broken invariant. The size is a multiple of 8 and may exceed what a
/// Link takes: compare before sending.
Blob encode(const ToControl& message);
Blob encode(const FromControl& message);
Blob encode(const BetweenAgents& message);
/// Reads a message and checks every size, count, enum and text before use. Errors: invalid_argument
/// with the field, also for a message of over 1 MiB; `unavailable` ("unsupported message N") for an
/// unknown kind.
Result<ToControl> decode_to_control(BlobView bytes);
Result<FromControl> decode_from_control(BlobView bytes);
Result<BetweenAgents> decode_between_agents(BlobView bytes);

}  // namespace troupe::control
