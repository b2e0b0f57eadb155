/// Carries out what the lease table decides: tells owners and workers, finds workers for actors and
/// for the calls of processes that have ended, and takes leases back. A plain state machine of the
/// agent.
///
///     for (auto& event : table.take_events()) leases.carry_out(event, now);  // each pass
///     leases.need_worker(life, demand, job, now);   // → actors.worker_ready() or no_worker()
///     leases.on_returned(process, lease, now);
///
/// Invariants: LEASES-1 A worker is told what its lease reserves before its owner hears of the
/// lease. LEASES-2 A lease whose owner is gone is returned at once. LEASES-3 A life of an actor has
/// a request without an answer, a lease, or neither; it has both at no time. LEASES-4 A lease is
/// taken back from its owner, or from its worker when the owner is silent, and from no other
/// process.
#pragma once

#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/lineage_cache.hpp"
#include "troupe/runtime/agent/outgoing.hpp"
#include "troupe/runtime/agent/remote.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

class Leases final : public LineageCache::Out {
 public:
  /// What this part needs of processes and jobs. An implementation must not call back.
  class Processes {
   public:
    virtual ~Processes() = default;
    virtual void start_worker(bool dedicated, JobNumber job) = 0;
    /// Asks the worker to end when it has run the calls that it received.
    virtual void end_worker(ProcessIndex worker) = 0;
    /// Gives the two processes a channel to each other, unless they have one.
    virtual void connect(ProcessIndex owner, ProcessIndex worker) = 0;
    /// Returns the job that a live process works for.
    virtual std::optional<std::pair<JobId, JobNumber>> job_of(ProcessIndex process) = 0;
    /// Returns this node's number of the job; the first call makes it.
    virtual JobNumber number_of(JobId job) = 0;
    /// Returns why this node never starts a worker of the job, for users; empty: it may start one.
    virtual std::string why_none_starts(JobId job) = 0;
    /// Returns the driver of the job if it is on this node, since it lives longest, else a worker
    /// that goes on; nullopt: there is neither.
    virtual std::optional<ProcessIndex> lasting_process(JobNumber job) = 0;
  };
  /// The parts below this one.
  struct Below {
    scheduling::LeaseTable& table;
    RemoteTable& remote;
    ActorHost& actors;
    LineageCache& lineage;
    Outgoing& out;
    Processes& processes;
  };
  /// `has_gpus`: a worker is told of each lease, since the devices may differ.
  Leases(NodeId self, bool has_gpus, const Below& below)
      : self_(self), has_gpus_(has_gpus), below_(below) {}

  void carry_out(scheduling::LeaseEvent& event, Time now);

  // --- from processes of this node
  void on_request(ProcessIndex from, JobNumber job, const wire::RequestLease& message, Time now);
  /// Takes a lease back from its owner, or from its worker in the place of an owner that is silent.
  void on_returned(ProcessIndex from, LeaseId lease, Time now);
  void process_died(ProcessIndex process) { told_.erase(process); }

  // --- actors
  /// Requests a worker for a life of an actor.
  void need_worker(std::uint64_t life, const scheduling::ResourceDemand& demand, JobNumber job,
                   Time now);
  /// Withdraws the request of need_worker(), or returns the worker that it got.
  void release_worker(std::uint64_t life, Time now);
  /// Returns the lives of the job that have no worker yet.
  std::vector<std::uint64_t> waiting_lives(JobNumber job) const;
  bool has_waiting_life(JobNumber job) const;

  // --- leases of other nodes, and this node's leases for their processes
  void granted(ProcessIndex process, LeaseKey key, LeaseId lease, ProcessIndex worker,
               const std::vector<std::int32_t>& gpus);
  void reclaim(ProcessIndex process, LeaseId lease);
  void job_refused(ProcessIndex process, NodeId node, const std::string& why, Time now);
  void spill_failed(ProcessIndex process, LeaseKey key, const wire::ResourceDemand& demand,
                    std::uint32_t count, NodeId node, Time now);
  void gave_back(NodeId node, const wire::ResourceDemand& demand, Time now);
  /// Takes a request of another node. Refuses it at once if this node never starts a worker of the
  /// job.
  void request(ProcessIndex proxy_process, LeaseKey key, const wire::ResourceDemand& demand,
               std::uint32_t backlog, JobId job, bool no_faster, Time now);

  // --- LineageCache::Out
  /// Finds a process that repeats the calls of processes that have ended. If there is none, leases
  /// a worker and returns nullopt. That worker may be idle under its lease: it ends only when the
  /// tasks that it submitted have ended.
  std::optional<ProcessIndex> find_process(JobNumber job) override;
  void send(ProcessIndex to, const wire::NodeMessage& message, BlobView payload) override {
    below_.out.send(to, message, payload);
  }
  /// The time at which find_process() may lease a worker.
  void pass_begins(Time now) { now_ = now; }

 private:
  /// What a worker was told.
  struct Told {
    std::optional<wire::ResourceDemand> leased;  ///< its lease, as it was told last
    /// Silent owners of its leases, whose calls it may hand back.
    std::set<ProcessIndex> asked_about;
  };
  void on_granted(const scheduling::Granted& grant, Time now);
  void tell(const scheduling::Granted& grant);
  void on_refused(const scheduling::Refused& refused);
  void serve_lineage(const scheduling::Granted& grant, Time now);

  const NodeId self_;
  const bool has_gpus_;
  const Below below_;
  Time now_{};
  std::map<ProcessIndex, Told> told_;                 ///< by worker
  std::map<std::uint64_t, JobNumber> waiting_lives_;  ///< that have no worker yet
  /// By life of an actor. A life is also the key of its lease request, whose owner is kSelf.
  std::map<std::uint64_t, LeaseId> actor_leases_;
};

}  // namespace troupe::agent
