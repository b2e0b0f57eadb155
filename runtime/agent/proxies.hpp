/// Proxies: the channels between processes of this node and proxy processes, which stand for
/// processes of other nodes. Carries frames in both directions and counts the refs inside. Carries
/// out what RemoteTable decides about proxies.
///
///     proxies.drain({process, proxy_process});   // the process has written: its frames leave
///     proxies.on_frame(node, frame, payload);    // a frame of another node enters the ring
///     proxies.resume(node);                      // the node or the network has room again
///     proxies.release_answers();                 // this node may serve again
///
/// Invariants: PROXY-1 A ref of a frame that leaves was counted by its process first: the process's
/// ring is read before the proxy's. PROXY-2 A process is told PeerDied when all frames that arrived
/// are in its ring. PROXY-3 Frames that a process wrote and that were not carried are dropped with
/// the counts of their refs. PROXY-4 No frame with a place in memory passes, in neither direction.
/// PROXY-5 An actor's answers stay here, and calls to it are refused, while this node may have been
/// declared dead.
#pragma once

#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/death.hpp"
#include "troupe/runtime/agent/leases.hpp"
#include "troupe/runtime/agent/outgoing.hpp"
#include "troupe/runtime/agent/owners.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/remote.hpp"
#include "troupe/runtime/ring/channel.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

class Proxies final : public RemoteTable::Out {
 public:
  using Key = std::pair<ProcessIndex, ProcessIndex>;  ///< process, proxy process
  /// A new channel whose other side is this agent.
  struct Opened {
    ring::Channel channel;
    std::uint32_t slot = 0;      ///< in this agent's doorbell
    std::uint32_t its_slot = 0;  ///< in the process's doorbell
  };
  /// What this part needs of the processes of this node.
  class Rings {
   public:
    virtual ~Rings() = default;
    /// Reads what the process has written to the agent so far, if it lives.
    virtual void read_ring(ProcessIndex process) = 0;
    /// Ends the connection to the process.
    virtual void break_off(ProcessIndex process, const std::string& why) = 0;
    /// Makes a channel and tells the process of it; nullopt: there is no memory, and the process
    /// ends. `holder`: the other node, as holder of the refs in frames.
    virtual std::optional<Opened> open_channel(ProcessIndex process, ProcessIndex proxy_process,
                                               ProcessIndex holder) = 0;
    /// Gives the slots of such a channel back.
    virtual void close_channel(ProcessIndex process, std::uint32_t slot,
                               std::uint32_t its_slot) = 0;
  };
  /// What this part needs of the network.
  class Nodes {
   public:
    virtual ~Nodes() = default;
    /// Returns whether this node has surely not been declared dead.
    virtual bool may_serve() = 0;
    /// Drops the connection to a node.
    virtual void drop(NodeId node, const std::string& why) = 0;
  };
  /// The parts below this one.
  struct Below {
    ReferenceTable& references;
    RemoteTable& remote;
    Owners& owners;
    ActorHost& actors;
    scheduling::LeaseTable& table;
    Leases& leases;
    Outgoing& out;
    Rings& rings;
    Nodes& nodes;
  };
  Proxies(NodeId self, const Below& below) : self_(self), below_(below) {}

  // --- frames
  /// Carries the frames that the process wrote into the channel, as far as they may leave.
  void drain(Key key) {
    if (const auto at = proxies_.find(key); at != proxies_.end()) drain(at->second);
  }
  void on_frame(NodeId from, const wire::PeerFrame& frame, BlobView payload);
  /// Returns the proxy processes to which the process has a channel.
  std::vector<ProcessIndex> of(ProcessIndex process) const {
    std::vector<ProcessIndex> others;
    for (auto at = proxies_.lower_bound({process, kSelf});
         at != proxies_.end() && at->first.first == process; ++at)
      others.push_back(at->first.second);
    return others;
  }
  /// Goes on with proxies of the node whose frames could not leave.
  void resume(NodeId node);
  /// Sends the answers of actors that drain() held back, once control has answered again and has
  /// not declared this node dead.
  void release_answers();

  // --- ends
  /// Drops what the process wrote into a channel after this agent closed it. The process has now
  /// read PeerDied (it has sent Arrived), and has stopped writing.
  void drop_written_since(Key key);
  /// Carries all that a process wrote that is about to be removed, room or not.
  void drain_to_the_end(ProcessIndex process);
  /// Removes the ending proxies of a process that reads them no more.
  void finish_ending(ProcessIndex process);

  // --- RemoteTable::Out
  void send(NodeId to, const wire::PeerMessage& message) override {
    below_.out.send(to, message, {});
  }
  bool is_alive(ProcessIndex process) override { return below_.out.is_alive(process); }
  bool hosts(ProcessIndex worker, ActorId actor, std::uint64_t incarnation) override {
    return is_alive(worker) && below_.actors.hosts(worker, actor, incarnation);
  }
  void read(ProcessIndex process) override { below_.rings.read_ring(process); }
  void open_proxy(ProcessIndex process, ProcessIndex proxy_process, NodeId node) override;
  void close_proxy(ProcessIndex process, ProcessIndex proxy_process, const Death& death,
                   std::uint64_t started) override;
  std::uint64_t started(ProcessIndex process, ProcessIndex proxy_process) override;
  void granted(ProcessIndex process, LeaseKey key, LeaseId lease, ProcessIndex worker,
               const std::vector<std::int32_t>& gpus) override {
    below_.leases.granted(process, key, lease, worker, gpus);
  }
  void reclaim(ProcessIndex process, LeaseId lease) override {
    below_.leases.reclaim(process, lease);
  }
  void job_refused(ProcessIndex process, NodeId node, const std::string& why) override;
  void spill_failed(ProcessIndex process, LeaseKey key, const wire::ResourceDemand& demand,
                    std::uint32_t count, NodeId node) override;
  void gave_back(NodeId node, const wire::ResourceDemand& demand) override;
  void request(ProcessIndex proxy_process, LeaseKey key, const wire::ResourceDemand& demand,
               std::uint32_t backlog, JobId job, bool no_faster) override;
  void returned(LeaseId lease) override;
  void owner_died(ProcessIndex proxy_process) override;

 private:
  /// A channel between a local process and a proxy process. This agent is its other side.
  struct Proxy {
    ProcessIndex process, proxy_process;
    NodeId node;
    ProcessIndex holder;  ///< index of `node` when this was opened: holder of carried refs
    Opened ends;
    std::uint64_t pushed = 0;  ///< frames that arrived from the node
    struct Ending {
      Death death;
      std::uint64_t started = 0;
    };
    std::optional<Ending> ending;  ///< PeerDied, due when all that arrived has entered the ring
  };
  using Table = std::map<Key, Proxy>;
  void drain(Proxy& proxy, bool to_the_end = false);
  void carry(Proxy& proxy, const wire::CallMessage& message, BlobView frame);
  void carry(Proxy& proxy, std::uint64_t call, std::vector<wire::OwnedRef> refs, BlobView frame);
  void drop_unread(Proxy& proxy);
  void finish(Table::iterator proxy, bool at_once = false);
  void note_entered(Proxy& proxy);

  const NodeId self_;
  const Below below_;
  Table proxies_;
  Table closed_;                ///< until the process has read that they are: see Arrived
  std::set<Key> stalled_;       ///< whose frames may not leave now
  bool holds_answers_ = false;  ///< some of those hold answers of actors: see release_answers()
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame_;
};

}  // namespace troupe::agent
