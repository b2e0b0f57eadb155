/// The messages between processes of one node, as plain structs. All code outside wire/ uses these
/// structs and never sees Cap'n Proto. schema/call.capnp and schema/node.capnp specify who sends
/// each message, when, and in what order.
///
/// encode() writes the schema's bytes; decode_call() and decode_node() check and read them. Inline
/// values travel beside a message, in the same frame, never inside it: `payload` below points at
/// them and is valid until the buffer changes.
///
///     FrameWriter writer;
///     channel.push(writer.encode(CallMessage{Call{…}}), payload);
///     Result<CallMessage> m = decode_call(frame);
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::wire {

/// The doorbell slot that tells a process to read its socket, on which descriptors travel.
inline constexpr std::uint32_t kSocketSlot = 0;

/// Bounds checked by every reader.
inline constexpr std::size_t kInlineValue = 4096;    ///< a larger value travels as an object
inline constexpr std::size_t kMaxArguments = 4096;   ///< of one call
inline constexpr std::size_t kMaxCallSites = 65536;  ///< call sites of one process
inline constexpr std::size_t kMaxText = 2048;        ///< one message or name
inline constexpr std::size_t kMaxStack = 4096;       ///< a remote stack
inline constexpr std::size_t kMaxLastLines = 4096;   ///< that a dead process wrote
inline constexpr std::size_t kMaxPath = 4096;        ///< of a program
inline constexpr std::size_t kMaxUser = 256;         ///< a user's name
inline constexpr std::size_t kMaxProgramArgument = 128 * 1024;  ///< as Linux bounds it
inline constexpr std::size_t kMaxRefs = 512;         ///< ids with one value; more go in bundles
inline constexpr std::size_t kMaxPlaces = 64;        ///< nodes of one ObjectPlace
inline constexpr std::size_t kMaxMade = 16384;       ///< ids of one kept call
inline constexpr std::size_t kMaxRetryOn = 64;       ///< exceptions of one kept call
inline constexpr std::size_t kMaxCauses = 16;        ///< an error and its causes
inline constexpr std::size_t kMaxErrorText = 8192;   ///< all texts of an error and its causes
inline constexpr std::size_t kMaxResources = 64;     ///< named resources of a demand or node
inline constexpr std::size_t kMaxLabels = 64;        ///< of a demand
inline constexpr std::size_t kMaxGpus = 64;          ///< of a lease or actor
inline constexpr std::size_t kMaxRows = 4096;        ///< of one Nodes
inline constexpr std::size_t kMaxSites = 32;         ///< functions of one Pace
inline constexpr std::size_t kMaxMessage = 1 << 20;  ///< bytes of a message without its payload

/// The place of a large object's bytes: the object store's location, opaque here.
struct Location {
  std::uint32_t segment = 0;
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  std::uint64_t extent = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const Location&, const Location&) = default;
};

/// A value in a message: nothing yet, inline bytes (in the frame's payload), a location in shared
/// memory, an error, the value of another object, or bytes that lie at another node.
struct Value {
  enum class Kind : std::uint8_t {
    pending = 0,
    inline_bytes = 1,
    shared = 2,
    error = 3,
    forwarded = 4,
    remote = 5
  };
  Kind kind = Kind::pending;
  std::uint32_t payload_offset = 0;  ///< inline_bytes: range of the frame's payload
  std::uint32_t payload_size = 0;
  Location location;            ///< shared
  std::uint32_t ref_count = 0;  ///< shared, remote: above kMaxRefs: `refs` names bundles
  std::vector<ObjectId> refs;   ///< inline_bytes, shared: ids inside, in order
  std::shared_ptr<const ErrorInfo> error;
  ObjectId forward;                ///< forwarded: the value of this (promoted) object
  std::uint64_t remote_bytes = 0;  ///< remote: its size; Await with `fetch` brings it here
};

/// An entry point: the folded build-id of its module, and the offset of its thunk in that module.
struct FunctionKey {
  std::uint64_t module = 0;
  std::uint64_t offset = 0;
  friend auto operator<=>(const FunctionKey&, const FunctionKey&) = default;
};

/// The resources and placement that a call or lease needs; amounts in 1/10000.
struct ResourceDemand {
  std::int64_t cpus = 10'000;
  std::int64_t gpus = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<std::pair<std::string, std::int64_t>> resources;
  std::vector<std::pair<std::string, std::string>> labels;
  std::uint8_t placement = 0;  ///< detail::Request::Placement
  NodeId node;
  bool soft = false;
  friend bool operator==(const ResourceDemand&, const ResourceDemand&) = default;
};

// --- caller <-> worker: one channel per pair ---

/// Caller -> worker. The worker starts calls in the order of `sequence`, which counts the calls of
/// this channel from 1.
struct Call {
  std::uint64_t sequence = 0;
  FunctionKey function;
  std::uint64_t actor_low = 0;  ///< low half of the ActorId for methods and constructors, else 0
  std::uint32_t attempt = 1;
  std::uint32_t results = 1;     ///< 0: a tell
  std::vector<Value> arguments;  ///< never pending; an error: the function does not run
};
/// Worker -> caller: result `index` of call `sequence`. A call without results answers index 0 of
/// kind pending when it succeeded, or an error.
struct Reply {
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;
  bool last = true;  ///< the call has ended
  std::uint64_t ran_ns = 0;
  Value value;
  /// Not 0, with an error: the call has not run, because the bytes of argument lost_argument - 1
  /// are gone. If that argument was forwarded, `lost` is the object whose bytes are gone.
  std::uint16_t lost_argument = 0;
  ObjectId lost;
};
/// Worker -> caller: the worker has not started these calls and will not start them. They are a
/// contiguous range of sequences.
struct HandBack {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
/// Caller -> worker: hand back all unstarted calls; answered by HandBack.
struct Recall {};
using CallMessage = std::variant<Call, Reply, HandBack, Recall>;

// --- process <-> its agent ---

/// An observer (the command line) asks questions and never submits work.
enum class ProcessKind : std::uint8_t { driver = 0, worker = 1, observer = 2 };

/// First message of a process, over its socket, with descriptors: doorbell memory, doorbell event.
struct Hello {
  std::uint32_t protocol = 0;
  std::string build;  ///< build-id of the executable, for people
  ProcessKind kind = ProcessKind::driver;
  std::uint32_t pid = 0;
  std::uint64_t token = 0;  ///< workers: what the agent gave the zygote
  // Drivers that join a running cluster: the program from which other nodes fork workers.
  std::string program;                 ///< path of the executable; empty: the agent's own
  std::vector<std::string> arguments;  ///< of the program, as main got them; at most kMaxRows
  std::vector<std::string> libraries;  ///< its own shared objects: paths; at most 64
  std::string job_name;                ///< for people
  std::uint64_t ignored_signals = 0;   ///< at the program's start; bit n - 1: signal n
  std::uint64_t blocked_signals = 0;
};
/// Agent -> process, answers Hello, with descriptors: channel memory, the agent's doorbell memory,
/// the agent's doorbell event.
struct Welcome {
  std::uint32_t protocol = 0;
  NodeId node;
  std::string node_name;
  ProcessIndex process;          ///< index of this process on its node, unique for the node's life
  std::uint32_t my_slot = 0;     ///< slot of the agent's channel in the process's doorbell
  std::uint32_t agent_slot = 0;  ///< slot of this process in the agent's doorbell
  std::uint32_t cpus = 1;        ///< whole CPUs of the node; sets how long the process spins
  JobId job;                     ///< the job that the process works for
};
/// Agent -> both processes of a new channel, over the socket; descriptors: channel memory, the
/// peer's doorbell memory, the peer's doorbell event.
struct Channel {
  ProcessIndex peer;            ///< process index of the other side
  std::uint32_t side = 0;       ///< 0 or 1: the ring that the receiver of this message writes
  std::uint32_t my_slot = 0;    ///< of the channel, in the receiver's doorbell
  std::uint32_t peer_slot = 0;  ///< of the channel, in the peer's doorbell
  /// The peer lives on another node and the agent carries the frames: a value there is inline,
  /// forwarded or an error, never a location.
  bool remote = false;
  ProcessIndex holder;  ///< the process that holds refs sent there; 0: the peer itself
};
/// Agent -> process: the peer is dead and was reaped. The process drains its channel a last time.
struct PeerDied {
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  ProcessIndex peer;
  std::string reason;  ///< "killed by signal 9", "exited with code 3"
  /// The highest call that it began, when the agent knows better than the channel's counter.
  std::uint64_t started = kUnknown;
  std::string stack{};       ///< of the thread that crashed; empty: none is known
  std::string last_lines{};  ///< that it wrote
};
/// Process -> agent: asks for up to `backlog` workers of this demand. The newest message for a key
/// replaces older ones; backlog 0 withdraws the request.
struct RequestLease {
  LeaseKey key;  ///< the caller's name for the demand
  std::uint32_t backlog = 0;
  ResourceDemand demand;
  NodeId near{};                 ///< the node that has most bytes of the large arguments
  std::uint64_t near_bytes = 0;  ///< how many bytes that node has
};
/// Agent -> process. Channel announces the channel to `worker`, before or after this message.
/// Lease 0: to the worker itself, before a caller has the lease. `worker` is then that caller.
struct LeaseGranted {
  LeaseKey key;
  LeaseId lease;
  ProcessIndex worker;
  std::vector<std::int32_t> gpus;
  std::optional<ResourceDemand> demand = {};  ///< lease 0: the resources that the lease reserves
  bool has_devices = false;                   ///< lease 0 with a demand: `gpus` are its devices
};
/// Agent -> process: no node can ever satisfy the demand; all calls of this key fail with `why`.
struct LeaseRefused {
  LeaseKey key;
  std::string why;
};
/// Agent -> process: other processes wait for resources. Return the lease as soon as its calls have
/// ended. With a holder: to the worker, because the holder is silent. A worker that runs nothing
/// returns the lease. It then hands back the holder's calls until LeaseGranted names the holder.
struct LeaseReclaim {
  LeaseId lease;
  ProcessIndex holder = {};
};
/// Process -> agent: the sender no longer uses the lease, or nobody uses its worker.
struct LeaseReturned {
  LeaseId lease;
};
/// Worker -> agent: its thread waits for values; its resources are free until Unblocked.
struct Blocked {};
/// Worker -> agent: its thread runs again.
struct Unblocked {};
/// The tasks of one function that a worker ran.
struct SitePace {
  FunctionKey function;
  std::uint32_t tasks = 0;
  /// Sum over the tasks, without the time to open arguments and to wait for other tasks.
  std::uint64_t ran_ns = 0;
};
/// Worker -> agent, after a task, at most four times a second: the run times since the last Pace.
struct Pace {
  std::vector<SitePace> sites;  ///< at most kMaxSites
};

/// Process -> agent: the agent owns this object's record from now on. The sender holds one count.
struct Promote {
  ObjectId object;
  Value value;  ///< the value, or pending
};
/// Process -> agent: the value of a promoted object that was pending. The process that promoted the
/// object sends it, once the object's task has ended.
struct Fulfil {
  ObjectId object;
  Value value;
};
/// Process -> agent: adds `delta` to the counts of the object that `process` holds. A process that
/// sends a ref counts the receiver before it publishes the frame with the ref (RUN-4). A process
/// drops its own counts with a negative delta. The agent itself counts the refs inside a value that
/// it keeps.
struct Hold {
  ObjectId object;
  ProcessIndex process;
  std::int32_t delta = 0;
  /// Number, from 1, of the frame with the ref among the sender's frames to `process`; 0: in none.
  std::uint64_t frame = 0;
  std::uint32_t waiting = 0;  ///< how many of the frames before it are not in the ring yet
};
/// Process -> agent, answers PeerDied: how many frames of the dead process arrived. The sender
/// writes no more frames to it.
struct Arrived {
  ProcessIndex peer;
  std::uint64_t frames = 0;
};
/// Process -> agent: asks for the value; the agent sends one Ready as soon as there is one. Without
/// `fetch` a large value at another node stays there, and Ready has a remote value.
struct Await {
  ObjectId object;
  bool fetch = true;
};
/// Agent -> process. The agent has counted the refs inside for the receiver.
struct Ready {
  ObjectId object;
  Value value;
  NodeId node{};  ///< with a remote value: the node that has the bytes
};
/// Process -> agent: the bytes of the object are gone; answered by Ready with another value, or an
/// error. Agent -> the process that made the object: compute it again; answered by Rebuilt.
struct Rebuild {
  ObjectId object;
  ObjectId lost;  ///< whose bytes are gone: the one `object` was forwarded to, or `object` itself
};
/// Process -> agent, answers Rebuild: the new value of an object that the sender made.
struct Rebuilt {
  ObjectId object;
  Value value;
};
/// Process -> agent: the sender can compute this object again, although it no longer holds it.
/// Agent -> that process, once, later: the object has no holder left.
struct Lineage {
  ObjectId object;
};
/// Worker -> agent: a call of the sender that has ended. Another process can make it again when the
/// sender is gone. Agent -> process of the same job: the receiver keeps the call from now on.
struct KeptCall {
  std::uint64_t number = 0;  ///< its name on this node
  Call call;
  /// Positions of ids that name a result of a kept call, ascending: see each_id().
  std::vector<std::uint32_t> made;
  ResourceDemand demand;
  std::int32_t retries_left = 3;  ///< -1: without limit
  std::vector<std::string> retry_on;
  std::uint64_t input_bytes = 0;  ///< size of the objects that the call names
};
/// Worker -> agent: this promoted object is a result of that kept call. Agent -> process: the same,
/// of a kept call that the receiver has now.
struct MadeBy {
  ObjectId object;
  std::uint64_t call = 0;         ///< number of the KeptCall
  std::uint32_t result = 0;       ///< index of the result
  std::int32_t retries_left = 3;  ///< of the call
};
/// Process -> agent: the sender will not name this kept call any more.
struct ForgetCall {
  std::uint64_t number = 0;
};
/// Process -> agent: the object at this location can be freed. Only its owner sends it.
struct Free {
  Location location;
};

/// Process -> agent: make this actor. `creation` is the constructor's call; the payload has its
/// inline arguments.
struct CreateActor {
  ActorId actor;
  ObjectId lifetime;
  std::string name;
  std::string name_space;
  std::string class_name;
  bool detached = false;
  bool get_if_exists = false;
  std::int32_t max_restarts = 0;
  std::uint64_t restart_window_ns = 0;
  std::uint32_t max_concurrency = 1;
  ResourceDemand demand;
  Call creation;
  std::uint64_t request = 0;  ///< not 0: answered by FoundActor with this number
};
/// Agent -> worker: become this actor; run `creation`. Answered by ActorCreated.
struct StartActor {
  ActorId actor;
  ObjectId lifetime;  ///< the object that the actor's handles count
  std::uint64_t incarnation = 0;
  std::uint32_t max_concurrency = 1;
  bool restarted = false;
  std::string name;
  std::vector<std::int32_t> gpus;
  Call creation;
};
/// Worker -> agent, answers StartActor.
struct ActorCreated {
  ActorId actor;
  std::uint64_t incarnation = 0;
  std::shared_ptr<const ErrorInfo> error;  ///< set: the constructor threw
};
/// Process -> agent: asks for an ActorUpdate now and one at every change.
struct WatchActor {
  ActorId actor;
};
enum class ActorState : std::uint8_t { pending = 0, alive = 1, restarting = 2, dead = 3 };
/// Agent -> every process that sent WatchActor.
struct ActorUpdate {
  ActorId actor;
  ActorState state = ActorState::pending;
  std::uint64_t incarnation = 0;
  ProcessIndex worker;  ///< alive: its process index; Channel announces the channel
  /// Dead: the reason. Pending: how its last life ended, if it had one.
  std::shared_ptr<const ErrorInfo> error;
  std::uint64_t retry_at_ns = 0;  ///< pending: when its next life begins, of steady_now()
  bool silent = false;            ///< alive: its node does not answer, and is not known to be dead
};
/// Process -> agent: end the actor's present life.
struct KillActor {
  ActorId actor;
  bool may_restart = false;
};
/// Process -> agent, answered by FoundActor with the same request number.
struct FindActor {
  std::uint64_t request = 0;
  std::string name;
  std::string name_space;
};
/// Agent -> process, answers FindActor and CreateActor.
struct FoundActor {
  std::uint64_t request = 0;
  bool found = false;
  ActorId actor;  ///< found: the agent has counted one holder of `lifetime` for the receiver
  ObjectId lifetime;
  std::string class_name;
  /// The directory could not be asked, or the actor could not be made.
  std::shared_ptr<const ErrorInfo> error;
};

/// Process -> agent: asks for an extent of at least this many bytes. Answered by GiveExtent.
struct NeedExtent {
  std::uint64_t bytes = 0;
  std::uint64_t request = 0;
};
/// Agent -> process, answers NeedExtent: an extent with one descriptor, or an error. With neither:
/// objects of the receiver were recycled; it tries its own extents and asks again if they are full.
struct GiveExtent {
  std::uint64_t extent = 0;
  std::uint64_t bytes = 0;
  std::shared_ptr<const ErrorInfo> error;
  std::uint64_t request = 0;  ///< of the NeedExtent
};
/// Process -> agent: the extent is mapped, and the agent seals it. Answered by ExtentSealed.
struct ExtentMapped {
  std::uint64_t extent = 0;
};
/// Agent -> process: the extent is sealed, and readers may map it now.
struct ExtentSealed {
  std::uint64_t extent = 0;
};
/// Process -> agent: asks for a descriptor to read a publications segment or an extent.
struct NeedReader {
  bool is_segment = false;
  std::uint64_t id = 0;
};
/// Agent -> process, answers NeedReader, with one descriptor. An error without one: it is gone.
struct GiveReader {
  bool is_segment = false;
  std::uint64_t id = 0;
  std::uint32_t incarnation = 0;  ///< of a segment
  std::uint64_t bytes = 0;
  std::shared_ptr<const ErrorInfo> error;
};
/// Agent -> the process that made the object: the object of this slot is freed and no reader pins
/// it. The process may use its memory again.
struct Recycle {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
};
/// Agent -> process, over the socket, once after Welcome; descriptors: publications, pins,
/// retirements.
struct StoreTables {
  std::uint32_t processes = 0;  ///< objectstore::Layout
  std::uint32_t slots = 0;
  std::uint32_t extents = 0;
  std::uint32_t process = 0;
  std::uint32_t incarnation = 0;
  std::uint64_t extent_bytes = 0;
};
/// Process -> agent: the tables are mapped, and the agent may seal them.
struct StoreAttached {};
/// Process -> agent: the sender is about to name this object of its own in a message to another
/// process. The agent keeps it until its owner sends Free or dies.
struct Adopt {
  Location location;
  std::uint32_t site = 0;     ///< a CallSite's number; 0: unknown
  ProcessIndex process;       ///< the process that owns the object from then on; 0: the sender
  std::uint64_t frame = 0;    ///< as in Hold
  std::uint32_t waiting = 0;  ///< as in Hold
};
/// Process -> agent: the name of a place in the program that makes objects. It comes before the
/// first Adopt with its number.
struct CallSite {
  std::uint32_t number = 0;  ///< from 1 on, at most kMaxCallSites
  std::string text;          ///< "main.cpp:12", or a function's name
};
/// Process -> agent: the sender has closed its last view of a freed object.
struct Unpinned {
  std::uint32_t process = 0;
  std::uint32_t slot = 0;
};
/// Agent -> every process: the extent or segment is gone; unmap it.
struct Forget {
  bool is_segment = false;
  std::uint64_t id = 0;
};

/// Agent -> process: memory is short. Promote the objects that only you know, then send GiveBack
/// for each empty extent.
struct MemoryPressure {};
/// Process -> agent: the sender has unmapped this extent of its own, which holds no object.
struct GiveBack {
  std::uint64_t extent = 0;
};
/// Process -> agent: an adopted object is no longer at this location; answered by NowAt.
struct WhereIs {
  std::uint64_t request = 0;
  Location location;
};
/// Agent -> process, answers WhereIs: the present location, which the receiver opens once and does
/// not keep; or an error.
struct NowAt {
  std::uint64_t request = 0;
  Location location;
  std::shared_ptr<const ErrorInfo> error;
};

/// Process -> agent, after the object's Promote: make replicas. Precondition: has_copies(object).
/// Answered by Replicated.
struct Replicate {
  std::uint64_t request = 0;
  ObjectId object;
  std::uint32_t copies = 2;  ///< number of nodes that are to have the bytes, this one included
  std::uint64_t timeout_ns = 0;
};
/// Agent -> process, answers Replicate: all these nodes have the bytes; or an error.
struct Replicated {
  std::uint64_t request = 0;
  std::shared_ptr<const ErrorInfo> error;
};

/// Process -> agent: gives a promoted object a name (detach), asks for the object with a name
/// (find), or frees a name (forget). Answered by NamedObject.
struct NameObject {
  enum class Verb : std::uint8_t { detach = 0, find = 1, forget = 2 };
  std::uint64_t request = 0;
  Verb verb = Verb::detach;
  std::string name;
  ObjectId object;                ///< detach
  std::uint64_t fingerprint = 0;  ///< detach: of the value's type
  std::string type;               ///< detach: for people
};
/// Agent -> process, answers NameObject.
struct NamedObject {
  std::uint64_t request = 0;
  bool found = false;  ///< detach: the object has the name; find: one has it; forget: one had it
  ObjectId object;     ///< find: the agent has counted one holder for the receiver
  std::uint64_t fingerprint = 0;
  std::string type;
  std::shared_ptr<const ErrorInfo> error;
};
/// Process -> agent: asks for the places of these promoted objects. Answered by one or more
/// Located.
struct Locate {
  std::uint64_t request = 0;
  std::vector<ObjectId> objects;  ///< at most kMaxRefs
};
enum class PlaceState : std::uint8_t { unknown = 0, pending = 1, small = 2, large = 3, failed = 4 };
struct ObjectPlace {
  std::uint32_t index = 0;  ///< among the objects of the Locate
  PlaceState state = PlaceState::unknown;
  std::uint64_t bytes = 0;
  bool spilled = false;       ///< a node has it on disk, and no node has it in memory
  std::vector<NodeId> nodes;  ///< the nodes that have the bytes; at most kMaxPlaces
};
/// Agent -> process, answers Locate.
struct Located {
  std::uint64_t request = 0;
  std::vector<ObjectPlace> places;  ///< at most kMaxRefs
  bool more = false;                ///< the answer goes on in another message
};

/// Process -> agent: asks why a lease request of the sender, or an actor, waits. Answered by
/// Explained.
struct Explain {
  std::uint64_t request = 0;
  LeaseKey key;   ///< of the sender's RequestLease; without an actor
  ActorId actor;  ///< zero: `key` counts
};
/// Agent -> process, answers Explain.
struct Explained {
  std::uint64_t request = 0;
  std::string why;  ///< one sentence; empty: the agent knows of no wait
};

/// Process -> agent, answered by Nodes.
struct ListNodes {
  std::uint64_t request = 0;
};
struct NodeRow {
  NodeId id;
  std::string name;
  bool alive = true;
  std::int64_t cpus = 0, cpus_free = 0;  ///< 1/10000
  std::int64_t gpus = 0, gpus_free = 0;
  std::uint64_t memory = 0, store_capacity = 0, store_used = 0;
  std::uint32_t workers = 0;
  std::vector<std::pair<std::string, std::int64_t>> resources;
  bool draining = false, suspect = false;
  std::string address;
};
/// Agent -> process, answers ListNodes.
struct Nodes {
  std::uint64_t request = 0;
  std::vector<NodeRow> rows;
  bool more = false;  ///< the answer goes on in another message
};
/// Which piece of a log is asked for; see log_batch.hpp.
struct LogQuestion {
  JobId job;
  std::uint64_t after = 0;      ///< the offset behind what the asker has
  std::uint32_t most = 0;       ///< bytes; 0: the least that an answer may be bounded to
  std::uint32_t wait_ms = 0;    ///< how long the answer may wait for lines; at most kMaxLogWait
  bool until_complete = false;  ///< answered at once when no line can follow
};
/// Which rows of a list are asked for. observe/question.hpp gives the members their meaning.
struct ListQuestion {
  std::uint8_t kind = 0;  ///< an observe::RowKind
  std::uint32_t limit = 0;
  std::string where, sort, after;
};
/// Which processes of a node: one, the one of an actor, or all of a job.
struct StackQuestion {
  std::int32_t pid = 0;
  ActorId actor;
  JobId job;
};
/// Which job is to stop, and who asks for it.
struct StopQuestion {
  JobId job;
  std::string user;  ///< a name for people; at most kMaxUser bytes
};
/// Process -> agent: a question, answered by one or more Answer. With About::control the payload is
/// an encoded control::ToControl, which may change key-values and draining and nothing else. With
/// About::memory an observer asks for the MemoryReport of a node. With About::logs it, or the driver
/// of the job, asks for the next piece of a job's log on a node. Both have no payload. With
/// About::rows an observer asks for rows of all nodes, without payload, and with About::stacks for
/// a text with the stacks of processes of a node. With About::stop an observer asks the driver's
/// node to stop a job; the answer is a sentence.
struct Inquire {
  enum class About : std::uint8_t {
    control = 0,
    memory = 1,
    logs = 2,
    rows = 3,
    stacks = 4,
    stop = 5
  };
  std::uint64_t request = 0;
  About about = About::control;
  NodeId node;  ///< not control: whose; zero: the agent's own
  LogQuestion logs{};
  ListQuestion rows{};
  StackQuestion stacks{};
  StopQuestion stop{};
};
/// Agent -> process, answers Inquire. The payload is a piece of an encoded control::FromControl,
/// MemoryReport, LogBatch or observe::Answer. With an error there is no payload: control or the node
/// cannot be reached.
struct Answer {
  std::uint64_t request = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< of the whole answer
  std::shared_ptr<const ErrorInfo> error;
};
/// Agent -> driver or worker: asks for rows that only the receiver knows. Answered by GiveRows. The
/// payload is an observe::Surroundings.
struct AskRows {
  std::uint64_t request = 0;
  ListQuestion rows{};
};
/// Driver or worker -> agent, answers AskRows, once or in pieces. The payload is a piece of an encoded
/// observe::Answer. With a reason there is none.
struct GiveRows {
  std::uint64_t request = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< of the whole answer
  std::string why;          ///< not empty: the sender has no answer
};
/// Agent -> process: end yourself now. Driver -> agent: the job is finished. Worker -> agent,
/// before StoreAttached: it cannot start.
struct Shutdown {
  std::string why;       ///< for the log
  bool cancels = false;  ///< agent -> driver: a person stops the job, so its waits are cancelled
};

using NodeMessage =
    std::variant<Hello, Welcome, Channel, PeerDied, RequestLease, LeaseGranted, LeaseRefused,
                 LeaseReclaim, LeaseReturned, Blocked, Unblocked, Promote, Fulfil, Hold, Await,
                 Ready, Free, CreateActor, StartActor, ActorCreated, WatchActor, ActorUpdate,
                 KillActor, FindActor, FoundActor, NeedExtent, GiveExtent, ExtentMapped,
                 ExtentSealed, NeedReader, GiveReader, Recycle, ListNodes, Nodes, Shutdown,
                 StoreTables, StoreAttached, Adopt, Unpinned, Forget, Inquire, Answer,
                 MemoryPressure, GiveBack, WhereIs, NowAt, Rebuild, Rebuilt, Lineage, KeptCall,
                 MadeBy, ForgetCall, Pace, CallSite, Arrived, Replicate, Replicated, NameObject,
                 NamedObject, Locate, Located, Explain, Explained, AskRows, GiveRows>;

/// Calls `f(id, position, made)` for every id that a kept call names. The position is that of an
/// argument, or kMaxArguments + the position of a ref among all refs inside the arguments. `made`
/// says whether the id names a result of a kept call.
template <class Kept, class F>
void each_id(Kept& kept, F&& f) {
  std::size_t ref = kMaxArguments;
  const auto visit = [&](auto& id, std::size_t position) {
    f(id, position, std::binary_search(kept.made.begin(), kept.made.end(), position));
  };
  for (std::size_t i = 0; i < kept.call.arguments.size(); ++i) {
    auto& argument = kept.call.arguments[i];
    for (auto& id : argument.refs) visit(id, ref++);
    if (argument.kind == Value::Kind::forwarded) visit(argument.forward, i);
  }
}

// --- bytes ---

/// A decoded frame: the message and the payload beside it (points into the frame's bytes).
template <class Message>
struct Decoded {
  Message message;
  BlobView payload;
};

/// Writes messages into one reused buffer. The result is valid until the next call. Not for two
/// threads at once. No errors: it cuts long texts, leaves out causes of an error, and asserts all
/// other bounds. The size is a multiple of 8 and may exceed what a ring or socket takes: compare
/// before sending. No allocation up to 32 KiB.
class FrameWriter {
 public:
  FrameWriter();
  ~FrameWriter();
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;
  BlobView encode(const CallMessage& message);
  BlobView encode(const NodeMessage& message);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Decodes a frame and checks bounds, counts, enum values and payload ranges. Errors:
/// invalid_argument with the field's name; unavailable ("unsupported message N") for an unknown
/// kind of message. The frame must be private memory (a ring's consumer copies it there). A frame
/// that is not aligned to 8 costs one more copy. The result takes at most 25 times the message's
/// memory.
Result<Decoded<CallMessage>> decode_call(BlobView frame);
Result<Decoded<NodeMessage>> decode_node(BlobView frame);

}  // namespace troupe::wire
