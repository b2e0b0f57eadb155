/// The seam between the public templates and the runtime behind them: nothing here is a template
/// over user types.
///
/// A template shell encodes its arguments into a Call and hands it to the process's Engine; on the
/// other side a Thunk finds the decoded pieces in an Invocation. Values are bytes plus the handles
/// of the Refs inside them.
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

/// The public part of a record in the process's reference table; the runtime derives from it.
struct ObjectEntry {
  std::atomic<std::uint32_t> handles{1};
  ObjectId id;
};
/// Called when the last handle is gone; does nothing once the engine has stopped. Any thread.
TROUPE_API void release_object(ObjectEntry* entry) noexcept;

/// A counted handle to an object: what every Ref holds. Thread-safe like shared_ptr.
class ObjectHandle {
 public:
  ObjectHandle() noexcept = default;
  /// Takes over one count.
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

/// One argument of a call on its way out: bytes at [offset, offset+size) of Call::bytes with refs
/// [first_ref, first_ref+ref_count) of Call::refs; or, when `object` is set, the value of that
/// object, awaited first.
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

/// A registered entry point; one per template instance, static lifetime. `thunk` identifies it
/// within a build.
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
/// Adds the entry to this module's table; template statics call it before main. Any thread.
TROUPE_API void register_callable(const Callable* callable);

/// Where a program makes an object, for `troupe memory`: a line of a file, or a function (line 0).
/// The text lives as long as the program.
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

/// Options of a task or actor with everything owned; a null pointer to it means all defaults.
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
  bool second_attempt = false;        ///< when it runs unusually long
  bool isolated = false;              ///< never in the process of the task that awaits it
  // actors
  std::string name_space;
  bool detached = false;
  bool get_if_exists = false;
  int max_restarts = 0;  ///< -1: without limit
  Duration restart_window = std::chrono::seconds(60);
};

/// What Actor<A> holds: an id and a counted lifetime (its object is freed when no handle is left
/// anywhere).
struct ActorHandle {
  ActorId id;
  ObjectHandle lifetime;
  explicit operator bool() const noexcept { return static_cast<bool>(id); }
};

/// One argument as a thunk finds it.
struct ArgumentView {
  BlobView bytes;
  std::span<const ObjectHandle> refs;
  const std::shared_ptr<const void>* keep =
      nullptr;  ///< copy it to keep bytes and refs beyond the call
};

/// Where results go. allocate(i, n) gives n bytes (64-byte aligned), publish(i, refs) ends result
/// i; every result is published, forwarded or failed exactly once.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  virtual std::span<std::byte> allocate(std::size_t index, std::size_t size) = 0;
  virtual void publish(std::size_t index, std::span<const ObjectHandle> refs) = 0;
  /// Result i is the value of another object, whenever that is ready.
  virtual void forward(std::size_t index, const ObjectHandle& object) = 0;
  /// All results not yet published end in this error.
  virtual void fail(const Error& error) = 0;
};

class Engine;

/// How far a run has come: it decodes its arguments, is inside user code, or encodes its results.
enum class Phase : std::uint8_t { arguments = 0, running = 1, results = 2 };

/// One run of a thunk. An exception that leaves the thunk becomes an Error at exactly one place,
/// run_thunk().
class Invocation : public ResultSink {
 public:
  virtual std::span<const ArgumentView> arguments() const = 0;
  virtual Engine& engine() const = 0;
  virtual void* self() const = 0;             ///< the actor's instance, for methods
  virtual void set_self(void* instance) = 0;  ///< constructors only
  /// A coroutine outlives the thunk: results then go to the returned sink, from the executor's
  /// thread.
  virtual std::shared_ptr<ResultSink> defer() = 0;
  /// True in the second and later lives of an actor.
  virtual bool restarted() const = 0;
  /// The actor that runs this method, for self<A>(); empty elsewhere.
  virtual ActorHandle actor() const { return {}; }

  /// The thunk says so.
  void enter(Phase phase) noexcept { phase_ = phase; }
  Phase phase() const noexcept { return phase_; }

 private:
  Phase phase_ = Phase::arguments;
};

/// On how many nodes an object is to be, and how long whoever makes it waits for that.
struct Replication {
  int replicas = 1;
  Duration timeout = std::chrono::seconds(60);
};

/// Throws InvalidArgument for less than one replica, or more than 1,024.
TROUPE_API Replication replication_of(int replicas, Duration timeout);

/// A value being written in place; seal or drop.
class Building {
 public:
  virtual ~Building() = default;
  virtual std::span<std::byte> bytes() = 0;
  /// With replicas > 1: blocks until they are there. Throws as PutOptions says.
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
};

/// Where the value of an object is, for Context::locations().
struct ObjectLocation {
  enum class State : std::uint8_t {
    unknown = 0,  ///< no node that answered knows it
    pending = 1,  ///< its work has not ended
    small = 2,    ///< up to 4 KiB: it travels inside messages and takes no shared memory
    large = 3,    ///< in shared memory, or on disk
    failed = 4    ///< an error instead of a value
  } state = State::unknown;
  Bytes size{};               ///< of its encoding
  bool spilled = false;       ///< large: on disk, and in no node's memory
  std::vector<NodeId> nodes;  ///< that have it, the asking one first if it does; at most 64
};

/// Turns an exception into the Error that travels; call inside a catch block. What leaves user code
/// is TaskFailed, executed; a troupe::Error is its cause then, and its outcome says nothing of this
/// run. An error of the runtime stays what it is: before user code not executed, behind it
/// executed. A chain of causes keeps its innermost eight.
TROUPE_API Error error_from_current_exception(const char* function, Phase phase) noexcept;

/// Calls the thunk. The error that an exception became, if one left it.
TROUPE_API std::optional<Error> run_thunk(const Callable& callable,
                                          Invocation& invocation) noexcept;

class Engine;

/// What the room that has an engine gives to those below it. `release` takes what release_object()
/// is given; it is there before the first object.
struct EngineHooks {
  Engine* (*current)() noexcept = nullptr;
  void (*release)(ObjectEntry*) noexcept = nullptr;
};
/// Once, before main; the hooks stay where they are.
TROUPE_API void install(const EngineHooks* hooks) noexcept;

/// The process's runtime. All members may be called from any thread unless they say otherwise.
class TROUPE_API Engine {
 public:
  virtual ~Engine();
  /// The engine of this process, or nullptr outside run()/Session.
  static Engine* current() noexcept;

  // --- calls
  // -------------------------------------------------------------------------------------------------
  /// Fills `results` (as many as callable->results). Never blocks; throws Overloaded at the queue
  /// limit.
  virtual void submit(Call&& call, const Request* options, std::span<ObjectHandle> results) = 0;
  virtual ActorHandle spawn(Call&& call, const Request* options) = 0;
  /// `results` empty: a tell.
  virtual void call(const ActorHandle& actor, Call&& call, std::span<ObjectHandle> results) = 0;
  /// The handle of an actor created before, by name; nullopt when there is none (or it is of
  /// another class).
  virtual std::optional<ActorHandle> find(const std::string& name, const char* class_name) = 0;
  virtual void kill(const ActorHandle& actor, bool may_restart) = 0;

  // --- objects
  // -----------------------------------------------------------------------------------------------
  virtual ObjectHandle put(BlobView bytes, std::span<const ObjectHandle> refs) = 0;
  virtual std::unique_ptr<Building> create(std::size_t size, CallSite at) = 0;
  /// Blocks until ready; a worker gives its CPU back meanwhile. Throws the object's error, or
  /// TimedOut.
  virtual Value get(const ObjectHandle& object, Duration timeout) = 0;
  /// As get, but the error is a value and nothing but TimedOut is made here.
  virtual Result<Value> try_get(const ObjectHandle& object, Duration timeout) = 0;
  virtual bool is_ready(const ObjectHandle& object) = 0;
  /// Waits until `count` of the objects are ready or the timeout passed; returns the indices that
  /// are ready, in order of completion, at most `count`. Linear cost.
  virtual std::vector<std::size_t> wait(std::span<const ObjectHandle> objects, std::size_t count,
                                        Duration timeout) = 0;
  /// Runs `fire` once when the object is ready (value or error), on the executor of the calling
  /// thread: the worker's or actor's own thread; at once, before returning, when it is ready
  /// already.
  virtual void when_ready(const ObjectHandle& object, std::function<void()> fire) = 0;
  /// Runs `work` on the executor of this process, after what it has begun; never blocks. A process
  /// without an executor, which is a driver, never runs it; nor does one that ends before.
  virtual void post(std::function<void()> work) = 0;
  /// Calls `told` once when the object is ready (value or error), or when no wait for it can end any
  /// more: peek() or get() then say why. At once when that is so already. On any thread of the
  /// runtime, under its lock: `told` passes the news on, and neither blocks nor calls the engine.
  virtual void notify_when_ready(const ObjectHandle& object, std::function<void()> told) = 0;
  /// The value of an object that is ready; precondition: is_ready.
  virtual Result<Value> peek(const ObjectHandle& object) = 0;

  /// Blocks until the object is ready and the name durable. Throws as Context::detach.
  virtual void detach(const ObjectHandle& object, const std::string& name,
                      std::uint64_t fingerprint, const char* type, Duration timeout) = 0;
  /// An empty handle: there is none. InvalidArgument: it has another fingerprint.
  virtual ObjectHandle find_object(const std::string& name, std::uint64_t fingerprint,
                                   const char* type) = 0;
  virtual bool forget_object(const std::string& name) = 0;
  /// One for each object, in their order.
  virtual std::vector<ObjectLocation> locations(std::span<const ObjectHandle> objects) = 0;

  // --- refs inside values
  // --------------------------------------------------------------------------------------
  /// For actor handles inside values: encodes to an id plus its lifetime object.
  virtual ActorHandle adopt_actor(ActorId id, ObjectHandle lifetime) = 0;

  // --- where am I
  // ------------------------------------------------------------------------------------------------
  virtual std::vector<NodeInfo> nodes() = 0;
  virtual NodeId node() = 0;
  virtual std::vector<int> gpu_ids() = 0;
  virtual bool stop_requested() = 0;
};

}  // namespace troupe::detail
