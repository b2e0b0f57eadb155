/// The seam between the public templates and the runtime behind them. The API's templates call
/// `Engine`; client::ClientEngine implements it. No template here depends on a user's type.
///
/// A public template encodes its arguments into a Call and hands it to the process's Engine. In
/// the process that runs the call, a Thunk reads the decoded arguments from an Invocation. A
/// value is its encoded bytes plus the handles of the Refs inside it.
///
///     Call call{.callable = &entry, …};
///     ObjectHandle result = engine.submit(std::move(call), nullptr);
///     Value value = engine.get(result, kNoTimeout);
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/small_vector.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/runtime/engine/log_line.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::detail {

inline constexpr Duration kNoTimeout = Duration::max();

/// The part of a reference-table record that the templates use. The runtime's record
/// (client::Entry) derives from it.
struct ObjectEntry {
  std::atomic<std::uint32_t> handles{1};
  ObjectId id;
};
/// Releases an entry whose last handle is gone. The engine of its session collects it; without
/// that engine the entry is deleted at once. Any thread.
TROUPE_API void release_object(ObjectEntry* entry) noexcept;

/// A counted handle to an object; every Ref holds one. As thread-safe as shared_ptr.
class ObjectHandle {
 public:
  ObjectHandle() noexcept = default;
  /// Wraps an entry and takes over one count that the caller has.
  static ObjectHandle adopt(ObjectEntry* entry) noexcept {
    ObjectHandle handle;
    handle.entry_ = entry;
    return handle;
  }
  ObjectHandle(const ObjectHandle& other) noexcept : entry_(other.entry_) {
    if (entry_ != nullptr) entry_->handles.fetch_add(1, std::memory_order_relaxed);
  }
  ObjectHandle(ObjectHandle&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  ObjectHandle& operator=(ObjectHandle other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~ObjectHandle() {
    if (entry_ != nullptr && entry_->handles.fetch_sub(1, std::memory_order_acq_rel) == 1)
      release_object(entry_);
  }
  ObjectEntry* entry() const noexcept { return entry_; }
  ObjectId id() const noexcept { return entry_ != nullptr ? entry_->id : ObjectId{}; }
  explicit operator bool() const noexcept { return entry_ != nullptr; }
  friend bool operator==(const ObjectHandle& a, const ObjectHandle& b) noexcept {
    return a.entry_ == b.entry_;
  }

 private:
  ObjectEntry* entry_ = nullptr;
};

/// The bytes of a ready object and the handles inside it; both stay valid while `keep` lives.
struct Value {
  BlobView bytes;
  std::span<const ObjectHandle> refs;
  std::shared_ptr<const void> keep;
};

/// One argument of an outgoing call. Without `object` it is inline: its bytes are [offset,
/// offset+size) of Call::bytes, its refs [first_ref, first_ref+ref_count) of Call::refs. With
/// `object` the argument is the value of that object, and the call waits for it.
struct Argument {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
  std::uint32_t first_ref = 0;
  std::uint32_t ref_count = 0;
  ObjectHandle object;
};

class Invocation;
using Thunk = void (*)(Invocation&);

/// What kind of entry a Callable is.
enum class CallableKind : std::uint8_t { function = 0, method = 1, constructor = 2 };

/// A registered entry point: one for each template instance, with static lifetime. `thunk`
/// identifies it within a build.
struct Callable {
  Thunk thunk = nullptr;
  CallableKind kind = CallableKind::function;
  std::uint16_t results = 1;  ///< number of result objects (submit_split has several)
  bool is_coroutine = false;
  bool internal_linkage = false;          ///< not callable across builds
  std::uint64_t fingerprint = 0;          ///< structural hash of argument and result types
  const char* name = "";                  ///< display name, e.g. "area(double)"
  void (*destroy)(void* self) = nullptr;  ///< constructor entries: ends the instance
  const char* class_name = "";            ///< methods and constructors: the actor class
};
/// Adds the entry to this process's registry. Static objects of the templates call it before
/// main. Any thread.
TROUPE_API void register_callable(const Callable* callable);

/// The place in a program that made an object, as `troupe memory` shows it: a line of a file, or
/// a function (line 0). `text` must live as long as the program.
struct CallSite {
  const char* text = "";
  std::uint32_t line = 0;
  static constexpr CallSite here(const char* file = __builtin_FILE(),
                                 std::uint32_t line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

/// A call ready to be sent.
struct Call {
  const Callable* callable = nullptr;
  SmallVector<std::byte, 32> bytes;  ///< inline arguments, each 16-byte aligned
  SmallVector<Argument, 2> arguments;
  std::vector<ObjectHandle> refs;  ///< Refs found inside inline arguments, in order
};

/// Options of a task or actor. Owns all its parts. A null pointer to a Request means all
/// defaults.
struct Request {
  std::string name;
  std::optional<double> cpus;  ///< empty: 1 for a task, none for an actor
  double gpus = 0;
  Bytes memory{};
  std::vector<std::pair<std::string, double>> resources;
  enum class Placement : std::uint8_t {
    any = 0,
    pack = 1,
    spread = 2,
    node = 3
  } placement = Placement::any;
  NodeId node;        ///< with Placement::node
  bool soft = false;  ///< with Placement::node: prefer, do not insist
  std::vector<std::pair<std::string, std::string>> labels;  ///< all must match
  // tasks
  int max_retries = 3;                ///< -1: without limit
  std::vector<std::string> retry_on;  ///< typeid names of exceptions worth a retry
  bool second_attempt = false;        ///< start another attempt when the first runs unusually long
  bool isolated = false;              ///< never run it in the process of the task that awaits it
  // actors
  std::string name_space;
  bool detached = false;
  bool get_if_exists = false;
  int max_restarts = 0;  ///< -1: without limit
  Duration restart_window = std::chrono::seconds(60);
};

/// What an Actor<A> holds: the actor's id and a handle of its lifetime object. The actor ends
/// when the lifetime object has no holder in the cluster.
struct ActorHandle {
  ActorId id;
  ObjectHandle lifetime;
  explicit operator bool() const noexcept { return static_cast<bool>(id); }
};

/// One decoded argument, as a thunk sees it.
struct ArgumentView {
  BlobView bytes;
  std::span<const ObjectHandle> refs;
  const std::shared_ptr<const void>* keep =
      nullptr;  ///< copy it to keep bytes and refs beyond the call
};

/// Receives the results of a call. allocate(i, n) returns n bytes for result i, 64-byte aligned.
/// publish(i, refs) completes result i with those bytes. Every result is published, forwarded or
/// failed exactly once.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  virtual std::span<std::byte> allocate(std::size_t index, std::size_t size) = 0;
  virtual void publish(std::size_t index, std::span<const ObjectHandle> refs) = 0;
  /// Completes result i with the value of another object, which need not be ready yet.
  virtual void forward(std::size_t index, const ObjectHandle& object) = 0;
  /// Ends all results that are not yet published in this error.
  virtual void fail(const Error& error) = 0;
};

class Engine;

/// The stage of a run: it decodes its arguments, is inside user code, or encodes its results.
enum class Phase : std::uint8_t { arguments = 0, running = 1, results = 2 };

/// One run of a thunk. run_thunk() is the only place where an exception that leaves the thunk
/// becomes an Error.
class Invocation : public ResultSink {
 public:
  virtual std::span<const ArgumentView> arguments() const = 0;
  virtual Engine& engine() const = 0;
  virtual void* self() const = 0;             ///< the actor's instance, for methods
  virtual void set_self(void* instance) = 0;  ///< constructors only
  /// Returns a sink that outlives the thunk. A coroutine sends its results there, from the
  /// executor's thread.
  virtual std::shared_ptr<ResultSink> defer() = 0;
  /// True in the second and later lives of an actor.
  virtual bool restarted() const = 0;
  /// The actor that runs this method, for self<A>(); empty elsewhere.
  virtual ActorHandle actor() const { return {}; }

  /// Records the stage; the thunk calls it.
  void enter(Phase phase) noexcept { phase_ = phase; }
  Phase phase() const noexcept { return phase_; }

 private:
  Phase phase_ = Phase::arguments;
};

/// The number of nodes that must hold an object, and how long its maker waits until they do.
struct Replication {
  int replicas = 1;
  Duration timeout = std::chrono::seconds(60);
};

/// Throws InvalidArgument for less than one replica, or more than 1,024.
TROUPE_API Replication replication_of(int replicas, Duration timeout);

/// A value that is being written in place. seal() makes an object of it; the destructor drops it.
class Building {
 public:
  virtual ~Building() = default;
  virtual std::span<std::byte> bytes() = 0;
  /// Makes an object of the bytes. With replicas > 1 it blocks until the replicas exist. Errors:
  /// see PutOptions.
  virtual ObjectHandle seal(std::span<const ObjectHandle> refs, const Replication& how) = 0;
  ObjectHandle seal(std::span<const ObjectHandle> refs) { return seal(refs, {}); }
};

/// What ctx.cluster() and `troupe status` show of a node.
struct NodeInfo {
  NodeId id;
  std::string name;
  bool alive = true;
  double cpus = 0, cpus_free = 0;
  double gpus = 0, gpus_free = 0;
  Bytes memory{};
  Bytes store_capacity{}, store_used{};
  int workers = 0;
  std::vector<std::pair<std::string, double>> resources;
  bool draining = false;  ///< it takes nothing new and ends soon
  bool suspect = false;  ///< it has been silent for some seconds, and may be dead; not `alive` then
  /// The host at which other nodes reach it, without a port. Empty for a node without a cluster.
  std::string address;
};

/// Where the value of an object is, for Context::locations().
struct ObjectLocation {
  enum class State : std::uint8_t {
    unknown = 0,  ///< no node that answered knows it
    pending = 1,  ///< the task or method that computes it has not ended
    small = 2,    ///< up to 4 KiB: it travels inside messages and takes no shared memory
    large = 3,    ///< in shared memory, or on disk
    failed = 4    ///< an error instead of a value
  } state = State::unknown;
  Bytes size{};               ///< size of the encoded value
  bool spilled = false;       ///< large: on disk, and in no node's memory
  std::vector<NodeId> nodes;  ///< nodes that have it, at most 64; the asking node first if it does
};

/// Turns the current exception into the Error that travels to the caller. Call it inside a catch
/// block.
///
/// An exception that leaves user code becomes TaskFailed with outcome `executed`. If it is a
/// troupe::Error, it becomes the cause; its own outcome does not count, since it describes
/// another call. An Error of the runtime keeps its code: with outcome `not_executed` if user code
/// has not begun, else `executed`. A chain of causes keeps its innermost eight.
TROUPE_API Error error_from_current_exception(const char* function, Phase phase) noexcept;

/// Calls the thunk. Returns the Error made of an exception that left it, or nullopt.
TROUPE_API std::optional<Error> run_thunk(const Callable& callable,
                                          Invocation& invocation) noexcept;

class Engine;

/// The functions that the client library provides to this layer, which must not depend on it.
/// `release` gets the argument of release_object(). It is installed before the first object
/// exists.
struct EngineHooks {
  Engine* (*current)() noexcept = nullptr;
  void (*release)(ObjectEntry*) noexcept = nullptr;
};
/// Installs the hooks; called once, before main. `hooks` must live as long as the process.
TROUPE_API void install(const EngineHooks* hooks) noexcept;

/// The process's runtime. All members may be called from any thread unless they say otherwise.
class TROUPE_API Engine {
 public:
  virtual ~Engine();
  /// The engine of this process, or nullptr outside run()/Session.
  static Engine* current() noexcept;

  // --- calls
  // -------------------------------------------------------------------------------------------------
  /// Submits a task and fills `results`, callable->results of them. Never blocks. Throws
  /// Overloaded at the queue limit.
  virtual void submit(Call&& call, const Request* options, std::span<ObjectHandle> results) = 0;
  virtual ActorHandle spawn(Call&& call, const Request* options) = 0;
  /// Calls a method of an actor. With empty `results` the call is a tell: no answer travels.
  virtual void call(const ActorHandle& actor, Call&& call, std::span<ObjectHandle> results) = 0;
  /// Returns the handle of an existing actor, by name; nullopt when there is none. Throws
  /// InvalidArgument when the actor is of another class.
  virtual std::optional<ActorHandle> find(const std::string& name, const char* class_name) = 0;
  virtual void kill(const ActorHandle& actor, bool may_restart) = 0;

  // --- objects
  // -----------------------------------------------------------------------------------------------
  virtual ObjectHandle put(BlobView bytes, std::span<const ObjectHandle> refs) = 0;
  virtual std::unique_ptr<Building> create(std::size_t size, CallSite at) = 0;
  /// Blocks until the object is ready; a worker gives its CPU back meanwhile. Throws the object's
  /// error, or TimedOut.
  virtual Value get(const ObjectHandle& object, Duration timeout) = 0;
  /// As get, but returns errors instead of throwing them, TimedOut too.
  virtual Result<Value> try_get(const ObjectHandle& object, Duration timeout) = 0;
  virtual bool is_ready(const ObjectHandle& object) = 0;
  /// Waits until `count` of the objects are ready or the timeout has passed. Returns the indices
  /// of the ready objects in order of completion, at most `count`. Linear cost.
  virtual std::vector<std::size_t> wait(std::span<const ObjectHandle> objects, std::size_t count,
                                        Duration timeout) = 0;
  /// Runs `fire` once when the object is ready (value or error). When it is ready already, `fire`
  /// runs before this returns. Otherwise it runs on the executor of this process: the worker's or
  /// actor's own thread.
  virtual void when_ready(const ObjectHandle& object, std::function<void()> fire) = 0;
  /// Queues `work` for the executor of this process and returns at once. `work` runs after what
  /// the executor has begun. It never runs in a driver, which has no executor, or when the
  /// process ends first.
  virtual void post(std::function<void()> work) = 0;
  /// Calls `told` once when the object is ready (value or error), or when no wait for it can end
  /// any more; peek() or get() then say why. When that is so already, `told` runs before this
  /// returns. `told` may run on any thread of the runtime, under the engine's lock: it must
  /// neither block nor call the engine.
  virtual void notify_when_ready(const ObjectHandle& object, std::function<void()> told) = 0;
  /// Returns the value of a ready object. Precondition: is_ready.
  virtual Result<Value> peek(const ObjectHandle& object) = 0;

  /// Gives the object a name that outlives the job. Blocks until the object is ready and the name
  /// is durable. Throws as Context::detach does.
  virtual void detach(const ObjectHandle& object, const std::string& name,
                      std::uint64_t fingerprint, const char* type, Duration timeout) = 0;
  /// Finds an object by name. Returns an empty handle when there is none. Throws InvalidArgument
  /// when the object has another fingerprint.
  virtual ObjectHandle find_object(const std::string& name, std::uint64_t fingerprint,
                                   const char* type) = 0;
  virtual bool forget_object(const std::string& name) = 0;
  /// Returns one location for each object, in their order.
  virtual std::vector<ObjectLocation> locations(std::span<const ObjectHandle> objects) = 0;

  // --- refs inside values
  // --------------------------------------------------------------------------------------
  /// Makes the handle of an actor that was decoded from a value: its id plus its lifetime object.
  virtual ActorHandle adopt_actor(ActorId id, ObjectHandle lifetime) = 0;

  // --- where am I
  // ------------------------------------------------------------------------------------------------
  virtual std::vector<NodeInfo> nodes() = 0;
  virtual NodeId node() = 0;
  virtual std::vector<int> gpu_ids() = 0;
  virtual bool stop_requested() = 0;
  /// See Context::on_log(). A private cluster has no lines to pass.
  virtual void on_log(OnLog) {}  // NOLINT(performance-unnecessary-value-param)
};

}  // namespace troupe::detail
