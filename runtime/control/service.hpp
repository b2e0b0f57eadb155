/// All of control behind one interface: membership, actors, jobs and key-values, the one queue
/// between them and the disk, and the view in which actors are placed. A plain state machine;
/// Server is the process around it.
///
///     auto service = Service::open(*store, {}, out, now).value();
///     service->on_message(node, message, now);                    // all that arrived, then
///     if (service->next_tick() <= now) service->on_tick(now);
///     if (service->has_commit()) disk.start(service->begin_commit());   // on its own thread:
///     service->finish_commit(now);                                // store->commit(group,
///     essential)
///
/// What rests on a write reaches `Out` in finish_commit(), never before. The service itself touches
/// the store in open() and, for its free space, while no commit is under way.
///
/// Requests of a node that has not registered with this control are answered `unavailable`, or
/// dropped when they have no answer. An agent therefore sends after every `Registered`: NodeHosts,
/// NodeReport, its watches, what ended meanwhile, and its requests without an answer.
///
/// An actor for which no node has room waits here, in order of arrival, and is tried again whenever
/// the view changes; one that no node could ever take is unplaceable after `infeasible_timeout`.
/// Between two reports of a node its free amounts are reckoned: what was placed there is taken.
#pragma once

#include "troupe/runtime/control/authority.hpp"
#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/control/slow_nodes.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::control {

struct ServiceOptions {
  MembershipOptions membership;
  DirectoryOptions directory;
  JobOptions jobs;
  KeyValueOptions key_values;
  SlowNodesOptions slow_nodes;
  /// How long an actor waits for a node that could ever take it: zero is not at all, negative is
  /// for ever.
  Duration infeasible_timeout = std::chrono::seconds(60);
  /// Nodes that are about to register: nothing is infeasible before they have, for `expect_for`.
  std::vector<NodeId> expected;
  Duration expect_for = std::chrono::seconds(10);
  /// Least time between two ClusterNodes; stretched in clusters of over 64 nodes.
  Duration broadcast_interval = std::chrono::milliseconds(100);
  /// A start that was answered stays reckoned until the node's next report, or this long.
  Duration report_within = std::chrono::milliseconds(250);
  /// How long the key of a dead node is kept, so that it can be told that it is dead, and of one
  /// that joined and does not register: its agent ends sooner.
  Duration revoke_after = std::chrono::seconds(75);
  /// Requests that write are refused (`overloaded`) while more than this waits for the disk.
  std::size_t max_waiting_bytes = 8u << 20;
  /// Nodes that have joined and not registered yet.
  std::size_t max_joined = 1024;
  /// Actors that one node may say it hosts.
  std::size_t max_hosted = 1u << 20;
  /// ... and what their names, constructors' calls and the like may take together, until the last
  /// page has come.
  std::size_t max_hosted_bytes = 1u << 30;
  /// Wall clock in nanoseconds, for people; null: zero.
  std::function<std::int64_t()> wall_clock;
};

class Service {
 public:
  /// What leaves control. Called from within the service's calls, which it must not call back.
  class Out {
   public:
    virtual ~Out() = default;
    virtual void send(NodeId to, const FromControl& message) = 0;
    /// The same message to each of them.
    virtual void broadcast(const std::vector<NodeId>& to, const FromControl& message) = 0;
    /// Answered by on_probe.
    virtual void probe(const Probe& probe) = 0;
    /// Take this node's key: it joined, or is known from an earlier life of control.
    virtual void admit(const NodeDescription& node) = 0;
    /// Refuse what this node says below that epoch, and tell it so: it is dead.
    virtual void fence(NodeId node, Epoch least) = 0;
    /// Forget its key.
    virtual void revoke(NodeId node) = 0;
    /// One line for people: a node is slow, or fast again.
    virtual void say(const std::string& line) = 0;
    /// A join ended; no error: the node is admitted.
    virtual void joined(std::uint64_t request, const std::shared_ptr<const ErrorInfo>& error) = 0;
  };

  /// Recovers everything from the store; reads all of it. `store` and `out` outlive the service.
  /// Errors: as Membership::recover and its like.
  static Result<std::unique_ptr<Service>> open(Store& store, ServiceOptions options, Out& out,
                                               Time now);

  // In. `from` is who the connection belongs to; NodeIds of senders inside a message are ignored.

  void on_message(NodeId from, const ToControl& message, Time now);
  void on_closed(NodeId node, Time now);
  /// The talk with the node begins anew: what was sent to it may be lost. Starts that it was told
  /// and neither hosts nor answers when it has registered again are placed again.
  void on_reset(NodeId node, Time now);
  void on_probe(NodeId node, Epoch epoch, bool gone, Time now);
  /// A node with a valid token (its public half, as text) wants in. Durable before joined() says
  /// so, as is that the token is spent.
  void on_join(std::uint64_t request, const std::string& token, const NodeDescription& node,
               Time now);
  /// Call after all messages that had arrived were handed in.
  void on_tick(Time now);
  Time next_tick() const;

  // The disk: begin_commit(), Store::commit(group, Need::essential) anywhere, finish_commit(). A
  // commit that fails ends the process.

  bool has_commit() const noexcept { return queue_.has_work(); }
  /// Valid until finish_commit(). Precondition: has_commit().
  const std::vector<Batch>& begin_commit();
  void finish_commit(Time now);

  // Observe.

  const Membership& members() const noexcept { return members_; }
  const Directory& actors() const noexcept { return actors_; }
  const Jobs& jobs() const noexcept { return jobs_; }
  const scheduling::ClusterView& view() const noexcept { return view_; }
  std::size_t waiting_actors() const noexcept { return waiting_.size(); }
  /// Whether one of them could be placed at once, as control sees the nodes: it will be soon.
  bool has_room_for_waiting() const;
  Epoch control_epoch() const noexcept { return members_.control_epoch(); }
  /// Whether a node has joined with it, in any life of control.
  bool is_spent(const std::string& token) const { return spent_.count(token) != 0; }

 private:
  /// An answer that waits behind the writes before it.
  struct Answer {
    NodeId to;
    FromControl message;
  };
  /// A list of nodes as they are once the writes before it are durable.
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
  /// A start that is under way, or was answered and is not in a report yet.
  struct Start {
    std::uint64_t incarnation = 0;
    scheduling::Resources need;
    std::optional<Time> until;  ///< answered: reckoned for so long
    bool may_be_lost = false;   ///< the node may never have heard of it
  };
  /// What others may know of a node: durable facts and its own reports.
  struct NodeInfo {
    NodeDescription description;
    Epoch epoch = 0;
    bool registered = false;  ///< with this control
    bool suspect = false;
    bool draining = false;
    bool avoided = false;  ///< it is slow
    std::string slow;      ///< what is shown of that
    NodeReport report;
    std::map<ActorId, Start> starts;
  };
  struct Waiting {
    PlaceActor place;
    std::optional<Time> infeasible_since;
    std::string why;
  };

  Service(Store& store, ServiceOptions options, Out& out, Time now, Membership members,
          Directory actors, Jobs jobs, KeyValues values, ObjectNames names);
  Result<void> recover_joined();
  void begin(Time now);

  template <class E>
  void run(Output<E> output, Time now);
  void answer(NodeId to, FromControl message, Time now);
  void settle(Time now);
  std::shared_ptr<const ErrorInfo> refusal();
  std::optional<Epoch> epoch_of(NodeId node) const;

  // Messages of agents that are registered in `epoch`; the first three of any agent.
  struct Sender {
    NodeId node;
    Epoch epoch = 0;
  };
  void on(const RegisterNode& message, Sender from, Time now);
  void on(Heartbeat message, Sender from, Time now);
  void on(Leaving message, Sender from, Time now);
  void on(const NodeReport& message, Sender from, Time now);
  void on(const NodePace& message, Sender from, Time now);
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
  /// `hosted`: the lives that the node tells of.
  void fail_lost_starts(NodeId node, const std::set<std::pair<ActorId, std::uint64_t>>& hosted,
                        Time now);
  void on(StartJob message, Sender from, Time now);
  void on(const FinishJob& message, Sender from, Time now);
  void end_job(JobId job, const std::optional<std::string>& why, Time now);
  void on(const DriverDied& message, Sender from, Time now);
  void on(const GetJob& message, Sender from, Time now);
  void on(const KeyValueRequest& message, Sender from, Time now);
  void on(const NameObject& message, Sender from, Time now);
  void on(const ListRequest& message, Sender from, Time now);
  void on(const DrainRequest& message, Sender from, Time now);
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
  void on_node(const NodeUp& event, Time now);
  void on_node(const NodeSuspect& event, Time now);
  void on_node(const NodeHeard& event, Time now);
  void on_node(const NodeDraining& event, Time now);
  void on_node(const NodeDead& event, Time now);
  void on_node(const FenceProcess& event, Time now);
  void on_node(const SendToAgent& event, Time now);
  void on_node(const Probe& event, Time now);

  // Placing: service_placing.cpp.
  void place_new(Waiting waiting, Time now);
  scheduling::Decision decide(const PlaceActor& wanted, Time now);
  void count_hosted(Time now);
  bool reaches_all(ActorId actor) const;
  void place(Waiting waiting, Time now);
  void place_soon(Time now);
  void place_waiting(Time now);
  bool is_over(const PlaceActor& place) const;
  bool awaits_expected(Time now) const;
  void end_start(NodeId node, ActorId actor, std::uint64_t incarnation, bool started, Time now);
  void expire_starts(Time now);
  void view_changed(NodeId node, Time now);
  /// Its key, unless it is a member by then. O(keys that are to go).
  void revoke_later(NodeId node, Time now);
  void forget_join(NodeId node, Time now);
  void look_for_slow(Time now);

  // Telling: service_lists.cpp.
  std::vector<NodeId> listeners(bool suspects_too) const;
  std::vector<ClusterRow> node_rows() const;
  void list_actors(ListReply& reply) const;
  void list_jobs(ListReply& reply) const;
  void list_names(ListReply& reply) const;
  ClusterNodes cluster_nodes();
  void introduce(NodeId newcomer);
  void nodes_changed(Time now);
  void broadcast_nodes(Time now);
  void tell_ended_jobs(NodeId node, Time now);
  std::int64_t wall_now() const { return options_.wall_clock ? options_.wall_clock() : 0; }

  /// What is known to be another's.
  struct Claims final : Authority::Facts {
    explicit Claims(const Service& s) : service(s) {}
    bool may_tell_of(NodeId from, ActorId actor, std::uint64_t life) const override;
    bool made(NodeId from, ActorId actor) const override;
    bool may_make(NodeId from, const SpawnActor& spawn) const override;
    bool may_kill(NodeId from, const KillActor& kill) const override;
    bool may_start(NodeId from, JobId job) const override;
    bool may_end(NodeId from, JobId job) const override;
    const Service& service;
  };

  Store& store_;
  ServiceOptions options_;
  Out& out_;
  Membership members_;
  Directory actors_;
  /// Jobs whose drivers have ended and whose actors have not: of what the driver died, if it did.
  std::map<JobId, std::optional<std::string>> ending_jobs_;
  Jobs jobs_;
  KeyValues values_;
  ObjectNames names_;
  SlowNodes slow_;
  CommitQueue<Event> queue_;
  Claims claims_{*this};
  Authority authority_{claims_};
  std::map<NodeId, std::uint64_t> objections_;  ///< to what each has said
  std::size_t waiting_bytes_ = 0;               ///< of writes that no commit has taken yet
  bool accepts_writes_ = true;                  ///< as last seen

  std::map<NodeId, NodeInfo> nodes_;
  std::map<NodeId, NodeReport> early_reports_;  ///< came before the registration was durable
  struct Pages {
    NodeHosts whole;
    std::size_t bytes = 0;
  };
  std::map<NodeId, Pages> pages_;             ///< of what nodes host, until the last has come
  std::map<NodeId, NodeDescription> joined_;  ///< admitted and not registered yet
  std::set<std::string> spent_;               ///< join tokens
  std::multimap<Time, NodeId> revoke_at_;     ///< each once
  scheduling::ClusterView view_;
  std::map<NodeId, std::uint32_t> hosted_;  ///< actors, as counted before count_at_
  Time count_at_{};
  std::deque<Waiting> waiting_;
  std::optional<Time> place_at_;   ///< when waiting_ is tried again
  std::optional<Time> expire_at_;  ///< when an answered start is reckoned no more
  Time last_placing_{};
  std::set<NodeId> expected_;
  Time started_{};
  std::uint64_t nodes_version_ = 0;
  std::optional<Time> broadcast_at_;
  Time last_broadcast_{};
};

}  // namespace troupe::control
