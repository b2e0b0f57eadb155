/// All cores of control behind one interface: membership, actors, jobs, names and key-values, with
/// the one queue between them and the disk and the view in which actors are placed. A plain state
/// machine; Server is the process around it.
///
///     auto service = Service::open(*store, {}, out, now).value();
///     service->on_message(node, message, now);                    // all that arrived, then
///     if (service->next_tick() <= now) service->on_tick(now);
///     if (service->has_commit()) disk.start(service->begin_commit());
///     // ... on the disk's thread: store->commit(group, Need::essential)
///     service->finish_commit(now);
///
/// A message that depends on a write reaches `Out` in finish_commit(), never before. The service
/// itself uses the store in open(), and for its free space while no commit is under way.
///
/// Requests of a node that has not registered with this control are answered `unavailable`, or
/// dropped when they have no answer. An agent therefore sends after every `Registered`: NodeHosts,
/// NodeReport, its watches, the ends of actors and drivers that it has not been able to report, and
/// its requests without an answer.
#pragma once

#include "troupe/runtime/control/admissions.hpp"
#include "troupe/runtime/control/authority.hpp"
#include "troupe/runtime/control/claims.hpp"
#include "troupe/runtime/control/hosts_pages.hpp"
#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/control/node_table.hpp"
#include "troupe/runtime/control/placing.hpp"
#include "troupe/runtime/control/slow_nodes.hpp"
#include "troupe/runtime/control/write_gate.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::control {

struct ServiceOptions : AdmissionsOptions, HostsPagesOptions, PlacingOptions {
  MembershipOptions membership;
  DirectoryOptions directory;
  JobOptions jobs;
  KeyValueOptions key_values;
  SlowNodesOptions slow_nodes;
  /// Least time between two ClusterNodes; stretched in clusters of over 64 nodes.
  Duration broadcast_interval = std::chrono::milliseconds(100);
  /// Requests that write are refused (`overloaded`) while more than this waits for the disk.
  std::size_t max_waiting_bytes = 8u << 20;
  /// Wall clock in nanoseconds, for people; null: zero.
  std::function<std::int64_t()> wall_clock;
};

class Service {
 public:
  /// The service's way out: messages, probes and keys. The service calls it from within its own
  /// calls; an implementation must not call the service back.
  class Out {
   public:
    virtual ~Out() = default;
    virtual void send(NodeId to, const FromControl& message) = 0;
    /// The same message to each of them.
    virtual void broadcast(const std::vector<NodeId>& to, const FromControl& message) = 0;
    /// Answered by on_probe.
    virtual void probe(const Probe& probe) = 0;
    /// Accepts this node's key from now on: the node has joined, or an earlier control knew it.
    virtual void admit(const NodeDescription& node) = 0;
    /// Refuses messages of this node below that epoch and tells the node: it is dead.
    virtual void fence(NodeId node, Epoch least) = 0;
    /// Forgets the node's key.
    virtual void revoke(NodeId node) = 0;
    /// Writes one log line for people.
    virtual void say(const std::string& line) = 0;
    /// Answers a join. Without an error the node is admitted.
    virtual void joined(std::uint64_t request, const std::shared_ptr<const ErrorInfo>& error) = 0;
  };

  /// Recovers all cores from the store and reads all of it. `store` and `out` outlive the service.
  /// Errors: those of Membership::recover and of the other cores' recover().
  static Result<std::unique_ptr<Service>> open(Store& store, ServiceOptions options, Out& out,
                                               Time now);

  // In. `from` is the node to which the connection belongs. The sender's NodeId inside a message is
  // ignored.

  void on_message(NodeId from, const ToControl& message, Time now);
  void on_closed(NodeId node, Time now);
  /// Call when the node's Link begins anew, so that messages to it may be lost. When the node has
  /// registered again, a start that it neither answered nor lists in NodeHosts is placed again.
  void on_reset(NodeId node, Time now);
  void on_probe(NodeId node, Epoch epoch, bool gone, Time now);
  /// Lets a node join that has a valid token (`token`: its public half, as text). The node and the
  /// spent token are durable before Out::joined() answers.
  void on_join(std::uint64_t request, const std::string& token, const NodeDescription& node,
               Time now);
  /// Acts on deadlines. Call it after all messages that have arrived were handed in.
  void on_tick(Time now);
  Time next_tick() const;
  /// Tells every registered node that the cluster ends. Their Leaving follows.
  void end_cluster(const std::string& why);
  /// Returns whether any node is registered.
  bool has_listeners() const;

  // The disk: begin_commit(), then Store::commit(group, Need::essential) on any thread, then
  // finish_commit(). A commit that fails ends the process.

  bool has_commit() const noexcept { return queue_.has_work(); }
  /// Valid until finish_commit(). Precondition: has_commit().
  const std::vector<Batch>& begin_commit();
  void finish_commit(Time now);

  // Observe.

  const Membership& members() const noexcept { return members_; }
  const Directory& actors() const noexcept { return actors_; }
  const Jobs& jobs() const noexcept { return jobs_; }
  const scheduling::ClusterView& view() const noexcept { return placing_.view(); }
  std::size_t waiting_actors() const noexcept { return placing_.waiting().size(); }
  /// Returns whether a waiting actor has room in the present view. It is then placed soon.
  bool has_room_for_waiting() const { return placing_.has_room_for_waiting(); }
  Epoch control_epoch() const noexcept { return members_.control_epoch(); }
  /// Returns whether a node has joined with this token, at this or an earlier control.
  bool is_spent(const std::string& token) const { return admissions_.is_spent(token); }

 private:
  /// An answer that leaves when the writes before it are durable.
  struct Answer {
    NodeId to;
    FromControl message;
  };
  /// An answer with all nodes. It is composed when the writes before it are durable.
  struct AnswerNodes {
    NodeId to;
    std::uint64_t request = 0;
  };
  struct Admit {
    std::uint64_t request = 0;
    NodeDescription node;
  };
  using Event = std::variant<MembershipEvent, DirectoryEvent, JobEvent, KvReply, ObjectNameEvent,
                             Answer, AnswerNodes, Admit>;
  Service(Store& store, ServiceOptions options, Out& out, Time now, Membership members,
          Directory actors, Jobs jobs, KeyValues values, ObjectNames names, DeadNodes dead,
          Admissions admissions);
  void begin(Time now);

  template <class E>
  void run(Output<E> output, Time now);
  void tell(Notice::Kind kind, const std::string& line);
  void answer(NodeId to, FromControl message, Time now);
  void settle(Time now);
  void follow(const Placing::Verdict& verdict, Time now);
  void place_waiting(Time now);
  std::shared_ptr<const ErrorInfo> refusal();
  std::optional<Epoch> epoch_of(NodeId node) const;

  // Handlers of messages. The sender is registered in `epoch`; the first three messages may come
  // from any agent, and `epoch` may be zero.
  struct Sender {
    NodeId node;
    Epoch epoch = 0;
  };
  void on(SpawnActor message, Sender from, Time now);
  void on(const ActorStarted& message, Sender from, Time now);
  void on(const ActorStartFailed& message, Sender from, Time now);
  void on(const ActorGone& message, Sender from, Time now);
  void on(const KillActor& message, Sender from, Time now);
  void on(const HandlesGone& message, Sender from, Time now);
  void on(const FindActor& message, Sender from, Time now);
  void on(const WatchActor& message, Sender from, Time now);
  void on(NodeHosts message, Sender from, Time now);
  void on_hosts(const NodeHosts& message, Sender from, Time now);
  void on(StartJob message, Sender from, Time now);
  void on(const FinishJob& message, Sender from, Time now);
  void end_job(JobId job, JobState state, const std::string& why, Time now);
  void on(const DriverDied& message, Sender from, Time now);
  void on(const GetJob& message, Sender from, Time now);
  void on(const KeyValueRequest& message, Sender from, Time now);
  void on(const NameObject& message, Sender from, Time now);
  void on(const ListRequest& message, Sender from, Time now);
  void refuse(NodeId from, const ToControl& message, const std::shared_ptr<const ErrorInfo>& why);
  void object_to(NodeId from, const ToControl& message);

  void carry_out(const MembershipEvent& event, Time now);
  void carry_out(const DirectoryEvent& event, Time now);
  void carry_out(const JobEvent& event, Time now);
  void carry_out(const KvReply& event, Time now);
  void carry_out(const ObjectNameEvent& event, Time now);
  void carry_out(const Answer& event, Time now);
  void carry_out(const AnswerNodes& event, Time now);
  void carry_out(const Admit& event, Time now);
  // The nodes: service_nodes.cpp.
  void on(const RegisterNode& message, Sender from, Time now);
  void on(Heartbeat message, Sender from, Time now);
  void on(Leaving message, Sender from, Time now);
  void on(const NodeReport& message, Sender from, Time now);
  void on(const NodePace& message, Sender from, Time now);
  void on(const DrainRequest& message, Sender from, Time now);
  void note_dead(Output<MembershipEvent>& output);
  void on_node(const NodeUp& event, Time now);
  void on_node(const NodeSuspect& event, Time now);
  void on_node(const NodeHeard& event, Time now);
  void on_node(const NodeDraining& event, Time now);
  void on_node(const NodeDead& event, Time now);
  void on_node(const FenceProcess& event, Time now);
  void on_node(const SendToAgent& event, Time now);
  void on_node(const Probe& event, Time now);
  void forget_join(NodeId node, Time now);
  void look_for_slow(Time now);

  // Telling: service_lists.cpp.
  void list_actors(ListReply& reply) const;
  void list_jobs(ListReply& reply) const;
  void list_names(ListReply& reply) const;
  ClusterNodes cluster_nodes();
  void introduce(NodeId newcomer);
  void nodes_changed(Time now);
  void broadcast_nodes(Time now);
  void tell_ended_jobs(NodeId node, Time now);
  std::int64_t wall_now() const { return options_.wall_clock ? options_.wall_clock() : 0; }

  Store& store_;
  ServiceOptions options_;
  Out& out_;
  Membership members_;
  Directory actors_;
  /// Jobs whose drivers have ended and whose actors have not: how, and why the driver ended.
  std::map<JobId, std::pair<JobState, std::string>> ending_jobs_;
  Jobs jobs_;
  KeyValues values_;
  ObjectNames names_;
  DeadNodes dead_;
  Admissions admissions_;
  SlowNodes slow_;
  CommitQueue<Event> queue_;
  WriteGate gate_;
  Claims claims_{actors_, jobs_};
  Authority authority_{claims_};
  std::map<NodeId, std::uint64_t> objections_;  ///< how many messages of each were not allowed

  NodeTable nodes_;
  HostsPages pages_;
  Placing placing_;
  std::uint64_t nodes_version_ = 0;
  std::optional<Time> broadcast_at_;
  Time last_broadcast_{};
};

}  // namespace troupe::control
