/// The agent's leases and workers: who may use which worker with which resources. A plain state
/// machine: inputs take the time and append what follows to an outbox.
///
///     LeaseTable table({.total = {.cpus = 4 * kUnit}, .max_workers = 4}, self);
///     table.request(owner, key, demand, backlog, now);
///     for (auto& event : table.take_events()) carry_out(event);   // StartWorker{}
///     table.worker_started(7, now);                               // -> Granted{owner, key, lease,
///     7} timer.set(table.next_deadline());                                // on_timer(now)
///
/// Blocking cannot deadlock: a worker that blocks gives everything back and another may be started
/// in its place, beyond max_workers at a limited rate that is never zero. When it runs again it
/// takes its resources at once; what is not free it owes, and nothing is granted until every debt
/// is paid by releases. Invariant, checked after every input: taken + free = total for each
/// resource and each GPU, and neither is negative.
///
/// An owner is a process of this node (or another agent's number for a spilled request); its
/// request is a number of leases per key, and the newest request replaces older ones. Waiting keys
/// are served in turn; one that has waited over `patience` keeps younger ones back in every second
/// period of it.
///
/// Processes are bounded as well: no more workers than max_processes run and start at a time, and
/// the system may refuse one. A request that lacks a worker then waits while others come and go, or
/// while workers of its job run; else it is refused, and the reason names the limit.
///
/// A worker belongs to one job for life and serves only its requests. When all places are taken, an
/// idle worker is stopped for a job that lacks one if its own job waits for nothing, has more
/// workers than would even out, or has kept the other without any for `patience`.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/scheduling/policy.hpp"
#include "troupe/runtime/scheduling/shortage.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::scheduling {

using OwnerId = std::uint64_t;
using WorkerId = std::uint64_t;
using LeaseId = std::uint64_t;
using JobNumber = std::uint64_t;  ///< the caller's name for a job

struct LeaseOptions {
  Resources total;
  Labels labels;
  std::string name;
  /// Workers that are not blocked and serve leases of a CPU or more; of smaller ones 15 times more.
  std::uint32_t max_workers = 4;
  /// Workers of all kinds, blocked ones and those that start among them.
  std::uint32_t max_processes = ~std::uint32_t{0};
  std::string process_limit;  ///< what that number comes from: part of a sentence
  /// How long a request that lacks a process waits while none starts and none ends.
  Duration process_patience = std::chrono::seconds(5);
  /// Least time between two starts beyond max_workers.
  Duration extra_worker_interval = std::chrono::milliseconds(100);
  /// After a failed start, before the next one.
  Duration restart_delay = std::chrono::milliseconds(200);
  Duration patience = std::chrono::seconds(2);
  /// A lease is not reclaimed for others before it was held this long.
  Duration min_hold = std::chrono::milliseconds(10);
  /// A request that another agent sent here waits for so long at least before it is refused because
  /// another node has room.
  Duration spill_wait = std::chrono::milliseconds(50);
  /// A node that refused is asked again after this, if nothing was heard of it before.
  Duration avoid = std::chrono::milliseconds(500);
  /// What was spilled to a node counts as taken there for so long, if nothing is heard of the node
  /// before: it may have given it and got it back between two of its reports, which then say
  /// nothing new.
  Duration unheard = std::chrono::milliseconds(500);
  /// How long an infeasible demand may wait for a node that has it; negative: without limit.
  Duration infeasible_timeout = std::chrono::seconds(60);
};

/// Start one worker; worker_started or worker_start_failed answers. `dedicated` ones host an actor.
struct StartWorker {
  bool dedicated = false;
  JobNumber job = 0;
};
/// End this worker (kill it if need be); worker_died answers.
struct StopWorker {
  WorkerId worker = 0;
  std::string why;
};
struct Granted {
  OwnerId owner = 0;
  std::uint64_t key = 0;
  LeaseId lease = 0;
  WorkerId worker = 0;
  std::vector<std::int32_t> gpus;  ///< device numbers
  ResourceDemand demand = {};      ///< that was asked for
};
/// One lease of this key is to be asked for at that node. From here on the asker counts it: its
/// next request for the key is without what was spilled and neither granted nor refused there.
struct Spilled {
  OwnerId owner = 0;
  std::uint64_t key = 0;
  NodeId node;
  ResourceDemand demand;
};
/// The whole request is dropped: it can never be satisfied, or not here as soon as elsewhere (only
/// if another agent sent it).
struct Refused {
  OwnerId owner = 0;
  std::uint64_t key = 0;
  std::string why;
  std::uint32_t count = 0;  ///< leases that were asked for
};
/// Others wait: the owner is to return the lease once its running calls have ended.
struct ReclaimLease {
  OwnerId owner = 0;
  LeaseId lease = 0;
};
/// The worker died under the lease; the lease is gone.
struct LeaseLost {
  OwnerId owner = 0;
  LeaseId lease = 0;
  WorkerId worker = 0;
};
using LeaseEvent =
    std::variant<StartWorker, StopWorker, Granted, Spilled, Refused, ReclaimLease, LeaseLost>;

/// What a request may be besides its demand.
struct RequestKind {
  bool spilled = false;    ///< came from another agent: never passed on again
  bool dedicated = false;  ///< for an actor: a worker of its own, outside max_workers, ended with
                           ///< the lease
  JobNumber job = 0;       ///< only workers of this job serve it
};

class LeaseTable {
 public:
  LeaseTable(LeaseOptions options, NodeId self);

  // --- owners
  /// Requests for `backlog` more leases of this demand; replaces the request of this key, 0
  /// withdraws it.
  void request(OwnerId owner, std::uint64_t key, const ResourceDemand& demand,
               std::uint32_t backlog, Time now, RequestKind kind = {});
  /// Requests for `count` more than it did before.
  void request_more(OwnerId owner, std::uint64_t key, const ResourceDemand& demand,
                    std::uint32_t count, Time now, RequestKind kind = {});
  /// What was spilled is not granted there (refused, or the node is gone): the request comes back.
  /// The node is not asked again before it was heard of, or `avoid` has passed.
  void spill_failed(OwnerId owner, std::uint64_t key, const ResourceDemand& demand,
                    std::uint32_t count, Time now, RequestKind kind = {}, NodeId node = {});
  /// A process here is done with a lease of that node, which tells so itself only later.
  void returned_there(NodeId node, const ResourceDemand& demand, Time now);
  /// The owner is done with the lease; unknown ones are ignored (it may have been lost meanwhile).
  void returned(LeaseId lease, Time now);
  /// Its requests are dropped, its leases end and their workers are stopped.
  void owner_died(OwnerId owner, Time now);

  // --- workers
  void worker_started(WorkerId worker, Time now, bool dedicated = false, JobNumber job = 0);
  void worker_start_failed(Time now, bool dedicated = false, JobNumber job = 0);
  /// The same, since the system or the node has no room for another process; `why` says which
  /// limit.
  void worker_start_refused(Time now, bool dedicated, JobNumber job, std::string why);
  void worker_died(WorkerId worker, Time now);
  /// All its threads wait for others / one runs again. Repeats and unknown workers are ignored.
  void blocked(WorkerId worker, Time now);
  void unblocked(WorkerId worker, Time now);
  /// The job is over: its requests are dropped and its idle workers stopped, as are those that are
  /// still starting. Leases end with their owners, or are returned: their workers stop with them.
  /// Dedicated requests stay until they are withdrawn, with one worker each: a detached actor
  /// outlives its job.
  void job_ended(JobNumber job, Time now);

  // --- cluster
  /// What is known of another node; this node's own row is kept by the table.
  void update_node(const NodeView& node, Time now);
  void node_gone(NodeId node, Time now);
  /// Draining: waiting requests are spilled or wait, nothing new is granted here.
  void set_draining(bool draining, Time now);
  /// This node is slow, or not: what a faster one could take goes there, and leases come back as
  /// their calls end. What must run here still does.
  void set_slow(bool slow, Time now);

  void on_timer(Time now);
  /// When on_timer must be called at the latest; nullopt: not at all.
  std::optional<Time> next_deadline() const;
  std::vector<LeaseEvent> take_events() { return std::exchange(events_, {}); }

  // --- observe
  /// This node's row for gossip.
  const NodeView& self_view() const { return *view_.find(self_); }
  const ClusterView& view() const noexcept { return view_; }
  std::size_t lease_count() const noexcept { return leases_.size(); }
  /// Who has the lease; nullopt: it is over, or never was.
  std::optional<OwnerId> holder_of(LeaseId lease) const;
  std::size_t worker_count() const noexcept { return workers_.size(); }
  /// A worker that works.
  struct Busy {
    WorkerId worker = 0;
    std::int64_t memory = 0;  ///< bytes that its lease has
    Time since{};
    bool dedicated = false;
  };
  std::vector<Busy> busy() const;
  std::size_t waiting() const;
  /// Requests that other agents have sent here so far. Each of them believes that what it sent
  /// takes something of this node, until it hears of the node again.
  std::uint64_t spilled_here() const noexcept { return spilled_here_; }
  /// Whether anybody asks for a worker of the job.
  bool is_wanted(JobNumber job) const { return has_request(job) || has_request(job, true); }
  /// The keys of the requests that this owner has.
  std::vector<std::uint64_t> keys_of(OwnerId owner) const;
  /// What this request still counts; 0: there is none.
  std::uint32_t wanted(OwnerId owner, std::uint64_t key) const;
  /// Why this request is not granted: one sentence; empty when there is no such request.
  std::string explain(OwnerId owner, std::uint64_t key) const;
  /// nullopt, or what is broken; cheap enough for every step of a simulation.
  std::optional<std::string> broken_invariant() const;

 private:
  /// Flat amounts: cpus, memory, custom in order of names, then one entry per GPU.
  using Amounts = std::vector<std::int64_t>;
  using RequestKey = std::pair<OwnerId, std::uint64_t>;
  struct Request {
    ResourceDemand demand;
    std::uint32_t count = 0;
    std::uint64_t turn = 0;  ///< place in the queue; renewed with each grant
    Time since{};            ///< of the oldest ungranted lease
    RequestKind kind;
  };
  using RequestEntry = std::pair<const RequestKey, Request>;
  /// A request that cannot be served now, and what the policy says of it.
  struct Waiting {
    const RequestKey& key;
    const Request& request;
    Decision decision;
  };
  struct Lease {
    OwnerId owner = 0;
    std::uint64_t key = 0;
    WorkerId worker = 0;
    Amounts need, taken;
    Time since{};
    bool dedicated = false;
    bool blocked = false;
    bool ending = false;  ///< its owner died: waits for its worker's death
    bool reclaiming = false;
  };
  struct Worker {
    LeaseId lease = 0;
    JobNumber job = 0;
    bool dedicated = false;
    bool stopping = false;
    bool job_over = false;  ///< it stops with its lease
  };
  /// Workers of a job that were asked for and have not answered.
  struct Starting {
    std::uint32_t pool = 0, dedicated = 0;
    bool ended = false;
  };

  void pump(Time now);
  bool pump_one(Time now);
  bool reserves(const Request& request, Time now);
  bool belongs_elsewhere(const Request& request, Time now);
  bool waits_for_faster(const Request& request) const;
  void trust_again(Time now);
  void spill(const RequestKey& key, const Request& request, NodeId node, Time now);
  Decision decide(const Request& request) const;
  enum class Served : std::uint8_t { yes, waits, needs_worker };
  Served serve(const RequestKey& key, Request& request, Time now);
  Served grant_here(const RequestKey& key, Request& request, Time now);
  void count_down(const RequestKey& key, Time now);
  void start_workers(const std::vector<Waiting>& waiting, Time now);
  void start_pool_workers(const std::vector<JobNumber>& needed, Time now);
  bool start_answered(bool dedicated, JobNumber job);
  void stop(WorkerId id, Worker& worker, std::string why);
  /// Frees a place for the request, which lacks a worker, by stopping an idle one of another job.
  void make_place(const Request& request, Time now);
  /// Whether an idle worker of `held` may be stopped for the request.
  bool may_displace(const Request& request, JobNumber held, Time now);
  bool may_start_or_displace(const Request& request, JobNumber held, Time now);
  bool has_request(JobNumber job, bool dedicated = false) const;
  std::uint32_t starting_pool(JobNumber job) const;
  /// Pool workers that run or start and are not blocked, of one job; of all: places that they take.
  std::uint32_t running_pool_workers(std::optional<JobNumber> job = {}) const;
  bool may_start_another(Time now);
  std::optional<RequestKey> hopeless(Time now);
  void reclaim_for_waiting(const std::vector<Waiting>& waiting, Time now);
  void wake_at(Time time);
  void trim_idle();
  void settle_debts();
  void end_lease(LeaseId id);
  void release(Lease& lease);
  std::optional<WorkerId> idle_worker(bool dedicated, JobNumber job) const;
  std::optional<Amounts> amounts_for(const Resources& need, const Amounts& free) const;
  std::vector<std::int32_t> gpus_of(const Amounts& need) const;
  Resources resources_of(const Amounts& amounts) const;
  /// Requests in turn.
  std::vector<RequestEntry*> queue();
  bool in_debt() const;
  void refresh_view();
  template <class Event>
  void emit(Event event) {
    events_.emplace_back(std::in_place_type<Event>, std::move(event));
  }
  void check() const;

  LeaseOptions options_;
  NodeId self_;
  std::vector<std::string> custom_names_;
  std::size_t gpu_base_ = 0;
  Amounts total_, free_;
  ClusterView view_;
  std::map<NodeId, Time> avoided_;  ///< nodes that refused → until when
  /// What was taken from the row of a node that has not been heard of since.
  struct Unheard {
    Resources taken;
    Time until{};
  };
  static bool forget_unheard(std::deque<Unheard>& all, const ResourceDemand& demand);
  std::map<NodeId, std::deque<Unheard>> unheard_;  ///< oldest first
  std::uint64_t spilled_here_ = 0;
  bool draining_ = false;
  bool slow_ = false;

  std::map<RequestKey, Request> requests_;
  std::map<LeaseId, Lease> leases_;
  std::map<WorkerId, Worker> workers_;
  std::map<JobNumber, Starting> starting_;
  std::uint64_t next_turn_ = 1;
  LeaseId next_lease_ = 1;
  Time next_extra_start_{};
  Time no_start_before_{};
  Shortage shortage_{options_.process_patience};
  std::optional<Time> deadline_;
  std::vector<LeaseEvent> events_;
};

}  // namespace troupe::scheduling
