/// The leases and workers of an agent: it decides which process may use which worker, with which
/// resources. A plain state machine: an input takes the time, and its effects are appended to an
/// outbox.
///
///     LeaseTable table({.total = {.cpus = 4 * kUnit}, .max_workers = 4}, self);
///     table.request(owner, key, demand, backlog, now);
///     for (auto& event : table.take_events()) carry_out(event);   // StartWorker{}
///     table.worker_started(7, now);             // -> Granted{owner, key, lease, 7}
///     timer.set(table.next_deadline());         // on_timer(now)
///
/// Blocking cannot deadlock (RUN-5). A worker that blocks gives all its resources back, and
/// another one may start in its place; beyond max_workers the rate of starts is limited, but
/// never zero. When the worker runs again it takes its resources at once. Resources that are not
/// free then are its debt, and nothing is granted until releases have paid every debt. Invariant,
/// checked after every input: taken + free = total for each resource and each GPU, and neither is
/// negative.
///
/// An owner is a process of this node, or another agent (by its number) for a spilled request. A
/// request is a number of leases for one key; a newer request replaces an older one of the same
/// key. Waiting requests are served in turn. One that has waited longer than `patience` holds back
/// younger ones, except those that need nothing, as long as its resources can gather soon. What is
/// soon follows from known run times. For unknown ones it is a twentieth of the time that it has
/// waited, so no request starves. A hold in vain is followed by a pause nine times as long.
///
/// A change costs the logarithm of the waiting requests, however different they are. It looks at
/// kLooks of them at most that could be served by their amounts and cannot for another reason. If
/// there are more, the timer goes on with the next ones.
///
/// The number of processes is bounded, too: at most max_processes workers run and start at a
/// time, and the system may refuse to start one. A request that lacks a worker then waits while
/// processes come and go, or while workers of its job run. Otherwise it is refused, and the
/// reason names the limit. Actors take all processes but kept_processes, so that tasks always get
/// some. An actor's request is refused sooner: a second after no process is left for it, unless
/// one of them ends.
///
/// A worker belongs to one job for life and serves only that job's requests. When all places are
/// taken, an idle worker is stopped for a job that lacks one, under one of three conditions: its
/// own job has no request; its job has at least two workers more than the other; or the other job
/// has had no worker for `patience`. A worker that runs nothing and still asks for leases has
/// threads that a task left there. It counts as used, and yields only to the last condition.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/small_vector.hpp"
#include "troupe/runtime/scheduling/policy.hpp"
#include "troupe/runtime/scheduling/refusals.hpp"
#include "troupe/runtime/scheduling/reservation.hpp"
#include "troupe/runtime/scheduling/shortage.hpp"
#include "troupe/runtime/scheduling/waiting_requests.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::scheduling {

using OwnerId = ProcessIndex;   ///< who asks for leases
using WorkerId = ProcessIndex;  ///< who runs under one

struct LeaseOptions {
  Resources total;
  Labels labels;
  std::string name;
  /// The number of places for workers. A blocked worker takes none. Workers for leases of less
  /// than a CPU take none either, up to 15 for each place: one starts although all are taken.
  std::uint32_t max_workers = 4;
  /// The most workers of all kinds, including blocked and starting ones.
  std::uint32_t max_processes = ~std::uint32_t{0};
  /// Of these, how many are kept for workers that are no actors'.
  std::uint32_t kept_processes = 0;
  std::string process_limit;  ///< the origin of that number, as part of a sentence
  /// How long a request that lacks a process waits while no process starts or ends.
  Duration process_patience = std::chrono::seconds(5);
  /// The least time between two starts beyond max_workers.
  Duration extra_worker_interval = std::chrono::milliseconds(100);
  /// The pause after a failed start.
  Duration restart_delay = std::chrono::milliseconds(200);
  Duration patience = std::chrono::seconds(2);
  /// The least time that a lease is held before it is reclaimed for others.
  Duration min_hold = std::chrono::milliseconds(10);
  /// How long the owner of a reclaimed lease may be silent until the worker is asked in its place,
  /// and then the pause between two such questions.
  Duration silence = std::chrono::seconds(1);
  /// How long a request from another agent waits at least before it is refused because another
  /// node has room.
  Duration spill_wait = std::chrono::milliseconds(50);
  /// When a node that refused is asked again, if no report of it came before.
  Duration avoid = std::chrono::milliseconds(500);
  /// How long a spilled lease counts as taken at its node if no report of the node comes. The
  /// node may have granted it and got it back between two reports, which then say nothing new.
  Duration unheard = std::chrono::milliseconds(500);
  /// How long an infeasible demand may wait for a node that can serve it; negative: without
  /// limit.
  Duration infeasible_timeout = std::chrono::seconds(60);
};

/// Start one worker. worker_started(), worker_start_failed() or worker_start_refused() answers. A
/// `dedicated` worker hosts an actor.
struct StartWorker {
  bool dedicated = false;
  JobNumber job;
};
/// End this worker, by force if need be. worker_died() answers.
struct StopWorker {
  WorkerId worker;
  std::string why;
};
struct Granted {
  OwnerId owner;
  LeaseKey key;
  LeaseId lease;
  WorkerId worker;
  std::vector<std::int32_t> gpus;  ///< device numbers
  ResourceDemand demand = {};      ///< as requested
};
/// Ask that node for one lease of this key. From here on the table no longer counts that lease;
/// the agent does. It passes later requests for the key without leases that are spilled and
/// neither granted nor refused.
struct Spilled {
  OwnerId owner;
  LeaseKey key;
  NodeId node;
  ResourceDemand demand;
  /// The node is slow, and no faster one is left: of those that it knows some refuse the job.
  bool no_faster = false;
};
/// The whole request is dropped: it can never be satisfied, or there is no process for it. A
/// request from another agent is also dropped when another node can serve it sooner.
struct Refused {
  OwnerId owner;
  LeaseKey key;
  std::string why;
  std::uint32_t count = 0;  ///< leases that it still asked for
};
/// Others wait: the owner must return the lease once its running calls have ended.
struct ReclaimLease {
  OwnerId owner;
  LeaseId lease;
};
/// The owner has not answered ReclaimLease for long. Ask the worker whether it runs anything under
/// the lease; not_in_use() answers that it does not. Repeated while there is no answer.
struct AskWorker {
  WorkerId worker;
  LeaseId lease;
  OwnerId owner;
};
/// The worker died during the lease, which has ended.
struct LeaseLost {
  OwnerId owner;
  LeaseId lease;
  WorkerId worker;
};
using LeaseEvent = std::variant<StartWorker, StopWorker, Granted, Spilled, Refused, ReclaimLease,
                                AskWorker, LeaseLost>;

class LeaseTable {
 public:
  /// How many waiting requests a change looks at in vain.
  static constexpr int kLooks = 64;
  LeaseTable(LeaseOptions options, NodeId self);

  // --- owners
  /// Asks for `backlog` leases of this demand. Replaces the owner's request for this key; 0
  /// withdraws it.
  void request(OwnerId owner, LeaseKey key, const ResourceDemand& demand, std::uint32_t backlog,
               Time now, RequestKind kind = {});
  /// Asks for `count` more leases than the request has now.
  void request_more(OwnerId owner, LeaseKey key, const ResourceDemand& demand, std::uint32_t count,
                    Time now, RequestKind kind = {});
  /// Puts spilled leases back into the request, because the node refused them or is gone. The
  /// node is asked again after its next report, or when `avoid` has passed.
  void spill_failed(OwnerId owner, LeaseKey key, const ResourceDemand& demand, std::uint32_t count,
                    Time now, RequestKind kind = {}, NodeId node = {});
  /// That node never starts a worker of the job. It is not asked for one again until it is gone or
  /// the job has ended. Requests that no other node could take are refused with the reason.
  void job_refused(JobNumber job, NodeId node, std::string why, Time now);
  /// A process here has returned a lease of that node, which will report it only later.
  void returned_there(NodeId node, const ResourceDemand& demand, Time now);
  /// The owner returns the lease. Unknown leases are ignored: the lease may have been lost
  /// meanwhile.
  void returned(LeaseId lease, Time now);
  /// The worker runs nothing under a reclaimed lease, whose owner is silent. The lease ends. The
  /// owner's requests are dropped, those of another agent are refused: an owner that goes on asks
  /// again. Returns false, without an effect, when the lease is not such a lease of the worker.
  bool not_in_use(WorkerId worker, LeaseId lease, Time now);
  /// Drops the owner's requests, ends its leases and stops their workers.
  void owner_died(OwnerId owner, Time now);

  // --- workers
  void worker_started(WorkerId worker, Time now, bool dedicated = false, JobNumber job = 0);
  void worker_start_failed(Time now, bool dedicated = false, JobNumber job = 0);
  /// The start failed because the system or the node has no room for another process. `why` names
  /// the limit.
  void worker_start_refused(Time now, bool dedicated, JobNumber job, std::string why);
  void worker_died(WorkerId worker, Time now);
  /// All threads of the worker wait for others; or one runs again. Repeats and unknown workers
  /// are ignored.
  void blocked(WorkerId worker, Time now);
  void unblocked(WorkerId worker, Time now);
  /// The job is over. Its requests are dropped, and its idle and starting workers are stopped.
  /// Leases end with their owners or when they are returned, and their workers stop then.
  /// Dedicated requests stay until they are withdrawn, with one worker each: a detached actor
  /// outlives its job.
  void job_ended(JobNumber job, Time now);

  // --- cluster
  /// Takes a report about another node. The table keeps this node's own row itself.
  void update_node(const NodeView& node, Time now);
  void node_gone(NodeId node, Time now);
  /// While draining, waiting requests are spilled or wait, and nothing new is granted here.
  void set_draining(bool draining, Time now);
  /// Marks this node as slow, or not. While it is slow, requests that a faster node could take go
  /// there. When it becomes slow, its leases are reclaimed, except those of actors. Requests that
  /// must run here still do.
  void set_slow(bool slow, Time now);

  void on_timer(Time now);
  /// Returns when on_timer() must be called at the latest; nullopt: not at all.
  std::optional<Time> next_deadline() const;
  std::vector<LeaseEvent> take_events() { return std::exchange(events_, {}); }

  // --- observe
  /// This node's row, which the agent spreads by gossip.
  const NodeView& self_view() const { return *view_.find(self_); }
  const ClusterView& view() const noexcept { return view_; }
  std::size_t lease_count() const noexcept { return leases_.size(); }
  /// Returns the lease's owner; nullopt: the lease is over, or never was.
  std::optional<OwnerId> holder_of(LeaseId lease) const;
  std::size_t worker_count() const noexcept { return workers_.size(); }
  /// Returns whether the worker runs under the lease.
  bool is_under(WorkerId worker, LeaseId lease) const;
  /// A worker with a lease.
  struct Busy {
    WorkerId worker;
    std::int64_t memory = 0;  ///< bytes that its lease reserves
    Time since{};
    bool dedicated = false;
  };
  std::vector<Busy> busy() const;
  /// Returns whether all threads of the worker wait for others.
  bool is_blocked(WorkerId worker) const;
  /// Returns whether no node of the cluster could ever grant this request.
  bool is_impossible(OwnerId owner, LeaseKey key) const;
  std::size_t waiting() const { return waiting_.wanted(); }
  /// The number of requests that other agents have sent here so far. A sender counts its request
  /// as taken on this node until the next report that it gets.
  std::uint64_t spilled_here() const noexcept { return spilled_here_; }
  /// Returns whether any request asks for a worker of the job.
  bool is_wanted(JobNumber job) const {
    return waiting_.wanted(job, false) + waiting_.wanted(job, true) != 0;
  }
  /// Returns the keys of this owner's requests.
  std::vector<LeaseKey> keys_of(OwnerId owner) const;
  /// Returns the number of leases that this request still asks for; 0: there is no request.
  std::uint32_t wanted(OwnerId owner, LeaseKey key) const;
  /// Returns why this request is not granted, in one sentence; empty when there is no such
  /// request.
  std::string explain(OwnerId owner, LeaseKey key) const;
  /// Returns what is broken, or nullopt. Cheap enough for every step of a simulation.
  std::optional<std::string> broken_invariant() const;

 private:
  static constexpr std::uint32_t kSmallPerPlace = 15;
  /// Flat amounts: cpus, memory, custom in order of names, then one entry per GPU. There is room
  /// for eight GPUs without an allocation.
  using Amounts = detail::SmallVector<std::int64_t, 10>;
  using Request = WaitingRequest;
  using Group = WaitingRequests::Group;
  struct Lease {
    OwnerId owner;
    LeaseKey key;
    WorkerId worker;
    Amounts need, taken;
    Time since{};
    bool dedicated = false;
    bool blocked = false;
    bool ending = false;  ///< its owner died; it lasts until its worker is dead
    bool reclaiming = false;
    Time asked_back{};     ///< with `reclaiming`
    Time asked{};          ///< when its owner, or since then its worker, was asked for it last
    bool is_late = false;  ///< its owner has not answered for `silence`
  };
  struct Worker {
    LeaseId lease;
    JobNumber job;
    bool dedicated = false;
    bool stopping = false;
    bool job_over = false;  ///< it stops when its lease ends
    /// When it last asked for leases, or had one, although it ran nothing.
    std::optional<Time> asked{};
  };
  /// The workers of a job whose start has not been answered.
  struct Starting {
    std::uint32_t pool = 0, dedicated = 0;
    bool ended = false;
  };

  void pump(Time now, const RequestKey* changed = nullptr);
  void look_at(const RequestKey& key, Time now);
  void look_at_doubtful(Time now);
  void refuse(const Request& request, std::string why);
  void refuse_infeasible(Time now);
  void serve_waiting(Time now, const RequestKey* changed);
  std::uint64_t serve_from(std::uint64_t turn, Time now);
  /// What a search for the next request to serve looks for.
  struct Search {
    Need here, elsewhere;  ///< free on this node; at most on one other node
    bool is_open = false;  ///< this node grants now
    bool has_others = false;
    std::vector<Group> idle;   ///< groups with an idle worker, sorted
    std::vector<Group> asked;  ///< groups for which a place was asked for, sorted
    bool may_displace = false;
  };
  void look_around(Search& search) const;
  Request* next_to_serve(const Search& search, std::uint64_t from) const;
  Request* next_here(const Need& bound, std::uint64_t from, bool pool, bool dedicated) const;
  Request* first_not_held(const WaitingRequests::Line& line, const Need& bound,
                          std::uint64_t from) const;
  bool is_held(const Request& request) const {
    return request.turn > held_after_ && !takes_nothing(request.demand);
  }
  void find_reserver(Time now);
  std::optional<Duration> gathers_within(const Request& request, Time now) const;
  /// How long the lease has kept the request waiting, so far as one call of it is concerned.
  static Duration kept(const Lease& lease, const RequestKey& waits, Time now);
  void reclaim(LeaseId id, Lease& lease, Time now);
  Reach reach_of(const ResourceDemand& demand, RequestKind kind) const;
  bool belongs_elsewhere(const Request& request, Time now);
  bool waits_for_faster(const Request& request) const;
  void trust_again(Time now);
  void spill(const Request& request, NodeId node, Time now);
  Decision decide(const Request& request) const;
  /// Returns the policy's decision with its reason: about the cluster, or about this node alone.
  Decision why_waits(const Request& request) const;
  enum class Served : std::uint8_t { yes, waits, needs_worker };
  Served serve(Request& request, Time now);
  Served grant_here(Request& request, Time now);
  bool is_placed_here(const Request& request) const;
  /// Jobs whose requests lack a worker, once for each lease.
  struct Lacking {
    Amounts left;
    std::size_t most_pool = 0;          ///< no more are needed to know which workers start
    std::vector<JobNumber> pool, more;  ///< for the first lease of a request, and for others
    std::map<JobNumber, std::uint32_t> dedicated;
    std::size_t all = 0;
  };
  std::uint64_t find_lacking(Lacking& lacking, std::uint64_t turn) const;
  void start_workers(Time now);
  void start_pool_workers(const std::vector<JobNumber>& needed, Time now);
  void start_small_worker(Time now);
  bool start_answered(bool dedicated, JobNumber job);
  void stop(WorkerId id, Worker& worker, std::string why);
  /// Frees a place for a request that lacks a worker, by stopping an idle worker of another job.
  void make_place(const Request& request, Time now);
  /// Returns whether an idle worker of job `held` may be stopped for the request.
  bool may_displace(const Request& request, JobNumber held, Time now);
  bool may_start_or_displace(const Request& request, JobNumber held, Time now);
  std::uint32_t starting_pool(JobNumber job) const;
  std::uint32_t starting_pool() const;
  /// The number of pool workers (not dedicated) that run or start and are not blocked. With
  /// `job`: of that job. Without: the places that they take.
  std::uint32_t running_pool_workers(std::optional<JobNumber> job = {}) const;
  /// The same with workers that take no place.
  std::uint32_t unblocked_pool_workers() const;
  /// The processes of actors, or all others, that run or start.
  std::uint32_t processes(bool dedicated) const;
  std::uint32_t most_actors() const;
  bool may_start_another(Time now);
  bool may_start_actor(Time now);
  bool is_one_ending() const;
  const Shortage& shortage_for(bool dedicated) const {
    return dedicated && shortage_for_actors_ ? shortage_for_actors_ : shortage_;
  }
  void refuse_hopeless(Time now);
  void reclaim_for_waiting(Time now);
  void ask_workers(Time now);
  const Request* wants_a_lease(const WaitingRequests::Line& line, std::uint64_t from) const;
  void wake_at(Time time);
  void trim_idle(Time now);
  bool submits(WorkerId id, Worker& worker, Time now);
  bool has_request(OwnerId owner) const;
  void settle_debts();
  void end_lease(LeaseId id);
  void release(Lease& lease);
  std::optional<WorkerId> idle_worker(bool dedicated, JobNumber job) const;
  std::optional<Amounts> amounts_for(const Resources& need, const Amounts& free) const;
  std::vector<std::int32_t> gpus_of(const Amounts& need) const;
  Resources resources_of(const Amounts& amounts) const;
  bool in_debt() const;
  void refresh_free();
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
  Refusals refusals_;
  /// Amounts taken from the row of a node for leases that no report of the node covers yet.
  struct Unheard {
    Resources taken;
    Time until{};
  };
  static bool forget_unheard(std::deque<Unheard>& all, const ResourceDemand& demand);
  std::map<NodeId, std::deque<Unheard>> unheard_;  ///< oldest first
  std::uint64_t spilled_here_ = 0;
  bool draining_ = false;
  bool slow_ = false;

  WaitingRequests waiting_;
  std::uint64_t held_after_ = ~std::uint64_t{0};  ///< turn of the request that holds back others
  Reservation reservation_;
  RunTimes run_times_;
  /// Turns at which searches go on that have looked at kLooks requests in vain; or 0.
  std::uint64_t serve_on_at_ = 0, start_on_at_ = 0;
  bool look_at_all_ = false;  ///< requests may have to be refused; see look_at_doubtful()
  std::map<LeaseId, Lease> leases_;
  std::map<WorkerId, Worker> workers_;
  std::map<JobNumber, Starting> starting_;
  LeaseId next_lease_ = 1;
  Time next_extra_start_{};
  Time no_start_before_{};
  Shortage shortage_{options_.process_patience};
  Shortage shortage_for_actors_{options_.process_patience};
  FullHouse full_house_;
  std::optional<Time> deadline_;
  std::vector<LeaseEvent> events_;
};

}  // namespace troupe::scheduling
