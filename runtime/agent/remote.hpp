/// The agent's records of processes of other nodes: which proxy process stands for which of them,
/// which frames may pass, and which leases were asked for and granted across nodes. A plain state
/// machine.
///
/// A process of another node that talks to a local one has a *proxy process*: a process index of
/// this node. Between a local process and a proxy process lies a *proxy* (proxy channel): a ring
/// channel whose other side is this agent. The agent carries the frames to and from the other
/// node.
///
///     remote.spilled(process, key, node, demand, job);       // → out.send(node, PeerLeaseRequest)
///     remote.on_message(node, PeerLeaseGranted{…});         // → out.open_proxy, out.granted
///     remote.carried(process, proxy_process);               // a frame leaves: counts its credit
///     remote.node_died(node, why);                // → out.close_proxy …, out.spill_failed
///
/// Invariants: REMOTE-1 A frame reaches a process only through a proxy that this process knows.
/// REMOTE-2 Every lease that another node granted is returned, reclaimed by the death of that
/// node, or held by a live process here. REMOTE-3 A proxy is closed once, with the number of calls
/// that the dead side had begun if that is known. REMOTE-4 At most carry_window frames are under
/// way per direction of a proxy.
#pragma once

#include "troupe/runtime/agent/death.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

class RemoteTable {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    virtual void send(NodeId to, const wire::PeerMessage& message) = 0;
    // local processes
    virtual bool is_alive(ProcessIndex process) = 0;
    virtual bool hosts(ProcessIndex worker, ActorId actor, std::uint64_t incarnation) = 0;
    /// Reads what the process has written so far, before one of its proxies is closed.
    virtual void read(ProcessIndex process) = 0;
    virtual void open_proxy(ProcessIndex process, ProcessIndex proxy_process, NodeId node) = 0;
    /// Closes a proxy whose other side is dead. `started` is the number of calls of `process` that
    /// the other side had begun, or PeerDied::kUnknown.
    virtual void close_proxy(ProcessIndex process, ProcessIndex proxy_process, const Death& death,
                             std::uint64_t started) = 0;
    /// The number of calls of the proxy process that this local process has begun. Called before
    /// the proxy is closed.
    virtual std::uint64_t started(ProcessIndex process, ProcessIndex proxy_process) = 0;
    // leases that other nodes gave to our processes
    virtual void granted(ProcessIndex process, LeaseKey key, LeaseId lease, ProcessIndex worker,
                         const std::vector<std::int32_t>& gpus) = 0;
    virtual void reclaim(ProcessIndex process, LeaseId lease) = 0;
    /// That node never starts a worker of the process's job. spill_failed() follows for each of its
    /// requests there.
    virtual void job_refused(ProcessIndex process, NodeId node, const std::string& why) = 0;
    /// That node does not grant `count` of the leases that were asked for under this key.
    virtual void spill_failed(ProcessIndex process, LeaseKey key,
                              const wire::ResourceDemand& demand, std::uint32_t count,
                              NodeId node) = 0;
    /// A local process has returned a lease of that node.
    virtual void gave_back(NodeId node, const wire::ResourceDemand& demand) = 0;
    // our leases for processes of other nodes; the owner is the proxy process
    virtual void request(ProcessIndex proxy_process, LeaseKey key,
                         const wire::ResourceDemand& demand, std::uint32_t backlog, JobId job,
                         bool no_faster) = 0;
    virtual void returned(LeaseId lease) = 0;
    virtual void owner_died(ProcessIndex proxy_process) = 0;
  };

  /// `next_index`: gives out process indexes of this node. `carry_window`: the same on all nodes.
  RemoteTable(Out& out, std::function<ProcessIndex()> next_index,
              std::uint64_t carry_window = wire::kCarryWindow)
      : out_(out), next_index_(std::move(next_index)), carry_window_(carry_window) {}

  /// The index that stands for a node as holder of refs. The first call makes it.
  ProcessIndex index_of(NodeId node);
  /// The node behind such an index, or nullopt.
  std::optional<NodeId> node_of(ProcessIndex index) const;
  bool is_proxy_process(ProcessIndex index) const { return proxy_processes_.count(index) != 0; }

  // --- from this node
  /// Asks that node for one lease of this key (`PeerLeaseRequest`). With `no_faster` that node, if
  /// it is slow, waits for no faster one.
  void spilled(ProcessIndex process, LeaseKey key, NodeId node, const wire::ResourceDemand& demand,
               JobId job, bool no_faster = false);
  /// Leases of this key that other nodes were asked for and have not answered.
  std::uint32_t outstanding(ProcessIndex process, LeaseKey key) const;
  /// Returns a node that was asked for leases of this key and has not answered; nullopt: none.
  std::optional<NodeId> asked_node(ProcessIndex process, LeaseKey key) const;
  /// Calls look_at(key, node) for each node that was asked for leases of a process of this node and
  /// has not answered.
  template <class F>
  void each_asked(ProcessIndex process, F look_at) const {
    for (auto at = wanted_.lower_bound({process, 0, NodeId{}});
         at != wanted_.end() && at->first.process == process; ++at)
      look_at(at->first.key, at->first.node);
  }
  /// The process wants no more leases of this key.
  void withdrawn(ProcessIndex process, LeaseKey key);
  /// The process that has this lease of another node; nullopt when the lease has ended or is not
  /// one of another node.
  std::optional<ProcessIndex> taker_of(LeaseId lease) const;
  /// Returns a lease to the node that granted it. False when the lease is not another node's. A
  /// process that does not have the lease changes nothing.
  bool lease_returned(ProcessIndex process, LeaseId lease);
  /// Grants a lease of this node's lease table to a proxy process.
  void granted_here(ProcessIndex proxy_process, LeaseKey key, LeaseId lease, ProcessIndex worker,
                    const std::vector<std::int32_t>& gpus);
  /// Refuses a request of another node. With `for_ever` this node never starts a worker of the
  /// request's job.
  void refused_here(ProcessIndex proxy_process, LeaseKey key, const std::string& why,
                    bool for_ever = false);
  /// Repeats the request of a proxy process, which the lease table served with a worker that has
  /// just died. (A local process asks again by itself. Another node takes a request that was not
  /// refused as open.)
  void request_again(ProcessIndex proxy_process, LeaseKey key);
  void reclaim_here(ProcessIndex proxy_process, LeaseId lease);
  /// Refuses all open requests of other nodes for this job, as refused_here() does.
  void refuse_job(JobId job, const std::string& why, bool for_ever);
  /// Forgets a lease of a proxy process that ended with its worker's death.
  void lease_lost(LeaseId lease);
  /// Opens a channel from a local process to the process of another node that hosts this actor.
  /// Returns that process's proxy process.
  ProcessIndex connect(ProcessIndex process, NodeId node, ProcessIndex worker, ActorId actor,
                       std::uint64_t incarnation);
  void process_died(ProcessIndex process, const Death& death);

  // --- frames
  struct Target {
    NodeId node;
    ProcessIndex process;
  };
  /// The node and process to which frames for this proxy process go. Precondition:
  /// is_proxy_process().
  const Target& target(ProcessIndex proxy_process) const {
    return proxy_processes_.at(proxy_process).target;
  }
  /// Calls look_at(proxy process, target) for each proxy process.
  template <class F>
  void each_proxy_process(F look_at) const {
    for (const auto& [index, proxy] : proxy_processes_) look_at(index, proxy.target);
  }
  /// Whether one more frame may leave through the proxy now.
  bool may_carry(ProcessIndex process, ProcessIndex proxy_process) const;
  /// Counts a frame that left through the proxy.
  void carried(ProcessIndex process, ProcessIndex proxy_process);
  /// Counts a frame that arrived. Returns the proxy process in whose name the frame enters the
  /// ring of `frame.to`; nullopt when there is no such proxy: the caller drops the frame, and the
  /// sender gets PeerProcessGone.
  std::optional<ProcessIndex> arrived(NodeId from, const wire::PeerFrame& frame);
  /// Notes how many of the frames that arrived have entered the ring of the process, since the
  /// proxy opened. Sends PeerCredit each time a quarter of the window has entered.
  void entered(ProcessIndex process, ProcessIndex proxy_process, std::uint64_t total);

  // --- from other nodes
  /// Handles every message about leases and processes. Returns false for other messages.
  bool on_message(NodeId from, const wire::PeerMessage& message);
  /// Ends all proxies, requests and leases of that node. With `for_ever` the node is dead and
  /// keeps its index, so that late messages about it name a dead index. Otherwise it is out of
  /// reach, and gets a new index when it comes back.
  void node_died(NodeId node, const std::string& why, bool for_ever);
  /// Forgets a dead node that nothing names any more.
  void forget_node(ProcessIndex index);

  // --- observe
  /// Whether a process of that node has a proxy process here, or a lease was asked for there.
  /// Linear in the leases that were asked for elsewhere.
  bool talks_to(NodeId node) const;
  std::size_t proxy_count() const noexcept { return proxies_.size(); }
  std::size_t proxy_process_count() const noexcept { return proxy_processes_.size(); }
  std::size_t lease_count() const noexcept { return taken_.size() + given_.size(); }

 private:
  /// What another node has asked for under a key.
  struct Demand {
    wire::ResourceDemand demand;
    JobId job;
    bool no_faster = false;
  };
  struct ProxyProcess {
    Target target;
    std::set<ProcessIndex> proxies;           ///< local processes with a proxy to it
    std::map<LeaseKey, std::uint32_t> asked;  ///< key → leases asked for and not granted
    std::map<LeaseKey, Demand> demands;
  };
  struct ProxyChannel {
    std::uint64_t sent = 0, credited = 0;  ///< frames out, and how many the other side has taken
    std::uint64_t received = 0, told = 0;  ///< frames in, and the count in our last PeerCredit
  };
  /// Leases that a local process has asked another node for.
  struct Wanted {
    std::uint32_t count = 0;
    wire::ResourceDemand demand;
    JobId job;
  };
  /// A lease of another node that a local process has.
  struct Taken {
    ProcessIndex process, worker;
    NodeId node;
    LeaseId lease;  ///< its number there
    wire::ResourceDemand demand;
  };
  using ProxyKey = std::pair<ProcessIndex, ProcessIndex>;  ///< process, proxy process
  struct WantedKey {
    ProcessIndex process;
    LeaseKey key;
    NodeId node;
    friend auto operator<=>(const WantedKey&, const WantedKey&) = default;
  };

  ProcessIndex proxy_process_for(NodeId node, ProcessIndex process);
  void open(ProcessIndex process, ProcessIndex proxy_process);
  void close(ProcessIndex process, ProcessIndex proxy_process, const Death& death,
             std::uint64_t started);
  void drop_proxy_process(ProcessIndex proxy_process, const Death& death);
  void forget_if_unused(ProcessIndex proxy_process);
  void drop_taken_with(ProcessIndex process, ProcessIndex worker);
  void on_request(NodeId from, const wire::PeerLeaseRequest& message);
  void on_withdraw(NodeId from, const wire::PeerLeaseWithdraw& message);
  void on_granted(NodeId from, const wire::PeerLeaseGranted& message);
  void on_refused(NodeId from, const wire::PeerLeaseRefused& message);
  void on_reclaim(NodeId from, const wire::PeerLeaseReclaim& message);
  void on_returned(NodeId from, const wire::PeerLeaseReturned& message);
  void on_connect(NodeId from, const wire::PeerConnect& message);
  void on_gone(NodeId from, const wire::PeerProcessGone& message);
  void on_credit(NodeId from, const wire::PeerCredit& message);

  Out& out_;
  std::function<ProcessIndex()> next_index_;
  std::uint64_t carry_window_;
  std::map<NodeId, ProcessIndex> nodes_;
  std::map<ProcessIndex, NodeId> node_ids_;
  std::map<std::pair<NodeId, ProcessIndex>, ProcessIndex> by_target_;
  std::map<ProcessIndex, ProxyProcess> proxy_processes_;
  std::map<ProxyKey, ProxyChannel> proxies_;
  std::map<WantedKey, Wanted> wanted_;
  /// By the number under which the local process knows the lease: from 2^62 on, so that it differs
  /// from all numbers of this node's lease table.
  std::map<LeaseId, Taken> taken_;
  std::map<std::pair<NodeId, LeaseId>, LeaseId> taken_by_remote_;
  LeaseId next_taken_ = std::uint64_t{1} << 62;
  std::map<LeaseId, ProcessIndex> given_;  ///< our lease → the proxy process that has it
};

}  // namespace troupe::agent
