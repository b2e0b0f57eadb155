/// Who is in the cluster: control's side. A plain state machine; agents run its counterpart,
/// SelfFencing.
///
///     Membership members({}, store_epoch, recovered, now);
///     Output<MembershipEvent> out = members.on_heartbeat(heartbeat, now);
///     timer.set(members.next_tick());                   // on_tick(now) drives every deadline
///
/// Life of a node: it registers and gets an epoch that was durable first; heartbeats every second;
/// suspect after 3 s of silence; dead after 10 s, fenced for ever by its epoch (the record is
/// deleted, epochs only grow, and whoever speaks with another epoch is told to end itself).
///
/// A process may be dead before it has heard its epoch: control died in between, and the next one
/// waited for it in vain. It still asks to be a member, and as a new one nobody would talk to it,
/// for its NodeId is dead. So a death is kept with the session and the key of its process,
/// written down together, and every later control has that process refused (FenceProcess): the
/// 1,024 with the highest epochs, for who has not heard its own is among the youngest. Some 200
/// bytes each, in memory and on disk; a node that is new costs one search of them.
///
/// Dead means dead: a node is declared only when it can no longer be alive.
/// - Its lease is over: an agent without control ends itself 10 s after it *sent* the last
/// heartbeat
///   that was answered, which is no later than 10 s after control received its last one; unless a
///   majority of the voters (up to 15 members) tells it that control is gone and it is not
///   fenced.
/// - So control fences a node at 6 s: it names it in the roster, and every voter that has applied
///   this roster answers "fenced" from then on. When a majority has (of each voter list that the
///   node may know), and the answers given before have run out (3 s), nobody can carry the node any
///   more. Ties go to the side of the agent beside control.
/// - Without such a majority control is itself the cut-off side: it declares nobody before the 60 s
///   are over for which an agent carries on.
/// - A closed connection declares a node at once when the probe says that its process is gone (its
///   host refuses the connection), and only makes it suspect otherwise.
/// Control's own lateness (it was stopped, or its disk was) is added to every deadline, and after a
/// standstill nobody is judged for two heartbeats: the nodes may have stood still with it. Control
/// must be awake for these 2 s, and a further standstill before it has judged adds none: it judges
/// even if it stands still again and again. After its start every node counts as heard now, so that
/// nobody dies in the first 10 s without having re-registered.
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
  std::string address;     ///< where its peers and probes reach it
  std::string public_key;  ///< CURVE
  scheduling::Resources resources;
  scheduling::Labels labels;
  bool beside_control = false;  ///< on control's host; wins ties
  friend bool operator==(const NodeDescription&, const NodeDescription&) = default;
};

// --- agent -> control

/// First message of a connection. `epoch` is zero for a new process, else the one it was given.
struct RegisterNode {
  NodeDescription node;
  Epoch epoch = 0;
  SessionId session;         ///< one start of the agent; makes a repeated registration harmless
  std::uint64_t number = 0;  ///< Reconnect's; comes back in the answer
};
/// Every second, and at once when a newer roster was applied.
struct Heartbeat {
  NodeId node;
  Epoch epoch = 0;
  std::uint64_t sequence = 0;
  std::uint64_t roster = 0;  ///< version applied last
};
/// The node has stopped its workers and ends itself.
struct Leaving {
  NodeId node;
  Epoch epoch = 0;
};

// --- control -> agent

/// Versioned, replaced as a whole: higher versions win for ever. Versions grow across restarts of
/// control (its epoch is the high half).
struct Roster {
  std::uint64_t version = 0;
  std::vector<NodeId> voters;  ///< sorted
  NodeId beside_control;
  std::vector<std::pair<NodeId, Epoch>> fenced;  ///< sorted; the lately dead too
};
struct Registered {
  Epoch epoch = 0;
  Epoch control_epoch = 0;
  SessionId session;  ///< and number: of the registration that is answered
  std::uint64_t number = 0;
};
struct HeartbeatAnswer {
  Epoch control_epoch = 0;
  std::uint64_t sequence = 0;
};
/// This epoch is over: end yourself now.
struct Fence {
  Epoch epoch = 0;
  std::string why;
};
struct DrainNode {};
using ToAgent = std::variant<Registered, HeartbeatAnswer, Roster, Fence, DrainNode>;

// --- out

struct SendToAgent {
  NodeId node;
  ToAgent message;
};
/// Find out whether the process with this session is at this address: connect and compare. It is
/// gone when the host refuses the connection or another session answers. on_probe is told.
struct Probe {
  NodeId node;
  Epoch epoch = 0;
  SessionId session;
  std::string address;
};
struct NodeUp {
  NodeId node;
  Epoch epoch = 0;
  bool again = false;  ///< it was up before control started (or reconnected); hear what it hosts
  std::uint64_t number = 0;  ///< of its registration
};
struct NodeSuspect {
  NodeId node;
  Epoch epoch = 0;
};
/// It was suspect and was heard again.
struct NodeHeard {
  NodeId node;
  Epoch epoch = 0;
};
/// It cannot be alive any more: what it had may be started elsewhere.
struct NodeDead {
  NodeId node;
  Epoch epoch = 0;
  std::string why;
};
struct NodeDraining {
  NodeId node;
  Epoch epoch = 0;
};
/// A dead process that cannot tell which Fence is its own: refuse its node up to this epoch.
struct FenceProcess {
  NodeId node;
  Epoch epoch = 0;
};
using MembershipEvent = std::variant<SendToAgent, Probe, NodeUp, NodeSuspect, NodeHeard, NodeDead,
                                     NodeDraining, FenceProcess>;

struct MembershipOptions {
  Duration tick = std::chrono::milliseconds(250);
  Duration regularly = std::chrono::seconds(2);  ///< heartbeats come every second
  Duration suspect_after = std::chrono::seconds(3);
  Duration fence_after = std::chrono::seconds(5);
  Duration dead_after = std::chrono::seconds(10);
  /// How long an agent may use an answer of a peer and doubt it afterwards (SelfFencing's), plus a
  /// margin.
  Duration answers_run_out = std::chrono::milliseconds(4500);
  /// Agents never carry on longer than 60 s; plus a margin.
  Duration carried_on = std::chrono::seconds(65);
  /// After a closed connection: a dying process closes them one after the other, so the door may
  /// answer once more. Then twice as late each time, until probe_interval.
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
  bool registered = false;  ///< with this start of control
};

/// A process that was declared dead.
struct Dead {
  NodeId node;
  SessionId session;
  std::string public_key;
};

class Membership {
 public:
  using Out = Output<MembershipEvent>;
  /// Reads the nodes and voter lists of an earlier life from the store; nodes count as heard now.
  /// invalid_argument when a record cannot be read.
  static Result<Membership> recover(Store& store, MembershipOptions options, Time now);
  /// An empty cluster under this control epoch.
  Membership(MembershipOptions options, Epoch control_epoch, Time now);

  Out on_register(const RegisterNode& message, Time now);
  Out on_heartbeat(const Heartbeat& message, Time now);
  Out on_leaving(const Leaving& message, Time now);
  /// The connection over which the node spoke last has closed.
  Out on_closed(NodeId node, Time now);
  /// `gone`: the host answered and there is no such process. Anything else is `false`.
  Out on_probe(NodeId node, Epoch epoch, bool gone, Time now);
  Out drain(NodeId node, Time now);
  /// Call after all messages that had arrived were handed in.
  Out on_tick(Time now);
  Time next_tick() const noexcept { return std::min(last_tick_ + options_.tick, next_probe_); }
  /// Since then each node has been heard within `regularly`, over one connection, and control was
  /// not late: what nodes had sent before has arrived.
  Time all_heard_since() const noexcept { return all_heard_since_; }

  /// Whether a message that carries this epoch may be accepted.
  bool is_current(NodeId node, Epoch epoch) const;
  std::optional<NodeRecord> find(NodeId node) const;
  std::vector<NodeRecord> nodes() const;
  const Roster& roster() const noexcept { return roster_; }
  /// By epoch: who may still ask to be a member.
  const std::map<Epoch, Dead>& tombstones() const noexcept { return tombstones_; }
  Epoch control_epoch() const noexcept { return control_epoch_; }

 private:
  struct Fencing {
    std::uint64_t version = 0;           ///< of the roster that names it first
    std::optional<Time> majority_since;  ///< on the patient clock
  };
  struct Node {
    NodeRecord record;
    Time heard{};  ///< on the patient clock
    /// It may hold any roster from `low` (applied, or the first one sent) to `sent` (0: none).
    std::uint64_t roster_low = 0, roster_applied = 0, roster_sent = 0;
    std::optional<Fencing> fencing;
    std::optional<Time> closed_since;
    Time next_probe{};
    Duration probe_wait{};  ///< after the next one
    bool leaving = false;
  };
  /// The monotonic clock less all lateness of control.
  Time patient(Time now) const noexcept { return now - lateness_; }
  void notice_lateness(Time now);
  void heard(Node& node, Out& out, Time now);
  void declare_dead(NodeId id, const std::string& why, Out& out, Time now);
  void bury(const NodeRecord& record, Out& out);
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
  /// Lists that some node may still act on, by the first roster version that had them.
  std::map<std::uint64_t, VoterList> voter_lists_;
  /// On the patient clock. They stay fenced in the roster for as long as an agent might carry
  /// on, and their answers to others run out too.
  std::map<std::pair<NodeId, Epoch>, Time> dead_since_;
  std::map<Epoch, Dead> tombstones_;
  Time last_tick_{};
  Time all_heard_since_;
  Time next_probe_ = Time::max();  ///< the first of any node, or before it
  Duration lateness_{};
  Time judges_from_{};  ///< for their silence, on the patient clock
  bool judged_ = true;  ///< since the last standstill that moved it
};

}  // namespace troupe::control
