/// The processes of this node: their sockets and rings, the slots of doorbells, and the channels
/// between processes. Hands on each message that its sender may say.
///
///     Process& process = processes.add(std::move(socket));     // a stranger until its Hello
///     processes.open_ring(process, bell, memory, welcome);     // → Welcome, with the ring
///     processes.send(process, message);
///     processes.read_rings();                                  // each pass → Out::handle()
///     processes.wait_for(set); … processes.serve(set);         // sockets → Out::handle()
///     processes.break_off(process, why);                       // it is ending from now on
///     processes.read_to_the_end(process); … processes.remove(process.index);
///
/// Invariants: PROCESS-1 Only a message that Authority lets pass is handled. One that such a
/// process never says ends its connection. PROCESS-2 An ending process gets nothing and is not
/// read. Before it is removed its ring is read: to the end if it is dead, and at most kRingBytes of
/// payload if it lives on. PROCESS-3 Two processes have at most one channel. Each gets its end over
/// its socket before a ring message names the other. PROCESS-4 A slot has one owner, and is free
/// when its process or channel is gone. PROCESS-5 No two processes ever have one index.
#pragma once

#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/authority.hpp"
#include "troupe/runtime/agent/doorbell_slots.hpp"
#include "troupe/runtime/agent/in_flight_refs.hpp"
#include "troupe/runtime/agent/node_events.hpp"
#include "troupe/runtime/agent/poll_set.hpp"
#include "troupe/runtime/agent/proxies.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/remote.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/ring/channel.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <sys/types.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

/// What the agent keeps of a process of its node.
struct Process {
  ProcessIndex index;
  wire::ProcessKind kind = wire::ProcessKind::driver;
  os::LocalSocket socket;
  std::shared_ptr<ring::Doorbell> bell;
  ring::Channel channel;
  std::uint32_t slot = 0;         ///< of its channel, in this agent's doorbell
  DoorbellSlots slots{2};         ///< in its doorbell: 0 is the socket, 1 this agent
  std::uint32_t store_index = 0;  ///< in the object store; 0: it has no tables there
  JobId job;                      ///< the job that it works for
  JobNumber job_number;           ///< this node's number of that job
  std::vector<Fd> waiting;        ///< a driver's doorbell, until its job is known to control
  bool introduced = false;        ///< it got its Welcome; before, send() drops messages to it
  pid_t pid = 0;                  ///< a worker's, once its zygote has reported the fork; else 0
  Fd life;                        ///< readable when a driver or observer has ended
  std::uint32_t told_pid = 0;     ///< the pid in its Hello: for reports and for /proc
  std::string sentence;    ///< why it ends, if that is decided here; replaces its exit status
  Time heard{};            ///< when its last message was read
  bool at_limit = false;   ///< it ends since the node or the system has no room for it
  bool ending = false;     ///< it is removed after this pass
  Time doubted_at{};       ///< a worker: when to look whether it is dead though nobody told
  bool last_read = false;  ///< its last messages are being read: see read_to_the_end()
  bool starting = false;   ///< a worker that does not serve yet
  bool dedicated = false;  ///< a worker that was started for an actor
  bool killed = false;     ///< SIGKILL was sent, or follows once its pid is known
  bool leaving = false;    ///< it was sent Shutdown and ends by itself
  bool said_end = false;   ///< a driver: its program has ended, well or not
  bool hung_up = false;    ///< it closed its socket, for sending at least
  bool halted = false;     ///< stopped by SIGSTOP: see halt_actors()
  Talker speaks_as = Talker::stranger;
  std::uint64_t objections = 0;                 ///< messages of it that Authority has refused
  std::string reason;                           ///< why it is ending
  std::string stack, last_lines;                ///< that it left: see Death
  std::map<ProcessIndex, std::uint32_t> peers;  ///< with a channel to it → slot in its doorbell
  std::vector<std::uint32_t> sites;  ///< its number of a call site, less 1 → that of the accounting
};

class Processes final : public Proxies::Rings {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    /// Handles a message that the process may say. It may end the process, but must not remove it.
    virtual void handle(Process& from, wire::NodeMessage& message, BlobView payload,
                        std::vector<Fd>& descriptors) = 0;
  };
  /// The parts below this one. `node`: its name, for texts.
  struct Below {
    const std::string& node;
    NodeEvents& events;
    ReferenceTable& references;
    InFlightRefs& in_flight_refs;
    scheduling::LeaseTable& leases;
    RemoteTable& remote;
    ActorHost& actors;
    Proxies& proxies;
    Out& out;
  };
  using Table = std::map<ProcessIndex, std::unique_ptr<Process>>;
  /// Errors: out_of_memory when there is no doorbell.
  explicit Processes(const Below& below);

  // --- records
  ProcessIndex take_index() noexcept { return next_++; }
  /// Adds a process at the other end of this socket, under the next index.
  Process& add(os::LocalSocket socket);
  /// Returns the process if it lives and is not ending.
  Process* find(ProcessIndex index) const {
    Process* const process = record(index);
    return process == nullptr || process->ending ? nullptr : process;
  }
  /// Returns the process, ending or not; null: it was removed, or there was none.
  Process* record(ProcessIndex index) const {
    const auto at = table_.find(index);
    return at == table_.end() ? nullptr : at->second.get();
  }
  Table::const_iterator begin() const noexcept { return table_.begin(); }
  Table::const_iterator end() const noexcept { return table_.end(); }
  /// Returns the first process whose index is not below this one.
  Table::const_iterator from(ProcessIndex index) const { return table_.lower_bound(index); }
  /// Returns whether the worker hosts an actor, or was started for one.
  bool has_purpose(const Process& worker) const {
    return below_.actors.hosts(worker.index) || (worker.starting && worker.dedicated);
  }
  /// Returns a driver of the job, else a worker that goes on; nullopt: there is neither.
  std::optional<ProcessIndex> lasting_process(JobNumber job) const;

  // --- sending
  /// Sends over the process's ring, or to an observer over its socket. A process that does not read
  /// is broken off, and so is one for which a message is too large.
  void send(Process& to, const wire::NodeMessage& message, BlobView payload = {});
  void send(ProcessIndex to, const wire::NodeMessage& message, BlobView payload) {
    if (Process* process = find(to)) send(*process, message, payload);
  }
  /// Sends over the process's socket, with descriptors, which are borrowed.
  void send_with(Process& to, const wire::NodeMessage& message, std::vector<int> descriptors);
  void send_with(ProcessIndex to, const wire::NodeMessage& message, std::vector<int> descriptors) {
    if (Process* process = find(to)) send_with(*process, message, std::move(descriptors));
  }
  /// Answers a process that gets no Welcome with the reason, and ends it.
  void refuse(Process& to, const std::string& why);

  // --- channels
  /// Gives the process the ring between it and this agent, with its Welcome. Fills in what the
  /// Welcome says about the ring.
  void open_ring(Process& process, ring::Doorbell bell, ring::ChannelMemory memory,
                 wire::Welcome welcome);
  /// Gives two processes a channel to each other, unless they have one. If none can be made, `b`
  /// ends, and `a` gets its PeerDied.
  void connect(Process& a, Process& b);
  void connect(ProcessIndex a, ProcessIndex b) {
    Process *const one = record(a), *const other = record(b);
    if (one != nullptr && other != nullptr) connect(*one, *other);
  }
  // Proxies::Rings
  void read_ring(ProcessIndex process) override {
    if (Process* living = find(process)) (void)read_ring(*living);
  }
  void break_off(ProcessIndex process, const std::string& why) override {
    if (Process* living = find(process)) break_off(*living, why);
  }
  std::optional<Proxies::Opened> open_channel(ProcessIndex index, ProcessIndex proxy_process,
                                              ProcessIndex holder) override;
  void close_channel(ProcessIndex process, std::uint32_t slot, std::uint32_t its_slot) override;

  // --- ends
  /// Ends the connection to a process; a worker is killed as well. The caller ends it when all that
  /// it sent has been read.
  void break_off(Process& process, const std::string& why);
  /// Kills a worker. One may serve before its zygote has reported its pid: it is killed then.
  void kill(Process& worker);
  /// Sends Shutdown to a worker that is needed no more: it ends by itself.
  void leave(Process& worker) {
    worker.leaving = true;
    send(worker, wire::Shutdown{"no longer needed"});
  }
  /// Stops (SIGSTOP) the workers that host actors, or lets them go on (SIGCONT). `lease` on the
  /// doorbell says until when actors may answer.
  void halt_actors(bool halt, Time lease);
  /// Returns whether a process is ending whose ring is read only at its end. The ring may hold a
  /// Hold or an Adopt, so nothing may be freed before.
  bool has_unread() const;
  std::vector<ProcessIndex> ending() const;
  /// Asks the system, from time to time, about an ending worker whose zygote is silent and may be
  /// stopped. Returns whether the worker is dead.
  bool look_for_death(Process& worker, Time now) const;
  /// When to ask look_for_death() again.
  Time next_deadline() const;
  /// Reads the last messages of an ending process, and carries its last frames to other nodes. An
  /// answer that does not reach it any more does not stop this.
  void read_to_the_end(Process& process);
  /// Keeps the connection of a driver that has ended open until close().
  void keep_open(JobNumber job, Process& driver) { kept_open_[job] = std::move(driver.socket); }
  void close(JobNumber job) { kept_open_.erase(job); }
  /// Tells each process with a channel to the ending one PeerDied. Returns their indices.
  std::set<ProcessIndex> tell_peers(Process& ending);
  void remove(ProcessIndex index);

  // --- what processes may say
  /// Counts a message that the process may not send, and returns a sentence about it. Logs the 1st,
  /// 2nd, 4th, 8th … of a process, so that one that goes on does not fill the disk.
  std::string account_of(Process& from, const std::string& said) const;

  // --- the loop
  ring::Doorbell& bell() noexcept { return bell_; }
  /// Reads the rings until nothing is ready, or a bound is reached. Returns whether nothing is. All
  /// that was published before the call has been read in any case.
  bool read_rings();
  /// Adds the descriptors of all processes, and of their lives.
  void wait_for(PollSet& set);
  /// Reads the sockets that are ready, then breaks off processes whose life is over.
  void serve(const PollSet& set);
  /// Reads the socket until it is empty, or a bound is reached. Returns whether it is empty.
  bool read_socket(Process& process);

 private:
  /// The ring behind a slot of this agent's doorbell: a process's, or that of a proxy channel. No
  /// process: the slot is free.
  struct Slot {
    ProcessIndex process, proxy_process;
  };
  /// Tells Authority what is known to belong to another process.
  struct Claims final : Authority::Facts {
    explicit Claims(const Processes& p) : processes(p) {}
    bool may_return(ProcessIndex who, LeaseId lease) const override;
    bool may_count(ProcessIndex who, const wire::Hold& hold) const override;
    bool may_make(ProcessIndex who, ObjectId object) const override;
    bool may_place(ProcessIndex who, const wire::Location& place) const override;
    bool may_create(ProcessIndex who, const wire::CreateActor& create) const override;
    const Processes& processes;
  };
  std::uint32_t take_slot(Slot owner);
  bool read_slot(std::uint32_t slot);
  bool read_ring(Process& process);
  void handle(Process& from, wire::NodeMessage& message, BlobView payload,
              std::vector<Fd>& descriptors) {
    if (may_say(from, message)) below_.out.handle(from, message, payload, descriptors);
  }
  bool may_say(Process& from, const wire::NodeMessage& message) {
    const Objection objection = authority_.objection({from.index, from.speaks_as}, message);
    if (objection == Objection::none) [[likely]]
      return true;
    object_to(from, message, objection);
    return false;
  }
  void object_to(Process& from, const wire::NodeMessage& message, Objection objection);

  const Below below_;
  ring::Doorbell bell_;
  Table table_;
  ProcessIndex next_ = 1;
  std::vector<Slot> slots_;  ///< by slot of this agent's doorbell; 0 is not used
  std::vector<std::uint32_t> ready_slots_;
  std::map<JobNumber, os::LocalSocket> kept_open_;
  bool halts_actors_ = false;
  std::size_t first_life_ = 0, first_socket_ = 0;  ///< of the last wait_for()
  Claims claims_{*this};
  Authority authority_{claims_};
  wire::FrameWriter writer_;
  std::array<std::byte, os::kMaxPacket> packet_;
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame_;
};

}  // namespace troupe::agent
