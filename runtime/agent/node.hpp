/// The event loop of a node's agent. The parts in agent/README.md make the decisions. Node feeds
/// them with messages and carries out what they decide.
///
/// A private node serves the one driver at the other end of a socket. A node of a cluster also has
/// neighbours (RemoteTable, Network, Transfers), drivers and observers that connect to its local
/// socket, and a zygote for each job.
///
/// One thread runs the loop and makes no blocking call. It reads rings and the doorbell, sockets of
/// processes, reports of zygotes, the network and timers. After each pass over everything that was
/// ready, it settles the reference counts, unless the ring of an ending process is still unread.
#pragma once

#include "troupe/runtime/agent/actor_effects.hpp"
#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/cluster_link.hpp"
#include "troupe/runtime/agent/doors.hpp"
#include "troupe/runtime/agent/draining.hpp"
#include "troupe/runtime/agent/extents.hpp"
#include "troupe/runtime/agent/folder_copies.hpp"
#include "troupe/runtime/agent/inquiries.hpp"
#include "troupe/runtime/agent/job_stops.hpp"
#include "troupe/runtime/agent/jobs.hpp"
#include "troupe/runtime/agent/leases.hpp"
#include "troupe/runtime/agent/lineage_cache.hpp"
#include "troupe/runtime/agent/local_control.hpp"
#include "troupe/runtime/agent/memory_watch.hpp"
#include "troupe/runtime/agent/network.hpp"
#include "troupe/runtime/agent/node_events.hpp"
#include "troupe/runtime/agent/node_logs.hpp"
#include "troupe/runtime/agent/objects.hpp"
#include "troupe/runtime/agent/observers.hpp"
#include "troupe/runtime/agent/options.hpp"
#include "troupe/runtime/agent/owners.hpp"
#include "troupe/runtime/agent/poll_set.hpp"
#include "troupe/runtime/agent/processes.hpp"
#include "troupe/runtime/agent/programs.hpp"
#include "troupe/runtime/agent/proxies.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/remote.hpp"
#include "troupe/runtime/agent/replica_host.hpp"
#include "troupe/runtime/agent/sender.hpp"
#include "troupe/runtime/agent/transfers.hpp"
#include "troupe/runtime/agent/workers.hpp"
#include "troupe/runtime/base/sleep_clock.hpp"
#include "troupe/runtime/os/launch.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"
#include "troupe/runtime/wire/messages.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe::agent {

struct NodeOptions : os::NodeOffer {
  std::string name = "node";
};

class Node final : private Network::Handler,
                   private Workers::Out,
                   private Processes::Out,
                   private Programs::Out {
 public:
  /// A private node. Errors: out_of_memory when shared memory cannot be had.
  explicit Node(NodeOptions options);
  /// A node of a cluster; it registers with control while it serves. Errors: as above; unavailable
  /// when an address or the name of the local socket is taken.
  Node(NodeOptions options, os::AgentConfig config);
  ~Node() override;
  /// Serves until the driver at this socket is gone.
  void serve(Fd driver);
  /// Serves until the launcher at this socket is gone, or this node has to end. Returns why the
  /// node ended, or an empty string when the launcher ended it.
  std::string serve_cluster(Fd launcher);
  /// Returns the address at which other nodes reach this one. Precondition: a node of a cluster.
  const std::string& door() const noexcept { return network_->door(); }

 private:
  // the loop (node.cpp)
  void loop();
  void poll_once(Time until);
  void on_timer();
  void end_processes();
  // Workers::Out, with job_failed() and go_down() below
  void end(Process& process) override;
  bool is_over() const override { return over_; }
  bool settle();
  Time next_deadline() const;

  // memory (node_memory.cpp)
  void open_spiller();
  void look_at_spills(Time now);
  void open_copies();

  // messages (node_messages.cpp)
  void handle(Process& from, wire::NodeMessage& message, BlobView payload,
              std::vector<Fd>& descriptors) override;
  void on_shutdown(Process& from, const wire::Shutdown& message);
  void on_hello(Process& from, const wire::Hello& hello, std::vector<Fd>& descriptors);
  void welcome(Process& from, std::vector<Fd> descriptors);
  void store_attached(Process& from);
  void answer_nodes(Process& to, std::uint64_t request);
  control::NodeReport report_of_self() const;
  bool hear_control();

  // jobs (node_jobs.cpp)
  void on_driver(Process& from, const wire::Hello& hello, std::vector<Fd> descriptors);
  void driver_gone(Process& driver, bool finished);
  void forget_ended_jobs();
  void on_job_reply(const control::JobReply& reply);
  void on_job_info(const control::JobInfo& info);
  void job_failed(Job& job, const std::string& why) override;
  void drop_lease_requests(const Job& job);
  void end_job(JobId id, const std::string& why);
  // Programs::Out
  void send(NodeId to, const wire::PeerMessage& message, BlobView payload) override {
    sender_.send(to, message, payload);
  }
  void described(JobId job, const Result<Programs::Files>& files) override;
  void program(JobId job, const Result<os::Program>& program) override;

  // the cluster (node_cluster.cpp)
  void join(os::AgentConfig config);
  void go_down(const std::string& why) override;
  void end_with_cluster(const std::string& why);
  void leave_if_drained(Time now);
  void report(Time now);
  void leave();
  void keep_in_touch(Time now);
  void node_gone(NodeId node, const std::string& why, bool for_ever);
  void on_control(control::FromControl& message) override;
  void on_peer(NodeId from, wire::Decoded<wire::PeerMessage>& message) override;
  void on_peer_reset(NodeId node, const std::string& why) override;
  void on_control_reset(const std::string& why) override;
  void on_nodes(const control::ClusterNodes& nodes) override;
  void on_node_dead(NodeId node, const std::string& why) override;
  void on_silent(NodeId node, bool silent) override;
  void on_not_sent(const std::string& why) override {
    events_.tell({EventKind::refused, Severity::warning, why});
  }
  void on_can_send(NodeId node) override;
  void exit_now(const std::string& why) override;
  void halt_actors();
  void serve_network(bool network, bool transfers);
  void tell_pace(Time now);

  NodeOptions options_;
  const AgentOptions environment_;
  NodeId id_;
  NodeEvents events_{options_.name, id_};
  std::unique_ptr<objectstore::Host> host_;
  MemoryWatch memory_{{options_.name, events_, environment_, *host_, leases_, actors_, processes_}};
  Extents extents_{{options_.name, environment_, *host_, references_, memory_.accounting(),
                    memory_.prefault(), folder_copies_, replica_host_, sender_, objects_}};
  Objects objects_{{id_, events_, environment_, *host_, references_, remote_, owners_, actors_,
                    lineage_cache_, replica_host_, folder_copies_, extents_, memory_, processes_,
                    transfers_, sender_}};
  scheduling::LeaseTable leases_;
  ReferenceTable references_{objects_};
  Leases leasing_;
  LineageCache lineage_cache_;
  std::unique_ptr<LocalControl> control_;  ///< of a private node; null in a cluster
  Sender sender_{{events_, processes_, control_, network_}};
  ActorHost actors_;
  ActorEffects actor_effects_{
      {id_, actors_, leasing_, jobs_, references_, remote_, owners_, objects_, processes_}};
  Proxies proxies_{
      id_,
      {references_, remote_, owners_, actors_, leases_, leasing_, sender_, processes_, sender_}};
  RemoteTable remote_{proxies_, [this] { return processes_.take_index(); }};
  Owners owners_{id_, references_, remote_};
  Processes processes_{{options_.name, events_, references_, objects_.in_flight_refs(), leases_,
                        remote_, actors_, proxies_, *this}};
  SleepClock sleep_;
  Jobs jobs_;
  JobStops job_stops_;
  Draining draining_;
  bool over_ = false;
  std::string over_why_;
  PollSet poll_set_;

  // In a cluster.
  os::AgentConfig config_;
  Doors doors_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<Programs> programs_;
  ClusterLink cluster_{id_, leases_};
  Inquiries inquiries_{sender_};
  Observers observers_{
      {id_,        options_.name, environment_, *host_,         processes_,  workers_,
       jobs_,      job_stops_,    events_,      leases_,        references_, remote_,
       actors_,    proxies_,      extents_,     folder_copies_, memory_,     cluster_,
       inquiries_, logs_,         sender_,      sender_}};
  Workers workers_{{options_.name, events_, processes_, jobs_, leases_, actors_, programs_, logs_,
                    observers_.stacks(), *this}};
  std::unique_ptr<NodeLogs> logs_;  ///< null: workers have the agent's output, and no file

  ReplicaHost replica_host_;
  FolderCopies folder_copies_{{options_.name, *host_, references_, owners_, extents_}};
};

}  // namespace troupe::agent
