/// Every message between processes of one node, as plain structs: cores and shells see these and
/// never Cap'n Proto.
///
/// encode() writes the schema's bytes, decode() checks and reads them; both live in one unit. Bulk
/// bytes travel beside a message, in the same frame, never inside it: `payload` below points at
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

/// The doorbell slot that says "look at your socket": descriptors travel there.
inline constexpr std::uint32_t kSocketSlot = 0;

/// Bounds checked by every reader.
inline constexpr std::size_t kInlineValue = 4096;    ///< a larger value travels as an object
inline constexpr std::size_t kMaxArguments = 4096;   ///< of one call
inline constexpr std::size_t kMaxCallSites = 65536;  ///< call sites of one process
inline constexpr std::size_t kMaxText = 2048;        ///< one message or name
inline constexpr std::size_t kMaxStack = 4096;       ///< a remote stack
inline constexpr std::size_t kMaxPath = 4096;        ///< of a program
inline constexpr std::size_t kMaxProgramArgument = 128 * 1024;  ///< as Linux bounds it
inline constexpr std::size_t kMaxRefs = 512;         ///< ids with one value; more go in bundles
inline constexpr std::size_t kMaxPlaces = 64;        ///< nodes that are named for one object
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

/// Where the bytes of a large object are: objectstore's location, opaque here.
struct Location {
  std::uint32_t segment = 0;
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  std::uint64_t extent = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const Location&, const Location&) = default;
};

/// A value as it crosses: one of nothing yet, inline bytes (in the frame's payload), a location, an
/// error, the value of another object, or bytes that lie at another node.
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
  std::uint32_t ref_count = 0;  ///< shared, remote: above kMaxRefs: refs inside; `refs` are bundles
  std::vector<ObjectId> refs;   ///< inline_bytes, shared: ids inside, in order
  std::shared_ptr<const ErrorInfo> error;
  ObjectId forward;                ///< forwarded: the value of this (promoted) object
  std::uint64_t remote_bytes = 0;  ///< remote: its size; Await with `fetch` brings it here
};

/// An entry point: module build-id (folded) + offset of its thunk in the module, and a name for
/// people.
struct FunctionKey {
  std::uint64_t module = 0;
  std::uint64_t offset = 0;
  friend auto operator<=>(const FunctionKey&, const FunctionKey&) = default;
};

/// What a call or lease needs; amounts in 1/10000.
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

// --- caller <-> worker: one channel per pair
// -----------------------------------------------------------------------

/// Caller -> worker. Executed in the order of `sequence`, which counts the calls of this channel
/// from 1.
struct Call {
  std::uint64_t sequence = 0;
  FunctionKey function;
  std::uint64_t actor_low = 0;  ///< low half of the ActorId for methods and constructors, else 0
  std::uint32_t attempt = 1;
  std::uint32_t results = 1;     ///< 0: a tell
  std::vector<Value> arguments;  ///< never pending; an error: the call does not run
};
/// Worker -> caller: result `index` of call `sequence`. A call with no results answers index 0 of
/// kind pending when it ended well, or an error.
struct Reply {
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;
  bool last = true;  ///< the call has ended
  std::uint64_t ran_ns = 0;
  Value value;
  /// Not 0, with an error: the call has not run, since the bytes of argument lost_argument - 1 are
  /// gone; of a forwarded one, those of the object `lost`.
  std::uint16_t lost_argument = 0;
  ObjectId lost;
};
/// Worker -> caller: these calls were not started and never will be here: a contiguous range of
/// sequences.
struct HandBack {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
/// Caller -> worker: hand back what you have not started.
struct Recall {};
using CallMessage = std::variant<Call, Reply, HandBack, Recall>;

// --- process <-> its agent
// -----------------------------------------------------------------------------------------

/// An observer (the command line) asks and never submits work.
enum class ProcessKind : std::uint8_t { driver = 0, worker = 1, observer = 2 };

/// First message of a process, over its socket, with descriptors: doorbell memory, doorbell event.
struct Hello {
  std::uint32_t protocol = 0;
  std::string build;  ///< build-id of the executable, for people
  ProcessKind kind = ProcessKind::driver;
  std::uint32_t pid = 0;
  std::uint64_t token = 0;  ///< workers: what the agent gave the zygote
  // Drivers that join a running cluster: what other nodes start workers from.
  std::string program;                 ///< path of the executable; empty: the agent's own
  std::vector<std::string> arguments;  ///< of the program, as main got them; at most kMaxRows
  std::vector<std::string> libraries;  ///< its own shared objects: paths; at most 64
  std::string job_name;                ///< for people
  std::uint64_t ignored_signals = 0;   ///< as the program was started; bit n - 1: signal n
  std::uint64_t blocked_signals = 0;
};
/// Agent's answer, with descriptors: channel memory, agent's doorbell memory, agent's doorbell
/// event.
struct Welcome {
  std::uint32_t protocol = 0;
  NodeId node;
  std::string node_name;
  std::uint64_t process = 0;     ///< index of this process on its node, unique for the node's life
  std::uint32_t my_slot = 0;     ///< slot of the agent's channel in the process's doorbell
  std::uint32_t agent_slot = 0;  ///< slot of this process in the agent's doorbell
  std::uint32_t cpus = 1;        ///< whole CPU slots of the node, for spin budgets
  JobId job;                     ///< that the process works for
};
/// Agent -> process, over the socket, when a peer channel is made; descriptors: channel memory, the
/// peer's doorbell memory, the peer's doorbell event.
struct Channel {
  std::uint64_t peer = 0;  ///< process index of the other side
  std::uint32_t side = 0;  ///< 0 or 1: which producer is mine
  std::uint32_t my_slot = 0;
  std::uint32_t peer_slot = 0;
  /// The peer lives on another node and the agent carries the frames: what travels is inline,
  /// forwarded or an error, never a location.
  bool remote = false;
  std::uint64_t holder = 0;  ///< who counts as holder of refs sent there; 0: the peer itself
};
/// Agent -> process: the peer is dead (its channel can be drained a last time).
struct PeerDied {
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  std::uint64_t peer = 0;
  std::string reason;  ///< "killed by signal 9", "exited with code 3"
  /// The highest call that it began, when the agent knows better than the channel's counter.
  std::uint64_t started = kUnknown;
};
/// Process -> agent: up to `backlog` workers for this demand, please. The newest message for a key
/// replaces older ones; backlog 0 withdraws.
struct RequestLease {
  std::uint64_t key = 0;  ///< the caller's name for the demand
  std::uint32_t backlog = 0;
  ResourceDemand demand;
  NodeId near{};                 ///< has most bytes of the large arguments
  std::uint64_t near_bytes = 0;  ///< how many
};
/// Agent -> process. The channel to `worker` was or will be announced by Channel.
struct LeaseGranted {
  std::uint64_t key = 0;
  std::uint64_t lease = 0;
  std::uint64_t worker = 0;
  std::vector<std::int32_t> gpus;
  std::optional<ResourceDemand> demand = {};  ///< lease 0: what the worker's lease reserves
  bool has_devices = false;                   ///< lease 0 with a demand: `gpus` are its devices
};
/// Agent -> process: the demand can never be satisfied; all calls of this key fail with the
/// sentence.
struct LeaseRefused {
  std::uint64_t key = 0;
  std::string why;
};
/// Agent -> process: others wait; return the lease as soon as its calls have ended.
struct LeaseReclaim {
  std::uint64_t lease = 0;
};
/// Process -> agent.
struct LeaseReturned {
  std::uint64_t lease = 0;
};
/// Worker -> agent: its thread waits for others; its resources are free meanwhile.
struct Blocked {};
struct Unblocked {};
/// Tasks of one function that ran, without opening their arguments and waiting for others.
struct SitePace {
  FunctionKey function;
  std::uint32_t tasks = 0;
  std::uint64_t ran_ns = 0;  ///< all of them
};
/// Worker -> agent, behind a task, at most four times a second: what ran since it was told last.
struct Pace {
  std::vector<SitePace> sites;  ///< at most kMaxSites
};

/// Process -> agent: this object's record is the agent's from now on. The sender holds one count.
struct Promote {
  ObjectId object;
  Value value;  ///< pending, or what is known
};
/// Process -> agent: an promoted object that was pending has its value (sent by whoever runs its
/// task).
struct Fulfil {
  ObjectId object;
  Value value;
};
/// Process -> agent: counts of holders. `process` holds `delta` more (sender registers for the
/// receiver before the message with the ref is published); a process drops its own with a negative
/// delta. What a value names that the agent is to keep is counted by the agent.
struct Hold {
  ObjectId object;
  std::uint64_t process = 0;
  std::int32_t delta = 0;
  std::uint64_t frame = 0;    ///< the sender's to that process, from 1 on; 0: in none
  std::uint32_t waiting = 0;  ///< of the frames before it so many are not in the ring yet
};
/// Process -> agent, answers PeerDied: so many frames of that process came.
struct Arrived {
  std::uint64_t peer = 0;
  std::uint64_t frames = 0;
};
/// Process -> agent: tell me the value when it is ready (once). Without `fetch` a large value at
/// another node stays there and Ready says `remote`.
struct Await {
  ObjectId object;
  bool fetch = true;
};
/// Agent -> process. Holds for the refs inside are already counted for the receiver.
struct Ready {
  ObjectId object;
  Value value;
  NodeId node{};  ///< of a remote value: which has the bytes
};
/// Process -> agent: the bytes of the object are gone; answered by Ready with another value, or an
/// error. Agent -> the process that made the object: compute it again; answered by Rebuilt.
struct Rebuild {
  ObjectId object;
  ObjectId lost;  ///< where its value led to: the object that it was forwarded to, or itself
};
/// Process -> agent: the value of an object of mine from here on, whatever it was before.
struct Rebuilt {
  ObjectId object;
  Value value;
};
/// Process -> agent: I can compute this object again though I hold it no longer. Agent -> process,
/// once, then: nobody holds it any more.
struct Lineage {
  ObjectId object;
};
/// Worker -> agent: a call of mine that has ended, for whoever can make it again when I am gone.
/// Agent -> process: such a call is yours from here on.
struct KeptCall {
  std::uint64_t number = 0;  ///< its name on this node
  Call call;
  /// Positions of ids that name a result of a kept call, ascending: see each_id().
  std::vector<std::uint32_t> made;
  ResourceDemand demand;
  std::int32_t retries_left = 3;  ///< -1: without limit
  std::vector<std::string> retry_on;
  std::uint64_t input_bytes = 0;  ///< what the objects take that it names
};
/// Worker -> agent: the object, which was promoted, is a result of that kept call. Agent ->
/// process: of one that is yours now.
struct MadeBy {
  ObjectId object;
  std::uint64_t call = 0;
  std::uint32_t result = 0;
  std::int32_t retries_left = 3;
};
/// Process -> agent: I will name this kept call no more.
struct ForgetCall {
  std::uint64_t number = 0;
};
/// Process -> agent: the location's object is dead (never promoted, or the owner process frees its
/// own).
struct Free {
  Location location;
};

/// Process -> agent: a new actor. `creation` is the constructor's call; its payload are the inline
/// arguments.
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
/// Worker -> agent.
struct ActorCreated {
  ActorId actor;
  std::uint64_t incarnation = 0;
  std::shared_ptr<const ErrorInfo> error;  ///< set: the constructor threw
};
/// Process -> agent: keep me told where the actor is.
struct WatchActor {
  ActorId actor;
};
enum class ActorState : std::uint8_t { pending = 0, alive = 1, restarting = 2, dead = 3 };
/// Agent -> watchers.
struct ActorUpdate {
  ActorId actor;
  ActorState state = ActorState::pending;
  std::uint64_t incarnation = 0;
  std::uint64_t worker = 0;  ///< alive: its process; the channel is announced by Channel
  /// Dead: why. Pending: how its last life ended, if it had one.
  std::shared_ptr<const ErrorInfo> error;
  std::uint64_t retry_at_ns = 0;  ///< pending: when its next life begins, of steady_now()
  bool silent = false;            ///< alive: its node says nothing, and is not known to be dead
};
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
struct FoundActor {
  std::uint64_t request = 0;
  bool found = false;
  ActorId actor;  ///< when found: the receiver already holds one count of `lifetime`
  ObjectId lifetime;
  std::string class_name;
  std::shared_ptr<const ErrorInfo> error;  ///< nobody can tell, or it could not be made
};

/// Process -> agent: I need an extent of at least this many bytes. Answered by GiveExtent.
struct NeedExtent {
  std::uint64_t bytes = 0;
  std::uint64_t request = 0;
};
/// Agent -> process, with one descriptor; or an error and none. With neither: try again, your own
/// memory may have room now.
struct GiveExtent {
  std::uint64_t extent = 0;
  std::uint64_t bytes = 0;
  std::shared_ptr<const ErrorInfo> error;
  std::uint64_t request = 0;  ///< that it answers
};
/// Process -> agent: mapped; seal it. Answered by ExtentSealed once readers may have it.
struct ExtentMapped {
  std::uint64_t extent = 0;
};
struct ExtentSealed {
  std::uint64_t extent = 0;
};
/// Process -> agent: descriptors for reading a process's publications segment or an extent.
struct NeedReader {
  bool is_segment = false;
  std::uint64_t id = 0;
};
/// Agent -> process, with one descriptor (none with an error: it is gone).
struct GiveReader {
  bool is_segment = false;
  std::uint64_t id = 0;
  std::uint32_t incarnation = 0;  ///< of a segment
  std::uint64_t bytes = 0;
  std::shared_ptr<const ErrorInfo> error;
};
/// Agent -> writer: the object of this slot is dead and unpinned: reuse its memory.
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
/// Process -> agent: the tables are mapped; seal them.
struct StoreAttached {};
/// Process -> agent: this object of mine is about to be named in a message to another process: keep
/// it until Free, or the death of whose it is.
struct Adopt {
  Location location;
  std::uint32_t site = 0;     ///< a CallSite's number; 0: unknown
  std::uint64_t process = 0;  ///< whose it is from then on; 0: the sender's
  std::uint64_t frame = 0;    ///< as in Hold
  std::uint32_t waiting = 0;
};
/// Process -> agent: the name of a place where it makes objects; before the first Adopt that has
/// the number.
struct CallSite {
  std::uint32_t number = 0;  ///< from 1 on, at most kMaxCallSites
  std::string text;          ///< "main.cpp:12", or a function's name
};
/// Process -> agent: the last view of a freed object is gone here.
struct Unpinned {
  std::uint32_t process = 0;
  std::uint32_t slot = 0;
};
/// Agent -> every process: the extent or segment is gone; unmap it.
struct Forget {
  bool is_segment = false;
  std::uint64_t id = 0;
};

/// Agent -> process: memory is short. Promote the objects that you alone know of, then give back
/// empty extents.
struct MemoryPressure {};
/// Process -> agent: this extent of mine holds nothing and is unmapped.
struct GiveBack {
  std::uint64_t extent = 0;
};
/// Process -> agent: an adopted object is not where it was adopted; answered by NowAt.
struct WhereIs {
  std::uint64_t request = 0;
  Location location;
};
/// Agent -> process: where its bytes are for the moment; or why not.
struct NowAt {
  std::uint64_t request = 0;
  Location location;
  std::shared_ptr<const ErrorInfo> error;
};

/// Process -> agent, after the object's Promote; has_copies(object). Answered by Replicated.
struct Replicate {
  std::uint64_t request = 0;
  ObjectId object;
  std::uint32_t copies = 2;  ///< on so many nodes, this one among them
  std::uint64_t timeout_ns = 0;
};
/// Agent -> process: so many nodes have it; or why not.
struct Replicated {
  std::uint64_t request = 0;
  std::shared_ptr<const ErrorInfo> error;
};

/// Process -> agent: a name for an object, which was promoted; what has a name; or nothing is to
/// have it any more. Answered by NamedObject.
struct NameObject {
  enum class Verb : std::uint8_t { detach = 0, find = 1, forget = 2 };
  std::uint64_t request = 0;
  Verb verb = Verb::detach;
  std::string name;
  ObjectId object;                ///< detach
  std::uint64_t fingerprint = 0;  ///< detach: of the value's type
  std::string type;               ///< detach: for people
};
/// Agent -> process: it has the name, what has it, or had it.
struct NamedObject {
  std::uint64_t request = 0;
  bool found = false;
  ObjectId object;  ///< find: the receiver already holds one count of it
  std::uint64_t fingerprint = 0;
  std::string type;
  std::shared_ptr<const ErrorInfo> error;
};
/// Process -> agent: where are the bytes of these, which were promoted? Answered by Located.
struct Locate {
  std::uint64_t request = 0;
  std::vector<ObjectId> objects;  ///< at most kMaxRefs
};
enum class PlaceState : std::uint8_t { unknown = 0, pending = 1, small = 2, large = 3, failed = 4 };
struct ObjectPlace {
  std::uint32_t index = 0;  ///< among those of the Locate
  PlaceState state = PlaceState::unknown;
  std::uint64_t bytes = 0;
  bool spilled = false;       ///< it is on disk, and nowhere in memory
  std::vector<NodeId> nodes;  ///< that have the bytes; at most kMaxPlaces
};
/// Agent -> process.
struct Located {
  std::uint64_t request = 0;
  std::vector<ObjectPlace> places;  ///< at most kMaxRefs
  bool more = false;                ///< the answer goes on in another message
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
};
struct Nodes {
  std::uint64_t request = 0;
  std::vector<NodeRow> rows;
  bool more = false;  ///< the answer goes on in another message
};
/// Process -> agent: a question for control; its payload is an encoded control::ToControl that asks
/// and changes nothing but key-values and draining. Or one about the memory of a node, without
/// payload. Answered by Answer.
struct Inquire {
  enum class About : std::uint8_t { control = 0, memory = 1 };
  std::uint64_t request = 0;
  About about = About::control;
  NodeId node;  ///< memory: whose; zero: the agent's own
};
/// Agent -> process: a piece of the answer, an encoded control::FromControl or MemoryReport; or,
/// when whoever was asked cannot be reached, an error and nothing.
struct Answer {
  std::uint64_t request = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< of the whole answer
  std::shared_ptr<const ErrorInfo> error;
};
/// Agent -> process: end yourself now (the node goes down); why, for the log. Driver -> agent: the
/// job is finished.
struct Shutdown {
  std::string why;
};

using NodeMessage = std::variant<
    Hello, Welcome, Channel, PeerDied, RequestLease, LeaseGranted, LeaseRefused, LeaseReclaim,
    LeaseReturned, Blocked, Unblocked, Promote, Fulfil, Hold, Await, Ready, Free, CreateActor,
    StartActor, ActorCreated, WatchActor, ActorUpdate, KillActor, FindActor, FoundActor, NeedExtent,
    GiveExtent, ExtentMapped, ExtentSealed, NeedReader, GiveReader, Recycle, ListNodes, Nodes,
    Shutdown, StoreTables, StoreAttached, Adopt, Unpinned, Forget, Inquire, Answer, MemoryPressure,
    GiveBack, WhereIs, NowAt, Rebuild, Rebuilt, Lineage, KeptCall, MadeBy, ForgetCall, Pace,
    CallSite, Arrived, Replicate, Replicated, NameObject, NamedObject, Locate, Located>;

/// Every id that a kept call names: f(id, its position, whether it names a result of a kept call).
/// The position is that of an argument, or kMaxArguments + that of a ref among all inside them.
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

// --- bytes
// -----------------------------------------------------------------------------------------------------------

/// A decoded frame: the message and the payload beside it (points into the frame's bytes).
template <class Message>
struct Decoded {
  Message message;
  BlobView payload;
};

/// Writes messages into one reused buffer; the result is valid until the next call. Not for two
/// threads at once. Errors: none: a message of ours that would break a bound is a broken invariant,
/// except texts, which are cut, and causes of an error, which are left out. The size is a multiple
/// of 8 and may exceed what a ring or socket takes: compare before sending. Cost: no allocation up
/// to 32 KiB; about 120 ns for a call with two small arguments.
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

/// Checks everything (segment table, bounds, counts, enum values, payload ranges) before it is
/// used. Errors: invalid_argument with the field; an unknown message kind is `unavailable`
/// ("unsupported message N"). The frame must be private memory (a ring's consumer copies it there),
/// best aligned to 8: else the message is copied once more. Cost: about 130 ns for a call with two
/// small arguments; memory is at most 25 times the message.
Result<Decoded<CallMessage>> decode_call(BlobView frame);
Result<Decoded<NodeMessage>> decode_node(BlobView frame);

}  // namespace troupe::wire
