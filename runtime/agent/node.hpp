/// The agent's event loop and what it keeps of each process of its node. Thin: the decisions are in
/// LeaseTable, OwnerTable, ActorHost (with control's Directory behind it) and the store's Host.
///
/// One thread, no blocking call: rings and doorbell, process sockets, the zygote's reports, timers.
/// After each pass over everything that was ready the reference counts are settled.
#pragma once

#include "troupe/objectstore/host.hpp"
#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/local_control.hpp"
#include "troupe/runtime/agent/owners.hpp"
#include "troupe/runtime/process/local_socket.hpp"
#include "troupe/runtime/process/zygote.hpp"
#include "troupe/runtime/ring/channel.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace troupe::agent {

struct NodeOptions {
  double cpus = 1;
  double gpus = 0;
  Bytes memory{};  ///< of the object store; 0: a share of the machine's
  std::string name = "node";
};

class Node final : private OwnerTable::Out, private ActorHost::Out {
 public:
  /// Errors: out_of_memory when shared memory cannot be had.
  explicit Node(NodeOptions options);
  ~Node() override;
  /// Serves until the driver at this socket is gone.
  void serve(Fd driver);

 private:
  struct Process {
    ProcessIndex index = 0;
    wire::ProcessKind kind = wire::ProcessKind::driver;
    process::LocalSocket socket;
    std::shared_ptr<ring::Doorbell> bell;
    ring::Channel channel;
    std::uint32_t line = 0;       ///< of its channel, in our doorbell
    std::uint32_t next_line = 2;  ///< in its doorbell: 0 is the socket, 1 this agent
    std::uint32_t store_index = 0;
    JobId job;                ///< that it works for
    bool attached = false;    ///< its tables are sealed
    bool introduced = false;  ///< said hello
    pid_t pid = 0;
    bool doomed = false;  ///< to be buried after this pass
    std::string reason;
    std::set<ProcessIndex> peers;  ///< with a channel
  };

  // the loop (node.cpp)
  void loop();
  void poll_once(Time until);
  void drain_bell();
  void drain_ring(Process& process);
  void drain_socket(Process& process);
  void on_timer();
  void bury_doomed();
  void bury(Process& process);
  Process* find(ProcessIndex index);
  std::uint32_t take_line();

  // messages (node_messages.cpp)
  void handle(Process& from, wire::NodeMessage& message, BlobView payload,
              std::vector<Fd>& descriptors);
  void on_hello(Process& from, const wire::Hello& hello, std::vector<Fd>& descriptors);
  void on_store(Process& from, wire::NodeMessage& message);
  void on_actor_message(Process& from, wire::NodeMessage& message, BlobView payload);
  void answer_nodes(Process& to, std::uint64_t request);
  void send(Process& to, const wire::NodeMessage& message, BlobView payload = {});
  void send_with(Process& to, const wire::NodeMessage& message, std::vector<int> descriptors);
  void refuse(Process& to, const std::string& why);
  void connect(Process& a, Process& b);
  void carry_out_leases();
  void send_notices();
  void carry_out_deferred();
  bool give_reader(Process& to, const wire::NeedReader& request, bool last_try);
  bool hear_control();
  void on_control(control::FromControl& message);
  void break_off(Process& process, const std::string& why);

  // workers (node_workers.cpp)
  void start_zygote();
  void end_zygote();
  void start_worker(bool dedicated);
  void on_zygote();
  void worker_gone(std::uint64_t token, const std::string& reason);
  void start_failed(bool dedicated, const std::string& why);
  void go_down(const std::string& why);

  // OwnerTable::Out
  void ready(ProcessIndex process, ObjectId object, const wire::Value& value,
             BlobView payload) override;
  void free(const wire::Location& location) override;
  void unreferenced(ActorId actor) override;
  // ActorHost::Out
  void need_worker(std::uint64_t life, const scheduling::Shape& shape, JobId job) override;
  void release_worker(std::uint64_t life) override;
  void start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView payload,
                   const std::vector<wire::OwnedRef>& refs) override;
  void end_worker(ProcessIndex worker) override;
  void kill_worker(ProcessIndex worker) override;
  void publish(ProcessIndex watcher, const wire::ActorUpdate& update) override;
  void publish_remote(ProcessIndex watcher, const control::ActorLocation& location) override;
  void answer(ProcessIndex process, const wire::FoundActor& found, NodeId owner) override;
  NodeId owner_of(ObjectId object) override;
  void drop_creation(const wire::Call& creation) override;

  NodeOptions options_;
  NodeId id_;
  ring::Doorbell bell_;
  std::unique_ptr<objectstore::Host> host_;
  scheduling::LeaseTable leases_;
  OwnerTable owners_{*this};
  std::unique_ptr<LocalControl> control_;
  ActorHost actors_;
  std::map<ProcessIndex, std::unique_ptr<Process>> processes_;
  std::vector<ProcessIndex> lines_;        ///< by our doorbell line; 0: free
  std::map<ProcessIndex, bool> starting_;  ///< workers being forked → dedicated
  /// Of actors' lives; a life is also the key of its lease, whose owner is kSelf.
  std::map<std::uint64_t, scheduling::LeaseId> actor_leases_;
  ProcessIndex next_process_ = 1;
  ProcessIndex driver_ = 0;
  process::ZygoteLink zygote_;
  pid_t zygote_pid_ = 0;
  bool over_ = false;
  int failed_starts_ = 0;  ///< since a worker last said hello
  std::vector<std::uint32_t> ready_lines_;
  wire::FrameWriter writer_;
  std::array<std::byte, process::kMaxPacket> packet_;
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame_;
  bool prefault_more_ = true;
  /// Rings are read in any order, so these may be read before a message of another process that
  /// they follow (an adoption, a confirmation); when everything that was ready has been read, they
  /// are carried out.
  std::vector<wire::Location> frees_;
  struct ReaderRequest {
    ProcessIndex process = 0;
    wire::NeedReader request;
    int tries = 0;
  };
  std::vector<ReaderRequest> readers_;
};

}  // namespace troupe::agent
