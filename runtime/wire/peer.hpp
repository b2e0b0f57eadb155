/// The messages between the agents of two nodes, as plain structs. schema/peer.capnp specifies who
/// sends each message, when, and in what order. Framing is that of call.capnp, conversation 2.
///
/// They travel over a Link (exactly once, in order). A process is named by its index on its own
/// node. A *proxy process* is the agent's stand-in for a process of another node. An agent carries
/// a frame between two processes of different nodes whole, as it is in the rings, together with the
/// owners of the refs inside.
///
///     PeerWriter writer;
///     outbox.append(writer.encode(PeerHold{object, holder, -1}));
///     Result<Decoded<PeerMessage>> m = decode_peer(frame);
#pragma once

#include "troupe/runtime/wire/messages.hpp"

namespace troupe::wire {

inline constexpr std::size_t kMaxPeerPayload = 512 * 1024;  ///< bytes beside a peer message
inline constexpr std::uint64_t kCarryWindow = 2048;   ///< frames under way between two processes
inline constexpr std::size_t kMaxCarriedRefs = 4096;  ///< refs of one carried frame
inline constexpr std::size_t kMaxObjectRefs = 16384;  ///< refs of one PeerReady
inline constexpr std::size_t kMaxHeld = 1024;         ///< objects of one PeerHeld

/// Two bits of an id's low half. An object that was put with replicas has kHasCopies set in its id.
/// Each replica is an object of the node that keeps it; its id is the original's with kIsCopy set
/// too.
inline constexpr std::uint64_t kHasCopies = std::uint64_t{1} << 63,
                               kIsCopy = std::uint64_t{1} << 62;
constexpr bool is_copy(ObjectId id) {
  return (id.low & kIsCopy) != 0;
}
constexpr bool has_copies(ObjectId id) {
  return (id.low & kHasCopies) != 0 && !is_copy(id);
}
constexpr ObjectId copy_of(ObjectId id) {
  return {id.high, id.low | kIsCopy};
}
constexpr ObjectId original_of(ObjectId id) {
  return {id.high, id.low & ~kIsCopy};
}

/// A ref in a message between nodes: the object, and the node whose agent owns its record.
struct OwnedRef {
  ObjectId object;
  NodeId owner;
  friend bool operator==(const OwnedRef&, const OwnedRef&) = default;
};

// --- leases: the asking agent -> the asked one, and back

/// Asks for `count` more workers for a process of the sender, in addition to earlier requests.
struct PeerLeaseRequest {
  ProcessIndex process;
  LeaseKey key;
  std::uint32_t count = 0;
  JobId job;
  ResourceDemand demand;
  bool no_faster = false;  ///< the sender knows no faster node that takes it
};
/// Withdraws all requests of this key that are not granted yet.
struct PeerLeaseWithdraw {
  ProcessIndex process;
  LeaseKey key;
};
struct PeerLeaseGranted {
  ProcessIndex process;  ///< the asking process, on its node
  LeaseKey key;
  LeaseId lease;
  ProcessIndex worker;  ///< on the granting node
  std::vector<std::int32_t> gpus;
};
/// The sender does not grant `count` of the workers, because it drains or has less than the asker
/// assumed. The asker asks another node.
struct PeerLeaseRefused {
  ProcessIndex process;
  LeaseKey key;
  std::uint32_t count = 0;
  std::string why;
  bool for_ever = false;  ///< the sender never starts a worker of the request's job
};
struct PeerLeaseReclaim {
  ProcessIndex process;
  LeaseId lease;
};
struct PeerLeaseReturned {
  ProcessIndex process;
  LeaseId lease;
};

// --- processes

/// A process of the sender wants to call this actor, which runs in this worker of the receiver. The
/// receiver answers PeerProcessGone if the worker is not there any more, and nothing otherwise.
struct PeerConnect {
  ProcessIndex process;
  ProcessIndex worker;
  ActorId actor;
  std::uint64_t incarnation = 0;
};
/// Carries a frame of a ring (a CallMessage with its payload) as this message's payload. `refs`:
/// every ref inside, in the order of the frame (refs of a value, then its forward). For each ref
/// that a third node owns, the sender keeps a count for the receiving node; see PeerHold.
struct PeerFrame {
  ProcessIndex from;  ///< on the sender's node
  ProcessIndex to;    ///< on the receiver's
  std::vector<OwnedRef> refs;
};
/// A process of the sender is dead. The receiver tells its process `peer` (0: all its processes).
struct PeerProcessGone {
  ProcessIndex process;
  ProcessIndex peer;
  std::uint64_t started = 0;  ///< the highest call of `peer` that the process began
  std::string reason;
  std::string stack{}, last_lines{};  ///< as in PeerDied
};

/// Flow control of carried frames: of the frames that the receiver's process `to` sent to the
/// sender's process `from`, `consumed` have entered the ring of `from`. At most kCarryWindow frames
/// beyond that number are under way.
struct PeerCredit {
  ProcessIndex from;
  ProcessIndex to;
  std::uint64_t consumed = 0;
};

// --- objects

/// The counts of nodes when a ref travels. An owner counts the node that it sends a ref to, without
/// a message. For a ref that returns to its owner nothing is counted. A node that passes on a ref
/// of a third node tells no other node, and keeps its own count for the receiver until the owner
/// has counted the receiver. The meaning of the message follows from `holder` and `delta`:
///   holder = the sender      to the owner: the sender holds `delta` more (-1: no longer, or one
///                            count too many)
///   holder = a third, +1     to the owner: the sender has the ref from `holder`; count the sender,
///                            and confirm it
///   holder = a third, -1     from the owner: it has counted the receiver for the ref from `holder`
///   holder = the owner, -1   to the node that passed the ref on: the owner counts the sender, or
///                            the sender cannot reach it; drop the count kept for the sender
struct PeerHold {
  ObjectId object;
  NodeId holder;
  std::int32_t delta = 0;
};
/// To the owner: asks for the value, answered by one PeerReady as soon as there is one.
struct PeerAwait {
  ObjectId object;
};
/// The owner's answer: a value that is inline (payload), an error, forwarded, or remote (the asker
/// pulls the bytes when it wants them). `refs`: the refs inside with their owners, as in PeerFrame;
/// for a remote value those in the object's bytes.
struct PeerReady {
  ObjectId object;
  Value value;
  std::vector<OwnedRef> refs;
};

/// To the owner: the bytes of the object are gone; answered by PeerReady with another value, or an
/// error.
struct PeerRebuild {
  ObjectId object;
  ObjectId lost;  ///< whose bytes are gone: the one `object` was forwarded to, or `object` itself
};

// --- bytes of large objects

/// To the owner, or to a node that PullElsewhere named: send the bytes. A small object comes in
/// PullData, a larger one over the bulk connection that BulkOffer opened before.
struct PullRequest {
  std::uint64_t transfer = 0;  ///< the asker's number
  ObjectId object;
  std::uint64_t offset = 0;  ///< how many bytes of that stamp the asker has
  std::uint64_t stamp = 0;   ///< names one version of the object's bytes; 0: the asker has none
  NodeId without{};          ///< the last PullElsewhere named it, and it did not deliver
  bool direct = false;       ///< the owner may not answer PullElsewhere
};
/// The owner's answer to PullRequest: pull from `node`, which has the bytes or is receiving them.
/// If it does not deliver, the asker asks the owner again.
struct PullElsewhere {
  std::uint64_t transfer = 0;
  NodeId node;
};
/// Answers PullRequest. The payload is the object's bytes from `offset` on; the object has `bytes`.
struct PullData {
  std::uint64_t transfer = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
/// Answers PullRequest: the bytes follow on the bulk connection, under the object's id.
struct PullOnBulk {
  std::uint64_t transfer = 0;
  std::uint64_t bytes = 0;
};
/// Answers PullRequest: the sender cannot send the bytes.
struct PullRefused {
  std::uint64_t transfer = 0;
  std::shared_ptr<const ErrorInfo> error;
};
/// The sender listens at this address. The receiver connects and proves the key; the large objects
/// that the sender pulls from it then travel over that connection.
struct BulkOffer {
  std::uint64_t connection_high = 0, connection_low = 0;  ///< net::BulkId
  std::string host;
  std::uint16_t port = 0;
  std::string key;  ///< 32 bytes; travels encrypted by CURVE, used once
};

// --- copies of an object at other nodes (see has_copies())

/// The owner -> a node: keep a copy of this object, answered by PeerKept; or keep it no longer.
struct PeerKeep {
  ObjectId object;
  bool keep = true;
  std::uint32_t copies = 2;  ///< number of nodes that are to have the bytes
  bool orphan = false;       ///< the owner is lost; the sender keeps a copy, and sends its bytes
};
/// Answers PeerKeep: the copy is complete; or an error says why there is none.
struct PeerKept {
  ObjectId object;
  std::shared_ptr<const ErrorInfo> error;
};
/// To any node: asks for a copy of this object, whose owner is dead. Answered by PeerReady, with an
/// error if there is none. The asker pulls the copy's bytes as copy_of(object).
struct PeerFind {
  ObjectId object;
};
/// From a node that keeps copies to every node: asks which of these objects have no holder at the
/// receiver. Answered by PeerUnused. The next PeerHeld replaces this one.
struct PeerHeld {
  std::uint64_t round = 0;
  std::vector<ObjectId> objects;  ///< at most kMaxHeld
  /// A digest of the live nodes that the asker knows. A receiver that knows others names no object.
  std::uint64_t members = 0;
};
/// Answers PeerHeld: the objects that had no holder at the sender at any time since the PeerHeld
/// before. The earlier PeerHeld named them, too.
struct PeerUnused {
  std::uint64_t round = 0;
  std::vector<ObjectId> objects;
};

/// To every node: the sender keeps copies of these objects, whose owners are lost. Another node
/// that keeps copies of them answers once with the same message.
struct PeerKeeping {
  std::vector<ObjectId> objects;  ///< at most kMaxHeld
};

/// Asks which of these objects the receiver knows. Answered by PeerLocated.
struct PeerLocate {
  std::uint64_t request = 0;
  std::vector<ObjectId> objects;  ///< at most kMaxHeld
};
/// An object that the sender of PeerLocated knows.
struct PeerPlace {
  std::uint32_t index = 0;  ///< among the objects of the PeerLocate
  PlaceState state = PlaceState::unknown;
  std::uint64_t bytes = 0;
  bool here = false;     ///< the sender's node has the bytes
  bool spilled = false;  ///< the bytes are on disk
  ObjectId forward;      ///< not zero: the value is that of this object; ask other nodes about it
};
/// Answers PeerLocate.
struct PeerLocated {
  std::uint64_t request = 0;
  std::vector<PeerPlace> places;
};

// --- programs (a job's executable and its shared objects), by content

/// To the node of a job's driver: asks for a piece of a file. Answered by ProgramData.
struct ProgramRequest {
  JobId job;
  std::uint32_t file = 0;  ///< 0: the executable, then its shared objects
  std::uint64_t offset = 0;
};
/// Answers ProgramRequest. The payload is the file's bytes from `offset` on.
struct ProgramData {
  JobId job;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;                 ///< of the whole file
  std::shared_ptr<const ErrorInfo> error;  ///< set: the file cannot be read
};

/// Asks for the receiver's MemoryReport, for a piece of a job's log there, for rows of its node, or to
/// stop a job. Answered by PeerAnswer.
struct PeerInquire {
  std::uint64_t request = 0;
  bool about_logs = false;
  LogQuestion logs{};
  std::optional<ListQuestion> rows{};
  bool about_stacks = false;
  StackQuestion stacks{};
  std::optional<StopQuestion> stop{};
};
/// Answers PeerInquire. The payload is a piece of a MemoryReport, LogBatch or observe::Answer. With an
/// error there is none.
struct PeerAnswer {
  std::uint64_t request = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< of the whole answer
  std::shared_ptr<const ErrorInfo> error;
};

using PeerMessage =
    std::variant<PeerLeaseRequest, PeerLeaseWithdraw, PeerLeaseGranted, PeerLeaseRefused,
                 PeerLeaseReclaim, PeerLeaseReturned, PeerConnect, PeerFrame, PeerProcessGone,
                 PeerHold, PeerAwait, PeerReady, PullRequest, PullData, PullOnBulk, PullRefused,
                 BulkOffer, ProgramRequest, ProgramData, PeerCredit, PeerRebuild, PeerInquire,
                 PeerAnswer, PullElsewhere, PeerKeep, PeerKept, PeerFind, PeerHeld, PeerUnused,
                 PeerLocate, PeerLocated, PeerKeeping>;

/// Writes messages between agents, as FrameWriter does, with head and payload in one piece.
class PeerWriter {
 public:
  PeerWriter();
  ~PeerWriter();
  PeerWriter(const PeerWriter&) = delete;
  PeerWriter& operator=(const PeerWriter&) = delete;
  /// The whole frame; valid until the next call. Precondition: payload within kMaxPeerPayload.
  BlobView encode(const PeerMessage& message, BlobView payload = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Decodes and checks a frame, as decode_node() does. The payload may have kMaxPeerPayload bytes.
/// It also checks that no value is pending or shared, and that the payload of PullData and
/// ProgramData lies within the object or file.
Result<Decoded<PeerMessage>> decode_peer(BlobView frame);

/// An actor's creation as control keeps it: the CreateActor, with its inline arguments as payload,
/// and the owners of the refs inside.
struct Creation {
  CreateActor create;
  std::vector<OwnedRef> refs;
};
/// Encodes a creation as a frame of its own (conversation 6), which later builds can read.
/// Precondition: payload within kMaxPeerPayload. A decoded payload points into `bytes`.
Blob encode_creation(const Creation& creation, BlobView payload);
Result<Decoded<Creation>> decode_creation(BlobView bytes);

/// Calls `f` for every ref of a frame, in order: for each value its refs, then its forward.
/// Allocates nothing.
template <class F>
void for_each_ref(const Value& value, F&& f) {
  for (const ObjectId& id : value.refs) f(id);
  if (value.kind == Value::Kind::forwarded) f(value.forward);
}
template <class F>
void for_each_ref(const CallMessage& message, F&& f) {
  if (const auto* call = std::get_if<Call>(&message))
    for (const Value& argument : call->arguments) for_each_ref(argument, f);
  if (const auto* reply = std::get_if<Reply>(&message)) for_each_ref(reply->value, f);
}

}  // namespace troupe::wire
