/// The agent's bookkeeping about processes of other nodes: who stands for whom here, which frames
/// may pass, which leases were asked for and given across nodes. A plain state machine.
///
/// A process of another node that talks to one of ours has a *proxy process*: a process index of
/// this node. Between a local process and a proxy process there is a *proxy*: a ring channel whose
/// other side is this agent, which carries the frames to and from the other node.
///
///     remote.spilled(process, key, node, demand, job);       // → out.send(node, PeerLeaseRequest)
///     remote.on_message(node, PeerLeaseGranted{…});         // → out.open_proxy, out.granted
///     remote.carried(process, proxy_process);               // a frame leaves: counts its credit
///     remote.node_died(node, why);                // → out.close_proxy …, out.spill_failed
///
/// Invariants: REMOTE-1 a frame reaches a process only through a proxy that this process knows.
/// REMOTE-2 every lease that another node gave is returned, reclaimed by its death, or held by a
/// live process here. REMOTE-3 a proxy is closed once, with the number of calls that the dead side
/// had begun if that is known. REMOTE-4 at most carry_window frames are under way per direction of
/// a proxy.
#pragma once

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
    /// What it has written so far takes effect, before a proxy of its is closed.
    virtual void read(ProcessIndex process) = 0;
    virtual void open_proxy(ProcessIndex process, ProcessIndex proxy_process, NodeId node) = 0;
    /// The other side is dead; `started`: calls of `process` that it began, or PeerDied::kUnknown.
    virtual void close_proxy(ProcessIndex process, ProcessIndex proxy_process,
                             const std::string& reason, std::uint64_t started) = 0;
    /// Calls of the proxy process that this local process has begun: read before its proxy is gone.
    virtual std::uint64_t started(ProcessIndex process, ProcessIndex proxy_process) = 0;
    // leases that other nodes gave to our processes
    virtual void granted(ProcessIndex process, std::uint64_t key, std::uint64_t lease,
                         ProcessIndex worker, const std::vector<std::int32_t>& gpus) = 0;
    virtual void reclaim(ProcessIndex process, std::uint64_t lease) = 0;
    /// So many leases of the key are not to be had at that node after all.
    virtual void spill_failed(ProcessIndex process, std::uint64_t key,
                              const wire::ResourceDemand& demand, std::uint32_t count,
                              NodeId node) = 0;
    /// A process of ours is done with a lease of that node.
    virtual void gave_back(NodeId node, const wire::ResourceDemand& demand) = 0;
    // our leases for processes of other nodes; the owner is the proxy process
    virtual void request(ProcessIndex proxy_process, std::uint64_t key,
                         const wire::ResourceDemand& demand, std::uint32_t backlog, JobId job) = 0;
    virtual void returned(std::uint64_t lease) = 0;
    virtual void owner_died(ProcessIndex proxy_process) = 0;
  };

  /// `next_index`: gives out process indexes of this node. `carry_window`: the same on all nodes.
  RemoteTable(Out& out, std::function<ProcessIndex()> next_index,
              std::uint64_t carry_window = wire::kCarryWindow)
      : out_(out), next_index_(std::move(next_index)), carry_window_(carry_window) {}

  /// The index that stands for a node as holder of refs; made at first use.
  ProcessIndex index_of(NodeId node);
  /// The node behind such an index, or nullopt.
  std::optional<NodeId> node_of(ProcessIndex index) const;
  bool is_proxy_process(ProcessIndex index) const { return proxy_processes_.count(index) != 0; }

  // --- from this node
  /// One lease of this key is to be asked for at that node.
  void spilled(ProcessIndex process, std::uint64_t key, NodeId node,
               const wire::ResourceDemand& demand, JobId job);
  /// Leases of this key that other nodes were asked for and have not answered.
  std::uint32_t outstanding(ProcessIndex process, std::uint64_t key) const;
  /// The process wants no more leases of this key.
  void withdrawn(ProcessIndex process, std::uint64_t key);
  /// Who has this lease of another node; nullopt: it is over, or none of those.
  std::optional<ProcessIndex> taker_of(std::uint64_t lease) const;
  /// True when the lease was another node's; it is told.
  bool lease_returned(ProcessIndex process, std::uint64_t lease);
  /// Our lease table served a request of a proxy process.
  void granted_here(ProcessIndex proxy_process, std::uint64_t key, std::uint64_t lease,
                    ProcessIndex worker, const std::vector<std::int32_t>& gpus);
  void refused_here(ProcessIndex proxy_process, std::uint64_t key, const std::string& why);
  /// Our lease table served it with a worker that has just died: its request is still open. (A
  /// process of this node asks again by itself; another node counts on what it was not refused.)
  void request_again(ProcessIndex proxy_process, std::uint64_t key);
  void reclaim_here(ProcessIndex proxy_process, std::uint64_t lease);
  /// Nothing of this job can run here: what others asked for it is refused.
  void refuse_job(JobId job, const std::string& why);
  /// The lease ended with its worker's death.
  void lease_lost(std::uint64_t lease);
  /// A channel from a local process to a process of another node, which hosts this actor. Returns
  /// its proxy process.
  ProcessIndex connect(ProcessIndex process, NodeId node, std::uint64_t worker, ActorId actor,
                       std::uint64_t incarnation);
  void process_died(ProcessIndex process, const std::string& reason);

  // --- frames
  struct Target {
    NodeId node;
    std::uint64_t process = 0;
  };
  /// Where frames for this proxy process go.
  const Target& target(ProcessIndex proxy_process) const {
    return proxy_processes_.at(proxy_process).target;
  }
  /// Whether one more frame may leave through the proxy now.
  bool may_carry(ProcessIndex process, ProcessIndex proxy_process) const;
  /// A frame left through it.
  void carried(ProcessIndex process, ProcessIndex proxy_process);
  /// The proxy process for which a frame that arrived is to enter the ring of `frame.to`; nullopt:
  /// there is no such proxy, the sender was told, the frame is to be dropped.
  std::optional<ProcessIndex> arrived(NodeId from, const wire::PeerFrame& frame);
  /// So many frames that arrived in all have entered the ring of the process; tells the sender from
  /// time to time.
  void entered(ProcessIndex process, ProcessIndex proxy_process, std::uint64_t total);

  // --- from other nodes: everything about leases and processes; false for other messages
  bool on_message(NodeId from, const wire::PeerMessage& message);
  /// Everything with that node is over. A dead one keeps its index, so that late words about it
  /// meet a dead index; one that is merely out of reach gets a new one when it comes back.
  void node_died(NodeId node, const std::string& why, bool for_ever);
  /// A dead one that nothing names any more.
  void forget_node(ProcessIndex index);

  // --- observe
  /// Whether processes there and here have something to do with each other. Linear in the
  /// leases that were asked for elsewhere.
  bool talks_to(NodeId node) const;
  std::size_t proxy_count() const noexcept { return proxies_.size(); }
  std::size_t proxy_process_count() const noexcept { return proxy_processes_.size(); }
  std::size_t lease_count() const noexcept { return taken_.size() + given_.size(); }

 private:
  struct ProxyProcess {
    Target target;
    std::set<ProcessIndex> proxies;                ///< local processes
    std::map<std::uint64_t, std::uint32_t> asked;  ///< key → wanted by it and not granted
    std::map<std::uint64_t, std::pair<wire::ResourceDemand, JobId>> demands;
  };
  struct ProxyChannel {
    std::uint64_t sent = 0, credited = 0;  ///< frames out, and what the other side has taken
    std::uint64_t received = 0, told = 0;  ///< frames in, and what we told of them
  };
  /// What a process of ours has asked of another node.
  struct Wanted {
    std::uint32_t count = 0;
    wire::ResourceDemand demand;
    JobId job;
  };
  /// A lease of another node in the hands of a process of ours.
  struct Taken {
    ProcessIndex process = 0, worker = 0;
    NodeId node;
    std::uint64_t lease = 0;  ///< its number there
    wire::ResourceDemand demand;
  };
  using ProxyKey = std::pair<ProcessIndex, ProcessIndex>;  ///< process, proxy process
  struct WantedKey {
    ProcessIndex process = 0;
    std::uint64_t key = 0;
    NodeId node;
    friend auto operator<=>(const WantedKey&, const WantedKey&) = default;
  };

  ProcessIndex proxy_process_for(NodeId node, std::uint64_t process);
  void open(ProcessIndex process, ProcessIndex proxy_process);
  void close(ProcessIndex process, ProcessIndex proxy_process, const std::string& reason,
             std::uint64_t started);
  void drop_proxy_process(ProcessIndex proxy_process, const std::string& reason);
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
  std::map<std::pair<NodeId, std::uint64_t>, ProcessIndex> by_target_;
  std::map<ProcessIndex, ProxyProcess> proxy_processes_;
  std::map<ProxyKey, ProxyChannel> proxies_;
  std::map<WantedKey, Wanted> wanted_;
  /// By the number under which our process knows it: from 2^62 on, apart from the lease table's.
  std::map<std::uint64_t, Taken> taken_;
  std::map<std::pair<NodeId, std::uint64_t>, std::uint64_t> taken_by_remote_;
  std::uint64_t next_taken_ = std::uint64_t{1} << 62;
  std::map<std::uint64_t, ProcessIndex> given_;  ///< our lease → the proxy process that has it
};

}  // namespace troupe::agent
