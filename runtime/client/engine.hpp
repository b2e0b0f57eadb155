/// The runtime inside a driver or worker: implements detail::Engine over cores for tasks, actor
/// calls and references, fed by rings.
///
/// One lock guards everything, and user code never runs under it (RUN-1). The thread that leads
/// the I/O loop handles messages. A value can be read without the lock once its entry is ready.
/// The functions of detail::Engine may be called on any thread. Those for the worker's loop run on
/// its thread unless they say otherwise.
///
/// A peer may live on another node. The agent then carries the frames, and a location in memory
/// means nothing to the peer; large values become objects of the agent and travel as references.
/// A value whose bytes lie at another node is ready here. Its bytes are fetched when somebody
/// opens it.
///
/// The engine dispatches messages and keeps the order within a pass (drain()). Its parts decide,
/// and each has a header with its invariants. From the lowest up: AgentLink, Peers, StoreUse;
/// Values, Recovery; WorkQueue, Calls, Callers; EngineGate, Waits, Resumes; ValueBytes, StoreAsks,
/// Reports.
#pragma once

#include "troupe/runtime/client/agent_link.hpp"
#include "troupe/runtime/client/callers.hpp"
#include "troupe/runtime/client/calls.hpp"
#include "troupe/runtime/client/engine_gate.hpp"
#include "troupe/runtime/client/identity.hpp"
#include "troupe/runtime/client/in_place.hpp"
#include "troupe/runtime/client/io_loop.hpp"
#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/client/peers.hpp"
#include "troupe/runtime/client/questions.hpp"
#include "troupe/runtime/client/recovery.hpp"
#include "troupe/runtime/client/reports.hpp"
#include "troupe/runtime/client/resumes.hpp"
#include "troupe/runtime/client/store_asks.hpp"
#include "troupe/runtime/client/store_use.hpp"
#include "troupe/runtime/client/value_bytes.hpp"
#include "troupe/runtime/client/values.hpp"
#include "troupe/runtime/client/waits.hpp"
#include "troupe/runtime/client/work_queue.hpp"
#include "troupe/runtime/client/worker_lease.hpp"
#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/wire/messages.hpp"
#include "troupe/runtime/wire/plain.hpp"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::client {

class LogPrinter;

class ClientEngine final : public detail::Engine,
                           private Calls::Out,
                           private Recovery::Out,
                           private ValueBytes::Out,
                           private IoLoop::Host {
 public:
  struct Start {
    Fd socket;  ///< connected to the agent
    wire::ProcessKind kind = wire::ProcessKind::driver;
    std::uint64_t token = 0;
    wire::Hello hello;  ///< drivers that join a cluster: program, arguments, libraries, job name
    /// Called under the lock when the agent is gone; `busy`: user code runs and has not answered.
    void (*abandon)(bool busy) = nullptr;
  };
  /// Sends Hello and waits for Welcome, at most 10 s. Throws Unavailable, or the error that the
  /// agent answers.
  explicit ClientEngine(Start start);
  ~ClientEngine() override;

  /// The engine of this process, or nullptr.
  static ClientEngine* current() noexcept;
  /// From here on a SessionEngine stands before the engine, and a release of a handle visits it.
  static void gets_visits() noexcept;

  /// Ends a driver's job. Waits until its calls to actors have been answered, kLastCalls at most,
  /// then for the last lines of workers, LogPrinter::kLastLines at most, and until its actors have
  /// ended, kJobEnds at most; then calls stop(). `failed`: an error
  /// left the program, so the job counts as failed.
  void finish(bool failed);
  static constexpr Duration kLastCalls = std::chrono::seconds(2);
  /// One second more than the agent takes at most.
  static constexpr Duration kJobEnds = std::chrono::seconds(5);
  /// Passes answers about logs to the printer from now on, and lets it print the last lines in
  /// finish(). It must live until stop() has returned.
  void print_logs(LogPrinter& printer);
  /// Sends a question to the agent, whose answer goes to the printer. Any thread.
  void ask_agent(const wire::NodeMessage& message);
  const Identity& identity() const noexcept { return self_; }
  void on_log(detail::OnLog take) override;
  /// Ends the I/O thread, and every wait with Unavailable("the session is over"). `job_ends`: waits
  /// for the end of the job, which the agent was told of, kJobEnds at most.
  void stop(bool job_ends = false);

  // --- detail::Engine ---
  void submit(detail::Call&& call, const detail::Request* options,
              std::span<detail::ObjectHandle> results) override;
  detail::ActorHandle spawn(detail::Call&& call, const detail::Request* options) override;
  void call(const detail::ActorHandle& actor, detail::Call&& call,
            std::span<detail::ObjectHandle> results) override;
  std::optional<detail::ActorHandle> find(const std::string& name, const char* class_name) override;
  void detach(const detail::ObjectHandle& object, const std::string& name,
              std::uint64_t fingerprint, const char* type, Duration timeout) override;
  detail::ObjectHandle find_object(const std::string& name, std::uint64_t fingerprint,
                                   const char* type) override;
  bool forget_object(const std::string& name) override;
  std::vector<detail::ObjectLocation> locations(
      std::span<const detail::ObjectHandle> objects) override;
  void kill(const detail::ActorHandle& actor, bool may_restart) override;
  detail::ObjectHandle put(BlobView bytes, std::span<const detail::ObjectHandle> refs) override;
  detail::ObjectHandle put(BlobView bytes, std::span<const detail::ObjectHandle> refs,
                           detail::CallSite at);
  std::unique_ptr<detail::Building> create(std::size_t size, detail::CallSite at) override;
  detail::Value get(const detail::ObjectHandle& object, Duration timeout) override;
  Result<detail::Value> try_get(const detail::ObjectHandle& object, Duration timeout) override;
  bool is_ready(const detail::ObjectHandle& object) override;
  std::vector<std::size_t> wait(std::span<const detail::ObjectHandle> objects, std::size_t count,
                                Duration timeout) override;
  void when_ready(const detail::ObjectHandle& object, std::function<void()> fire) override;
  void post(std::function<void()> work) override;
  void notify_when_ready(const detail::ObjectHandle& object, std::function<void()> told) override;
  Result<detail::Value> peek(const detail::ObjectHandle& object) override;
  detail::ActorHandle adopt_actor(ActorId id, detail::ObjectHandle lifetime) override;
  std::vector<detail::NodeInfo> nodes() override;
  NodeId node() override { return self_.node; }
  std::vector<int> gpu_ids() override;
  bool stop_requested() override { return waits_.is_over(); }

  // --- for the worker's loop ---
  /// The worker's thread applies them before each run.
  os::LibraryThreads& library_threads() noexcept { return lease_.library_threads(); }
  /// Waits for the next thing to do and fills one of the arguments: a call, an actor to become,
  /// or a coroutine to resume. Gives the worker's CPU back while all its runs wait. Returns when
  /// this thread last had to wait (IoLoop::waited_until), or nullopt when the process must end.
  std::optional<Time> next_work(std::shared_ptr<Incoming>& call, std::optional<ActorStart>& actor,
                                std::function<void()>& resume);
  /// Sends the last result of a call: a value without refs of at most kInlineValue bytes. A call
  /// without results is answered without a value. Any thread.
  void reply_plain(ProcessIndex to, const wire::PlainReply& reply, BlobView value);
  /// Sends one result of a call under way. For ResultSinks. Any thread.
  void reply(ProcessIndex to, std::uint64_t sequence, std::uint32_t index, bool last, Duration ran,
             const OutgoingValue& value);
  /// Waits until all tasks and calls that this process has sent are answered, or until the agent
  /// is lost. The agent kills the process when that takes too long.
  void finish_sends();
  bool has_lost_agent();
  void created(ActorId actor, std::uint64_t incarnation, const Error* error);
  /// Makes the values that arrived with a call readable, and handles of the refs in them. Blocks
  /// like get() until forwarded arguments are here. Throws the argument's error when one is gone.
  /// When a task's argument is gone for good, `lost` says which: its caller may compute it again.
  std::vector<detail::Value> open_arguments(const wire::Call& call, BlobView payload,
                                            LostArgument& lost);
  ValueBytes& value_bytes() noexcept { return value_bytes_; }
  /// Seals the written value as an object of this process. Blocks until it has its replicas.
  detail::ObjectHandle seal_room(ValueRoom room, std::span<const detail::ObjectHandle> refs,
                                 const detail::Replication& how = {});
  /// Returns a handle of the actor that lives in this process. Precondition: another holder keeps
  /// the actor during the call.
  detail::ActorHandle self(ActorId actor, ObjectId lifetime);
  /// Says how long calls in this process have waited so far, and which wait in coroutines.
  Waits& waits() noexcept { return waits_; }
  void tell_pace(std::vector<wire::SitePace> sites);

  /// Allows tasks that this process awaits to run in it, by `runner`. nullptr ends that.
  void runs_in_place(InPlaceRunner* runner);
  /// Takes the results of a task that `runner` has run: one value for each result.
  void ended_here(Task& task, std::span<OutgoingValue> values) noexcept;

  /// Ends an entry whose last handle is gone. Any thread, also one that holds the lock.
  void release(Entry* entry) noexcept { gate_.release(entry); }
  /// True in a fork of the process that the engine belongs to. The engine must not be used there.
  bool in_fork() const noexcept { return gate_.mark().in_fork(); }
  /// Whether the entry was made in an earlier session of this process.
  bool is_foreign(const Entry& entry) const noexcept { return values_.is_foreign(entry); }

 private:
  using Peer = Peers::Peer;
  // IoLoop::Host
  Time drain(Time now) override;
  Time next_timer() const noexcept override { return calls_.next_tick(); }
  int socket_fd() const override { return agent_.socket().fd(); }
  bool wants_write() const override { return agent_.socket().has_queued(); }
  bool wants_read() const override { return !agent_.lack().exists(); }
  bool has_leftovers() const noexcept override { return gate_.has_leftovers(); }
  void socket_ready() noexcept override { agent_.note_readable(); }
  bool watch_peer() noexcept override { return peers_.watch(); }
  bool peer_elsewhere() const noexcept override { return peers_.is_last_elsewhere(); }
  bool drain_watched(Time now) override;
  Time aside(Time now) noexcept override { return lease_.actor_timer().look(now); }
  // start-up
  void begin(const Start& start);
  void say_hello(const Start& start);
  void be_welcomed(const wire::Welcome& welcome, std::vector<Fd> descriptors);

  // incoming (engine_messages.cpp)
  void drain_socket();
  void drain_slot(std::uint32_t slot, Time now);
  void drain_agent(Time now);
  void drain_peer(Peer& peer, Time now);
  void on_channel(const wire::Channel& message, std::vector<Fd> descriptors);
  void on_peer_died(const wire::PeerDied& message, Time now);
  void on_node_message(wire::NodeMessage& message, BlobView payload, Time now);
  void on_call_message(Peer& peer, wire::CallMessage& message, BlobView payload, Time now);
  void agent_gone(const std::string& why, Code code = Code::unavailable);
  void drop_peer(Peer& peer);

  // handles, and the queue to the agent (engine_objects.cpp)
  void end_following();
  void collect_released() override { gate_.collect(); }
  void fire(const Waiter& waiter, Entry& entry) override;
  void settle_agent_queue() override;

  // Recovery::Out
  void tell(const wire::NodeMessage& message, BlobView payload = {}) override;
  void notify() override {
    if (io_loop_) io_loop_->notify();
  }
  void unparked(Entry& entry) override { release(&entry); }
  void run_again(std::unique_ptr<Task> task) override { calls_.run_again(std::move(task)); }
  void recovered() override { waits_.recovered(); }

  // waiting for a value (engine_waiting.cpp)
  Result<detail::Value> open_once(const detail::ObjectHandle& object, Time deadline,
                                  Duration timeout, Time now = {});

  // shared memory (engine_store.cpp)
  void lacks_descriptors(BlobView packet, Time now);
  void replicate(Guard& lock, Entry& entry, const detail::Replication& how);

  // outgoing calls (engine.cpp)
  wire::FoundActor ask_for_name(Guard& lock, const wire::NodeMessage& question, BlobView payload,
                                std::uint64_t request);

  // names of objects (engine_names.cpp)
  wire::NamedObject ask_named(Guard& lock, wire::NameObject question);

  Identity self_;
  EngineGate gate_{static_cast<Recovery::Out&>(*this), values_, store_};
  AgentLink agent_;
  LogPrinter* log_printer_ = nullptr;  ///< null: workers write to the program's own output
  StoreUse store_;
  Callers callers_{static_cast<Calls::Out&>(*this), self_, peers_, values_, calls_};
  Calls calls_{static_cast<Calls::Out&>(*this), self_, peers_, values_, recovery_, callers_.work()};
  Recovery recovery_;
  Values values_{static_cast<Values::Out&>(*this), recovery_, store_, calls_.classes()};
  Peers peers_;
  Resumes resumes_{values_, recovery_, callers_.work()};
  Questions questions_;
  ValueBytes value_bytes_{static_cast<Calls::Out&>(*this),
                          static_cast<ValueBytes::Out&>(*this),
                          gate_,
                          store_,
                          values_,
                          self_.engine};
  WorkerLease lease_;
  Waits waits_{self_, gate_, agent_, callers_.work(), calls_, lease_};
  alignas(16) std::array<std::byte, ring::kMaxFrame> frame_;
  StoreAsks store_asks_{
      static_cast<Calls::Out&>(*this), gate_, agent_, questions_, store_, values_, waits_};
  Reports reports_{static_cast<Calls::Out&>(*this),
                   {self_, agent_, peers_, calls_, callers_.work(), resumes_, values_,
                    value_bytes_.sites(), waits_}};
  void (*abandon_)(bool) = nullptr;  ///< see Start
  std::unique_ptr<IoLoop> io_loop_;
};

}  // namespace troupe::client
