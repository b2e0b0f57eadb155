/// One simulated machine: an agent with the real Network, LeaseTable, ReferenceTable, ActorHost,
/// RemoteTable and TransferPlan, wired as in agent/node*.cpp, and the processes of its node. Not
/// simulated: the protocol of shared memory, spilling, zygotes and shipped programs.
#pragma once

#include "tests/simulation/cluster/bulk.hpp"
#include "tests/simulation/cluster/process.hpp"
#include "tests/simulation/cluster/program.hpp"
#include "tests/simulation/kernel/world.hpp"
#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/in_flight_refs.hpp"
#include "troupe/runtime/agent/network.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/remote.hpp"
#include "troupe/runtime/agent/reports.hpp"
#include "troupe/runtime/base/sleep_clock.hpp"
#include "troupe/runtime/client/actor_lease_timer.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace troupe::sim::cluster {

using agent::kSelf;
class Cluster;

class Agent final : public sim::Node<Packet>,
                    public Machine,
                    private Wire,
                    private agent::ReferenceTable::Out,
                    private agent::ActorHost::Out,
                    private agent::RemoteTable::Out,
                    private agent::Network::Handler,
                    private BulkMoves::Out,
                    private agent::ControlPort {
 public:
  Agent(Cluster& cluster, sim::NodeIndex self, NodeId id);
  ~Agent() override;

  // sim::Node
  void on_start(sim::Env<Packet>& env) override;
  void on_message(sim::Env<Packet>& env, sim::NodeIndex from, Packet packet) override;
  void on_timer(sim::Env<Packet>& env, std::uint64_t id) override;
  bool goes_on(std::uint64_t timer) const override;
  bool counts_sleep(std::uint64_t timer) const override;
  void on_connection(sim::Env<Packet>& env, sim::NodeIndex peer, bool up) override;

  // Faults, called from within world.with(). They return false when there is nothing to strike.
  bool strike_process(sim::Env<Packet>& env, Mark kind);
  bool strike_report(sim::Env<Packet>& env);
  /// Ends the connection with another node, as an agent does after bytes that it cannot read.
  bool strike_talk(sim::Env<Packet>& env);
  /// Ends an actor as the command line does.
  void end_actor(sim::Env<Packet>& env, ActorId actor);

  // Observe.
  NodeId id() const noexcept { return id_; }
  bool drivers_done() const;
  /// Returns whether a process hosts a life of `actor` that is not newer than `newest`.
  bool has_process_of(ActorId actor, std::uint64_t newest = ~std::uint64_t{0}) const;
  bool has_callers_of_actors() const;
  /// Describes in words what is left of any job; empty when nothing is.
  std::string left_over() const;
  std::string why_busy() const;
  std::string requests() const;
  std::string seen_records() const;
  bool registered() const { return network_ && network_->epoch() != 0; }
  bool has_roster() const { return network_ && network_->has_roster(); }
  bool exited() const noexcept { return over_; }
  /// Returns whether this agent might serve actors if it ran now.
  bool may_serve(Time now, Time up) const {
    SleepClock sleep = sleep_;
    return !over_ && network_ && !sleep.slept(up.time_since_epoch(), now) &&
           network_->may_serve(now);
  }
  /// Returns until when processes here may go on while the agent does not run, by up_time(). It
  /// is the later of the agent's published lease word and the words that processes which are not
  /// halted have read.
  Time serves_until() const;
  const scheduling::LeaseTable& leases() const noexcept { return leases_; }
  void calm() { moves_.calm(); }
  /// Prints a line of a replay's log.
  void log(const std::string& line);

 private:
  struct Proc {
    ProcessIndex index;
    bool driver = false, dedicated = false;
    std::shared_ptr<Rings> rings = std::make_shared<Rings>();
    std::unique_ptr<Process> process;  ///< null: not started, or dead
    JobId job;
    JobNumber job_number;
    std::set<LeaseKey> keys;  ///< of its lease requests
    std::set<ProcessIndex> peers;
    std::optional<Time> starts_at;  ///< set while it is being forked
    bool start_fails = false;
    std::optional<Time> reaped_at;  ///< set for a dead process: when the agent learns of it
    std::string reason;
    bool attached = false;
    bool halted = false;  ///< SIGSTOP: see halt_actors()
  };
  struct Job {
    JobId id;
    JobNumber number;
    Time end_by = Time::max();
    bool ended = false;
    ProcessIndex driver;
    bool described = false, welcome = false;
    /// Whether workers may be started: unknown, asked of control, or ready.
    enum class State : std::uint8_t { unknown, asked, ready } state = State::unknown;
    std::vector<bool> waiting;  ///< one per worker to start once ready; true: dedicated
    control::JobRecord record;
  };
  struct ProxyChannel {
    ProcessIndex holder;  ///< local index of the other node, in the life it had then
    ProcessIndex process, proxy_process;
    NodeId node;
    End end;
    std::uint64_t pushed = 0;
    struct Ending {
      std::string reason;
      std::uint64_t started = 0;
    };
    std::optional<Ending> ending;
    bool has_work() const { return ending || end.has_input() || end.waiting() > 0; }
  };
  using ProxyKey = std::pair<ProcessIndex, ProcessIndex>;
  using ProxyChannels = std::map<ProxyKey, ProxyChannel>;

  // Machine
  Time now() const override { return env_->now(); }
  Time up_time() const override { return env_->up_time(); }
  Random& random() override { return env_->random(); }
  Store& store() override { return store_; }
  Truth& truth() override;
  void wake_agent() override;
  void wake(ProcessIndex process, Duration after) override;
  void interrupt_at(ProcessIndex process, Time at) override;
  std::int64_t actor_lease_word() const override { return said_; }
  bool stands_still() const override;
  void exit_process(ProcessIndex process) override;
  void killed_in_a_frame(ProcessIndex process) override;
  NodeId node() const override { return id_; }
  std::vector<NodeId> nodes() const override;
  bool faulting() const override;
  bool actor_lives(ActorId actor) override;
  std::string outlived() override;
  bool lives_beside(ActorId actor) override;
  bool next_life_waits() override;
  // Wire
  void transmit(Packet packet) override;

  // the loop: agent.cpp
  void join(sim::Env<Packet>& env);
  void open_network();
  void arm(std::uint64_t id, Duration after);
  void pass();
  void step_process(ProcessIndex index);
  void interrupt_process(ProcessIndex index);
  void drain_rings();
  void drain_ring(Proc& proc);
  void handle(Proc& from, wire::NodeMessage& message, BlobView payload);
  void reap();
  void end(Proc& proc);
  void worker_gone(Proc& proc);
  void carry_out_leases();
  void start_worker(bool dedicated, JobNumber job);
  void count_processes();
  void start_due();
  void kill_process(Proc& proc, const std::string& why, bool fault = false);
  void kill_an_idle_worker();
  void report(Time now);
  void tell_pace(Time now);
  void keep_in_touch(Time now);
  Time next_deadline() const;
  Proc* find_proc(ProcessIndex index);
  void send(Proc& to, wire::NodeMessage message, BlobView payload = {});
  void connect(Proc& a, Proc& b);
  void go_down();
  void check_invariants();

  // jobs
  Job& job_of(JobId id);
  void add_driver(std::uint64_t number);
  void start_job(Job& job);
  void driver_gone(Proc& driver, bool finished);
  void drop_lease_requests(const Job& job);
  void end_tasks(const Job& job);
  void end_late_jobs(Time now);
  void end_job(JobId id);
  void forget_ended_jobs();
  void on_registered();
  void on_job_info(const control::JobInfo& info);
  bool has_purpose(const Proc& worker) const;
  void counted(const wire::Value& value);
  void undo(ProcessIndex process, const agent::InFlightRefs::Undone& undone);

  // the cluster and other nodes: agent_remote.cpp
  void send(control::ToControl message) override;
  void on_peer(NodeId from, wire::Decoded<wire::PeerMessage>& message) override;
  void on_control(control::FromControl& message) override;
  void on_peer_reset(NodeId node, const std::string& why) override;
  void on_control_reset(const std::string& why) override;
  void on_nodes(const control::ClusterNodes& nodes) override;
  void on_node_dead(NodeId node, const std::string& why) override;
  void on_can_send(NodeId node) override;
  void exit_now(const std::string& why) override;
  void node_gone(NodeId node, const std::string& why, bool for_ever);
  ProcessIndex index_of(NodeId node);
  ProcessIndex owner_index(NodeId owner);
  void drain_proxy(ProxyChannel& proxy, bool to_the_end = false);
  void carry(ProxyChannel& proxy, Frame& frame);
  void drop_unread(ProxyChannel& proxy);
  void drop_written_since(ProxyKey key);
  void check_unsent(const Proc& proc);
  void finish_proxy(ProxyChannels::iterator proxy, bool at_once = false);
  void note_entered(ProxyChannel& proxy);
  void on_frame(NodeId from, const wire::PeerFrame& frame, BlobView payload);
  void resume_stalled(NodeId node);
  void halt_actors();
  void say(std::int64_t word);
  void release_answers();
  void take_in(NodeId from, const wire::OwnedRef& ref);
  // RemoteTable::Out
  void send(NodeId to, const wire::PeerMessage& message) override;
  bool is_alive(ProcessIndex process) override;
  bool hosts(ProcessIndex worker, ActorId actor, std::uint64_t incarnation) override;
  void open_proxy(ProcessIndex process, ProcessIndex proxy_process, NodeId node) override;
  void read(ProcessIndex process) override;
  void close_proxy(ProcessIndex process, ProcessIndex proxy_process, const agent::Death& death,
                   std::uint64_t started) override;
  std::uint64_t started(ProcessIndex process, ProcessIndex proxy_process) override;
  void granted(ProcessIndex process, LeaseKey key, LeaseId lease, ProcessIndex worker,
               const std::vector<std::int32_t>& gpus) override;
  void reclaim(ProcessIndex process, LeaseId lease) override;
  void job_refused(ProcessIndex process, NodeId node, const std::string& why) override;
  void spill_failed(ProcessIndex process, LeaseKey key, const wire::ResourceDemand& demand,
                    std::uint32_t count, NodeId node) override;
  void gave_back(NodeId node, const wire::ResourceDemand& demand) override;
  void request(ProcessIndex proxy_process, LeaseKey key, const wire::ResourceDemand& demand,
               std::uint32_t backlog, JobId job, bool no_faster) override;
  void returned(LeaseId lease) override;
  void owner_died(ProcessIndex proxy_process) override;
  // BulkMoves::Out
  void send_peer(NodeId to, const wire::PeerMessage& message, BlobView payload) override;
  void send_bulk(Packet packet) override { transmit(std::move(packet)); }
  std::optional<BulkMoves::Held> find(ObjectId object) override;
  void moved(ObjectId object, const wire::Location& location) override;
  void move_failed(ObjectId object, const Error& error) override;
  // ReferenceTable::Out
  void ready(ProcessIndex process, ObjectId object, const wire::Value& value,
             BlobView payload) override;
  void free(const wire::Location& location) override {
    in_flight_refs_.freed(location);
    frees_.push_back(location);
  }
  void unreferenced(ActorId actor) override;
  void peer_hold(ProcessIndex to, ObjectId object, ProcessIndex holder,
                 std::int32_t delta) override;
  void peer_await(ProcessIndex owner, ObjectId object) override;
  void pull(ProcessIndex owner, ObjectId object, std::uint64_t bytes) override;
  void peer_rebuild(ProcessIndex owner, ObjectId object, ObjectId lost) override;
  void rebuild(ProcessIndex maker, ObjectId object, ObjectId lost) override;
  // ActorHost::Out: agent_actors.cpp
  void need_worker(std::uint64_t life, const scheduling::ResourceDemand& demand,
                   JobId job) override;
  void release_worker(std::uint64_t life) override;
  void start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView payload,
                   const std::vector<wire::OwnedRef>& refs) override;
  void end_worker(ProcessIndex worker) override;
  void kill_worker(ProcessIndex worker) override;
  void publish(ProcessIndex watcher, const wire::ActorUpdate& update) override;
  void publish_remote(ProcessIndex watcher, const control::ActorLocation& location,
                      bool silent) override;
  void answer(ProcessIndex process, const wire::FoundActor& found, NodeId owner) override;
  NodeId owner_of(ObjectId object) override;
  void drop_creation(const wire::Call& creation) override;

  Cluster& cluster_;
  sim::NodeIndex self_index_;
  NodeId id_;
  sim::Env<Packet>* env_ = nullptr;
  Store store_;
  std::unique_ptr<agent::Network> network_;
  Epoch control_epoch_ = 0;  ///< of the current control
  scheduling::LeaseTable leases_;
  agent::ReferenceTable references_{*this};
  agent::ActorHost actors_;
  agent::RemoteTable remote_;
  BulkMoves moves_;
  sim::FlatMap<ProcessIndex, std::unique_ptr<Proc>> processes_;
  ProxyChannels proxies_;
  ProxyChannels closed_;  ///< closed, but their processes have not read that yet
  std::set<ProxyKey> stalled_;
  bool holds_answers_ = false, halts_actors_ = false;
  std::int64_t said_ = client::kServesAlways;  ///< actor lease word on its doorbell
  SleepClock sleep_;
  std::map<JobNumber, Job> jobs_;
  std::map<JobId, JobNumber> job_numbers_;
  JobNumber next_job_;
  std::map<std::uint64_t, JobNumber> waiting_lives_;
  std::map<std::uint64_t, LeaseId> actor_leases_;
  std::deque<control::ToControl> driver_ends_;
  std::vector<wire::Location> frees_;
  agent::InFlightRefs in_flight_refs_;
  std::set<NodeId> known_nodes_;
  agent::Reports reporting_;
  Time next_pace_{};
  Time next_touch_{}, next_join_{};
  ProcessIndex next_process_ = 1;
  wire::FrameWriter writer_;
  bool joined_ = false, over_ = false, in_pass_ = false, settle_again_ = false;
  bool has_input_ = false;    ///< something may have arrived since the rings were read
  bool proxy_waits_ = false;  ///< a proxy channel had work when the rings were read last
  /// By the spawn request to control: the actor, and whether control has made it as far as this
  /// node knows.
  std::map<std::uint64_t, std::pair<ActorId, bool>> spawned_;
  std::uint64_t passes_ = 0;
  std::uint32_t starting_ = 0, dead_ = 0;  ///< numbers of processes
};

}  // namespace troupe::sim::cluster
