/// Control's record of the cluster's nodes: it admits them, watches their heartbeats and declares
/// them dead. A plain state machine; agents run its counterpart, SelfFencing.
///
///     Membership members({}, store_epoch, recovered, now);
///     Output<MembershipEvent> out = members.on_heartbeat(heartbeat, now);
///     timer.set(members.next_tick());                   // on_tick(now) drives every deadline
///
/// A node's way. It registers and gets an epoch, which is durable first. It sends a heartbeat every
/// second. It is suspect after 3 s of silence. After 10 s control may declare it dead, under the
/// conditions below; after 65 s it does. Death is for ever: the node's record is deleted, epochs
/// only grow, and a message with another epoch is answered by Fence.
///
/// A process may be declared dead before it has heard its epoch: control dies in between, and the
/// next control waits for the process in vain. Such a process still registers with epoch 0. Control
/// must not admit it as new, since all nodes refuse its NodeId. Therefore a death is stored with
/// the session and the key of its process, and every later control refuses that process
/// (FenceProcess). Control keeps the 1,024 deaths with the highest epochs, since a process that has
/// not heard its epoch is among the youngest. Each takes about 200 bytes in memory and on disk. The
/// registration of a new node costs one search of them.
///
/// Control declares a node dead only when its process can serve no more:
/// - The node's lease is over. An agent without control ends itself 10 s after it *sent* the last
///   heartbeat that was answered, which is at most 10 s after control received its last one. It may
///   carry on longer if a majority of the voters (up to 15 members) answers that they do not hear
///   control and that the node is not fenced.
/// - Therefore control fences a silent node after `fence_after`: it names the node in the roster,
///   and every voter that has applied this roster answers "fenced" from then on. Control waits for
///   a majority of each voter list that the node may know. When the answers given before have
///   expired too (`answers_run_out`), no majority can carry the node. A tie goes to the side of the
///   agent beside control.
/// - Without such a majority control itself may be cut off. It then declares the node dead only
///   after `carried_on`, when an agent carries on no longer.
/// - When a node's connection closes, control probes its address. If the host refuses the
///   connection, the process is gone and the node is dead at once. Otherwise the node is suspect.
///
/// Control's own lateness (the process or its disk stood still) is added to every deadline. After a
/// standstill control judges nobody for two heartbeats, since the nodes may have stood still too.
/// Control must be awake for these 2 s. A further standstill before it has judged adds no pause, so
/// it judges even if it stands still again and again. After control's start every node counts as
/// heard, so no node dies in the first 10 s just because it has not registered again.
/// Sources: leases, Gray and Cheriton 1989; majority promises as in Paxos' phase 1, Lamport 1998.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/output.hpp"
#include "troupe/runtime/scheduling/resources.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace troupe::control {

/// What a node says of itself.
struct NodeDescription {
  NodeId id;
  std::string name;
  std::string address;     ///< at which other nodes and control's probes reach it
  std::string public_key;  ///< CURVE
  scheduling::Resources resources;
  scheduling::Labels labels;
  bool beside_control = false;  ///< on control's host; its vote decides a tie
  friend bool operator==(const NodeDescription&, const NodeDescription&) = default;
};

// --- agent -> control

/// The first message of a connection. `epoch` is zero for a new process, else the one that control
/// gave it.
struct RegisterNode {
  NodeDescription node;
  Epoch epoch = 0;
  SessionId session;         ///< one start of the agent; makes a repeated registration harmless
  std::uint64_t number = 0;  ///< as in Reconnect; `Registered` repeats it
};
/// Sent every second, and at once when the agent has applied a newer roster.
struct Heartbeat {
  NodeId node;
  Epoch epoch = 0;
  std::uint64_t sequence = 0;
  std::uint64_t roster = 0;  ///< version applied last
};
/// Why a node that has said Leaving is dead.
inline constexpr const char* kHasLeft = "it has left";
/// Sent when the node has stopped its workers and ends itself.
struct Leaving {
  NodeId node;
  Epoch epoch = 0;
};

// --- control -> agent

/// The voters and the fenced nodes. A roster with a higher version replaces a lower one as a whole.
/// Versions grow across restarts of control: its epoch is the high half.
struct Roster {
  std::uint64_t version = 0;
  std::vector<NodeId> voters;  ///< sorted
  NodeId beside_control;
  std::vector<std::pair<NodeId, Epoch>> fenced;  ///< sorted; those that died lately too
};
struct Registered {
  Epoch epoch = 0;
  Epoch control_epoch = 0;
  SessionId session;         ///< of the RegisterNode that is answered
  std::uint64_t number = 0;  ///< likewise
};
struct HeartbeatAnswer {
  Epoch control_epoch = 0;
  std::uint64_t sequence = 0;
};
/// Tells an agent that its epoch is over: the process must end now.
struct Fence {
  Epoch epoch = 0;
  std::string why;
};
/// Tells an agent that its node takes nothing new, and leaves when it is empty or after `within`.
struct DrainNode {
  Duration within = Duration::max();
};
using ToAgent = std::variant<Registered, HeartbeatAnswer, Roster, Fence, DrainNode>;

// --- out

struct SendToAgent {
  NodeId node;
  ToAgent message;
};
/// Asks the shell to find out whether a process listens at this address, by a connection. The
/// answer goes to on_probe.
struct Probe {
  NodeId node;
  Epoch epoch = 0;
  SessionId session;
  std::string address;
};
struct NodeUp {
  NodeId node;
  Epoch epoch = 0;
  bool again = false;        ///< it registered before, with this control or an earlier one
  std::uint64_t number = 0;  ///< of its registration
};
struct NodeSuspect {
  NodeId node;
  Epoch epoch = 0;
};
/// The node was suspect and a message of it has arrived.
struct NodeHeard {
  NodeId node;
  Epoch epoch = 0;
};
/// The node's process can serve no more: its actors may be started elsewhere.
struct NodeDead {
  NodeId node;
  Epoch epoch = 0;
  std::string why;
};
struct NodeDraining {
  NodeId node;
  Epoch epoch = 0;
};
/// Asks the shell to refuse every message of this node up to this epoch. It serves for a dead
/// process that does not know its epoch, and so cannot tell whether a Fence is meant for it.
struct FenceProcess {
  NodeId node;
  Epoch epoch = 0;
};
using MembershipEvent = std::variant<SendToAgent, Probe, NodeUp, NodeSuspect, NodeHeard, NodeDead,
                                     NodeDraining, FenceProcess>;

struct MembershipOptions {
  Duration tick = std::chrono::milliseconds(250);
  Duration regularly = std::chrono::seconds(2);  ///< longest silence of a node that is well
  Duration suspect_after = std::chrono::seconds(3);
  Duration fence_after = std::chrono::seconds(5);
  Duration dead_after = std::chrono::seconds(10);
  /// SelfFencing's `answer_lasts` and `doubt_for`, plus a margin: how long an agent may serve on an
  /// answer of a voter and live after it.
  Duration answers_run_out = std::chrono::milliseconds(4500);
  /// SelfFencing's `carry_on`, plus a margin.
  Duration carried_on = std::chrono::seconds(65);
  /// Time to the second probe after a closed connection. A dying process closes its sockets one
  /// after the other, so its door may still answer the first probe. Each further wait is twice as
  /// long, up to probe_interval.
  Duration probe_again = std::chrono::milliseconds(10);
  Duration probe_interval = std::chrono::milliseconds(500);
  std::size_t max_voters = 15;
  std::size_t max_tombstones = 1024;
};

enum class NodeState : std::uint8_t { up, suspect };

/// What `troupe list nodes` shows.
struct NodeRecord {
  NodeDescription description;
  SessionId session;
  Epoch epoch = 0;
  NodeState state = NodeState::up;
  bool draining = false;
  Duration drain_within = Duration::max();  ///< the time to leave, and when it ends
  Time drain_by = Time::max();
  bool registered = false;  ///< with this start of control
};

/// The record of a process that was declared dead.
struct Dead {
  NodeId node;
  SessionId session;
  std::string public_key;
};

class Membership {
 public:
  using Out = Output<MembershipEvent>;
  /// Reads the nodes, voter lists and deaths that an earlier control stored. Its nodes count as
  /// heard now. Errors: invalid_argument when a record cannot be read.
  static Result<Membership> recover(Store& store, MembershipOptions options, Time now);
  /// Makes an empty cluster under this control epoch.
  Membership(MembershipOptions options, Epoch control_epoch, Time now);

  Out on_register(const RegisterNode& message, Time now);
  Out on_heartbeat(const Heartbeat& message, Time now);
  Out on_leaving(const Leaving& message, Time now);
  /// Call when the connection over which the node spoke last has closed.
  Out on_closed(NodeId node, Time now);
  /// Takes the result of a Probe. `gone`: the host refused the connection; false after any other
  /// outcome.
  Out on_probe(NodeId node, Epoch epoch, bool gone, Time now);
  /// The node gets nothing new, and is told to leave within this time. A later call changes the
  /// time. A node that registers again, as after a restart of control, is told again how much of it
  /// is left.
  Out drain(NodeId node, Duration within, Time now);
  /// Judges silent nodes. Call it after all messages that have arrived were handed in.
  Out on_tick(Time now);
  Time next_tick() const noexcept { return std::min(last_tick_ + options_.tick, next_probe_); }
  /// Returns the time since which each node has been heard within `regularly`, over one connection,
  /// and control was not late. Messages that nodes sent before that time have arrived.
  Time all_heard_since() const noexcept { return all_heard_since_; }

  /// Returns whether a message that carries this epoch may be accepted.
  bool is_current(NodeId node, Epoch epoch) const;
  std::optional<NodeRecord> find(NodeId node) const;
  std::vector<NodeRecord> nodes() const;
  const Roster& roster() const noexcept { return roster_; }
  /// The recorded deaths by epoch: their processes may still ask to be members.
  const std::map<Epoch, Dead>& tombstones() const noexcept { return tombstones_; }
  Epoch control_epoch() const noexcept { return control_epoch_; }

 private:
  // "Patient" times are on the clock of patient().
  struct Fencing {
    std::uint64_t version = 0;           ///< of the first roster that names the node
    std::optional<Time> majority_since;  ///< patient; when a majority had promised
  };
  struct Node {
    NodeRecord record;
    Time heard{};  ///< patient
    /// The node may hold any roster version from `roster_low` (applied, or the first one sent) to
    /// `roster_sent` (0: none).
    std::uint64_t roster_low = 0, roster_applied = 0, roster_sent = 0;
    std::optional<Fencing> fencing;
    std::optional<Time> closed_since;
    Time next_probe{};
    Duration probe_wait{};  ///< from the next probe to the one after it
    bool leaving = false;
  };
  /// Returns the monotonic time less all lateness of control.
  Time patient(Time now) const noexcept { return now - lateness_; }
  void notice_lateness(Time now);
  void heard(Node& node, Out& out, Time now);
  void declare_dead(NodeId id, const std::string& why, Out& out, Time now);
  void keep_tombstone(const NodeRecord& record, Out& out);
  std::optional<Epoch> epoch_of_dead(NodeId id, SessionId session) const;
  void refence(NodeId id, Epoch epoch, Out& out) const;
  void closed(Node& node, Time now);
  void examine(NodeId id, Out& out, Time now);
  struct VoterList {
    std::vector<NodeId> voters;
    NodeId beside_control;
  };
  void begin_fencing(Node& node, Out& out, Time now);
  bool majority_promised(const Node& fenced, Time now) const;
  bool promised(NodeId voter, const Node& fenced, Time now) const;
  bool is_majority(const VoterList& list, const Node& fenced, Time now) const;
  void add_node(const RegisterNode& message, Out& out, Time now);
  void welcome(Node& node, std::uint64_t number, bool again, Out& out, Time now);
  static void tell_to_drain(const Node& node, Out& out, Time now);
  void change_roster(Out& out);
  void send_roster(Node& node, Out& out);
  VoterList choose_voters() const;
  void prune_voter_lists(Out& out);
  void write_node(const Node& node, Out& out) const;

  MembershipOptions options_;
  Epoch control_epoch_;
  Epoch last_epoch_ = 0;  ///< of any node, ever
  std::map<NodeId, Node> nodes_;
  Roster roster_;
  /// The voter lists that some node may still act on, by the first roster version that had them.
  std::map<std::uint64_t, VoterList> voter_lists_;
  /// Patient. A dead node stays fenced in the roster for as long as its agent might carry on. The
  /// answers that a dead voter has given expire `answers_run_out` after its death.
  std::map<std::pair<NodeId, Epoch>, Time> dead_since_;
  std::map<Epoch, Dead> tombstones_;
  Time last_tick_{};
  Time all_heard_since_;
  Time next_probe_ = Time::max();  ///< when the first probe of any node is due, or earlier
  Duration lateness_{};
  Time judges_from_{};  ///< patient; no node is fenced or declared dead for silence before
  bool judged_ = true;  ///< whether control has judged since the standstill that set judges_from_
};

}  // namespace troupe::control
