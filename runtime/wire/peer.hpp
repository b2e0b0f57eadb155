/// Messages between the agents of two nodes, as plain structs; call.capnp's framing,
/// conversation 2.
///
/// They travel over a Link (exactly once, in order). Processes are named by their index on their
/// own node; a *proxy* is the agent's stand-in for a process of another node. Frames between two
/// processes of different nodes are carried whole, as the rings have them, with the owners of the
/// refs inside beside them.
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

/// Which of an object's two names is meant is said by its id: one that was put with copies at other
/// nodes says so wherever it goes, and each copy is an object of its keeper's.
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

/// A ref as it crosses between nodes: the object, and the node whose agent owns its record.
struct OwnedRef {
  ObjectId object;
  NodeId owner;
  friend bool operator==(const OwnedRef&, const OwnedRef&) = default;
};

// --- leases: the asking agent -> the asked one, and back

/// `count` more workers for this process of mine, please (in addition to earlier requests).
struct PeerLeaseRequest {
  std::uint64_t process = 0;
  std::uint64_t key = 0;
  std::uint32_t count = 0;
  JobId job;
  ResourceDemand demand;
};
/// What is not granted yet of this key is not wanted any more.
struct PeerLeaseWithdraw {
  std::uint64_t process = 0;
  std::uint64_t key = 0;
};
struct PeerLeaseGranted {
  std::uint64_t process = 0;  ///< who asked, on its node
  std::uint64_t key = 0;
  std::uint64_t lease = 0;
  std::uint64_t worker = 0;  ///< on the granting node
  std::vector<std::int32_t> gpus;
};
/// Not here, now or ever (draining, or less than the asker believed): ask elsewhere.
struct PeerLeaseRefused {
  std::uint64_t process = 0;
  std::uint64_t key = 0;
  std::uint32_t count = 0;
  std::string why;
};
struct PeerLeaseReclaim {
  std::uint64_t process = 0;
  std::uint64_t lease = 0;
};
struct PeerLeaseReturned {
  std::uint64_t process = 0;
  std::uint64_t lease = 0;
};

// --- processes

/// My process wants to call this actor's worker of yours. Answered only if that is not there any
/// more, by PeerProcessGone.
struct PeerConnect {
  std::uint64_t process = 0;
  std::uint64_t worker = 0;
  ActorId actor;
  std::uint64_t incarnation = 0;
};
/// A frame of a ring (a CallMessage with its payload), which is this message's payload. `refs`:
/// every ref inside, in the order of the frame (refs of a value, then its forward). The sender
/// keeps a count for the receiving node of each that a third one owns, see PeerHold.
struct PeerFrame {
  std::uint64_t from = 0;  ///< on the sender's node
  std::uint64_t to = 0;    ///< on the receiver's
  std::vector<OwnedRef> refs;
};
/// My process is dead, for your process `peer` (0: for all of yours).
struct PeerProcessGone {
  std::uint64_t process = 0;
  std::uint64_t peer = 0;
  std::uint64_t started = 0;  ///< the highest call of `peer` that it began
  std::string reason;
};

/// Flow control of carried frames: of those that your process `to` sent to my process `from`, so
/// many have entered its ring. A sender keeps at most kCarryWindow beyond it under way.
struct PeerCredit {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t consumed = 0;
};

// --- objects

/// Who counts for whom when a ref crosses. An owner counts the node that it sends a ref to, by
/// itself; for a ref that comes home nobody counts. A node that passes on a ref of a third tells
/// nobody, and keeps its own count for the receiver until the owner has that one. So there are
///   holder = the sender      to the owner: I hold `delta` more (-1: no longer, or one too many)
///   holder = a third, +1     to the owner: I have it from `holder`; count me, and say so
///   holder = a third, -1     from the owner: I have counted you for what you have from `holder`
///   holder = the owner, -1   to that third: it counts me, or is lost to me; let go of your count
struct PeerHold {
  ObjectId object;
  NodeId holder;
  std::int32_t delta = 0;
};
/// To the owner: tell me the value when it is ready (once).
struct PeerAwait {
  ObjectId object;
};
/// The owner's answer: inline (payload), an error, forwarded, or remote (the bytes are pulled when
/// wanted). `refs`: the refs inside with their owners, as in PeerFrame; for a remote one those of
/// the object's bytes.
struct PeerReady {
  ObjectId object;
  Value value;
  std::vector<OwnedRef> refs;
};

/// To the owner: the bytes of the object are gone; answered by PeerReady with another value, or an
/// error.
struct PeerRebuild {
  ObjectId object;
  ObjectId lost;  ///< where its value led to: the object that it was forwarded to, or itself
};

// --- bytes of large objects

/// To the owner: send me the bytes. Small ones come in a PullData, larger ones over the bulk
/// connection that BulkOffer opened before.
struct PullRequest {
  std::uint64_t transfer = 0;  ///< the asker's number
  ObjectId object;
  std::uint64_t offset = 0;  ///< bytes that are there already, of those that `stamp` names
  std::uint64_t stamp = 0;   ///< of one life of the object's bytes
  NodeId without{};          ///< was named by PullElsewhere and did not deliver
  bool direct = false;       ///< no other node may be named
};
/// The owner's answer to that: this node has the bytes, or is getting them. If it does not deliver,
/// the owner is asked again.
struct PullElsewhere {
  std::uint64_t transfer = 0;
  NodeId node;
};
/// The object's bytes [offset, offset + payload) of `bytes`.
struct PullData {
  std::uint64_t transfer = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
/// The bytes follow on the bulk connection under the object's id.
struct PullOnBulk {
  std::uint64_t transfer = 0;
  std::uint64_t bytes = 0;
};
struct PullRefused {
  std::uint64_t transfer = 0;
  std::shared_ptr<const ErrorInfo> error;
};
/// Connect here and prove this key: from then on large objects that I pull from you come there.
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
  std::uint32_t copies = 2;  ///< so many nodes are to have the bytes
  bool orphan = false;       ///< the owner is lost: from one that keeps a copy and sends it
};
/// The copy is whole; or why there is none.
struct PeerKept {
  ObjectId object;
  std::shared_ptr<const ErrorInfo> error;
};
/// To any node: have you a copy of this object, whose owner is dead? Answered by PeerReady, which
/// is an error if not; a copy's bytes are pulled as copy_of(object).
struct PeerFind {
  ObjectId object;
};
/// From the keeper of copies to every node: which of these objects does nobody at yours hold? The
/// next question replaces this one.
struct PeerHeld {
  std::uint64_t round = 0;
  std::vector<ObjectId> objects;  ///< at most kMaxHeld
  std::uint64_t members = 0;      ///< a digest of the live nodes: who knows others names no object
};
/// Those that nobody here has held at any time since the question before, which named them, too.
struct PeerUnused {
  std::uint64_t round = 0;
  std::vector<ObjectId> objects;
};

/// I keep copies of these, whose owners are lost; to every node, and back from others that do.
struct PeerKeeping {
  std::vector<ObjectId> objects;  ///< at most kMaxHeld
};

/// Which of these do you have? Answered by PeerLocated.
struct PeerLocate {
  std::uint64_t request = 0;
  std::vector<ObjectId> objects;  ///< at most kMaxHeld
};
/// An object that is known at the node that says so.
struct PeerPlace {
  std::uint32_t index = 0;  ///< among those of the PeerLocate
  PlaceState state = PlaceState::unknown;
  std::uint64_t bytes = 0;
  bool here = false;     ///< the node has the bytes
  bool spilled = false;  ///< on disk
  ObjectId forward;      ///< not zero: it is the value of this one, which others may have
};
struct PeerLocated {
  std::uint64_t request = 0;
  std::vector<PeerPlace> places;
};

// --- programs (a job's executable and its shared objects), by content

struct ProgramRequest {
  JobId job;
  std::uint32_t file = 0;  ///< 0: the executable, then its shared objects
  std::uint64_t offset = 0;
};
/// Payload: the file's bytes at the offset.
struct ProgramData {
  JobId job;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;                 ///< of the whole file
  std::shared_ptr<const ErrorInfo> error;  ///< set: it cannot be read
};

/// What is your memory used for? Answered by PeerAnswer.
struct PeerInquire {
  std::uint64_t request = 0;
};
/// A piece of a MemoryReport, the payload; or an error.
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

/// As FrameWriter, for messages between agents: head and payload in one piece.
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

/// As decode_node(); the payload may have kMaxPeerPayload bytes. Values that cross are never
/// pending and never shared; the payload of PullData and ProgramData lies within what it is a part
/// of.
Result<Decoded<PeerMessage>> decode_peer(BlobView frame);

/// The inside of an actor's creation as control keeps it: the CreateActor with its inline
/// arguments as payload, and the owners of the refs inside.
struct Creation {
  CreateActor create;
  std::vector<OwnedRef> refs;
};
/// Its own frame (conversation 6), which outlives builds. Precondition: payload within
/// kMaxPeerPayload. The payload that is read points into `bytes`.
Blob encode_creation(const Creation& creation, BlobView payload);
Result<Decoded<Creation>> decode_creation(BlobView bytes);

/// Every ref of a frame, in order: for each value its refs, then its forward. A visitor so that
/// nothing is allocated.
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
