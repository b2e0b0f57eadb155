@0xb0634897f24b09d6;
# The conversation of the agents of two nodes.
#
# Frames are those of call.capnp, with conversation 2, and travel over a Link: exactly once and in order, from one life of
# an agent to one life of another; when either ends, everything between the two is over. Many frames share a message of
# the Link, one behind the other. A payload has at most 512 KiB.
#
# Processes are named by their index on their own node, nodes by their id, which names one life.
#
# Refs. The owner of an object's record is one agent for life. It counts the node that it sends a ref to, before the
# message; a receiver that held the object already gives the surplus back. Nothing is counted for a receiver that is the
# owner. Who passes on a ref of a third node tells nobody and counts the receiver in its own table; the receiver tells the
# owner from whom it has the ref, the owner counts it and says so, it relieves who passed it on. All by PeerHold.
#
# A member of the union that a reader does not know gives it the error `unavailable` ("unsupported message N") and ends
# the connection.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");
using import "value.capnp".Id;
using import "value.capnp".Value;
using import "value.capnp".ErrorEntry;
using import "value.capnp".ResourceDemand;
using import "node.capnp".CreateActor;

struct PeerMessage {
  union {
    # Leases.
    leaseRequest @0 :PeerLeaseRequest;
    leaseWithdraw @1 :PeerLeaseWithdraw;
    leaseGranted @2 :PeerLeaseGranted;
    leaseRefused @3 :PeerLeaseRefused;
    leaseReclaim @4 :PeerLeaseReclaim;
    leaseReturned @5 :PeerLeaseReturned;
    # Processes.
    connect @6 :PeerConnect;
    frame @7 :PeerFrame;
    processGone @8 :PeerProcessGone;
    # Objects.
    hold @9 :PeerHold;
    await @10 :PeerAwait;
    ready @11 :PeerReady;
    # Bytes of large objects.
    pullRequest @12 :PullRequest;
    pullData @13 :PullData;
    pullOnBulk @14 :PullOnBulk;
    pullRefused @15 :PullRefused;
    bulkOffer @16 :BulkOffer;
    # Programs.
    programRequest @17 :ProgramRequest;
    programData @18 :ProgramData;
    # More of processes.
    credit @19 :PeerCredit;
    # More of objects.
    rebuild @20 :PeerRebuild;
    # Observers.
    inquire @21 :PeerInquire;
    answer @22 :PeerAnswer;
    # More of bytes of large objects.
    pullElsewhere @23 :PullElsewhere;
    # Copies of an object at other nodes.
    keep @24 :PeerKeep;
    kept @25 :PeerKept;
    find @26 :PeerFind;
    held @27 :PeerHeld;
    unused @28 :PeerUnused;
    # Where the bytes of objects are.
    locate @29 :PeerLocate;
    located @30 :PeerLocated;
    # More of copies at other nodes.
    keeping @31 :PeerKeeping;
  }
}

struct OwnedRef {
  # A ref as it crosses between nodes: an object, and the node whose agent owns its record.
  objectHigh @0 :UInt64;
  objectLow @1 :UInt64;
  ownerHigh @2 :UInt64;
  ownerLow @3 :UInt64;
}

# --- leases ---

struct PeerLeaseRequest {
  # The asking agent -> another: `count` more workers, in addition to earlier requests.
  process @0 :UInt64;  # of the asker's: who wants them
  key @1 :UInt64;      # that process's name for the demand
  count @2 :UInt32;
  job @3 :Id;
  demand @4 :ResourceDemand;
}

struct PeerLeaseWithdraw {
  # The asking agent -> the other: what is not granted yet of this key is not wanted any more.
  process @0 :UInt64;
  key @1 :UInt64;
}

struct PeerLeaseGranted {
  # Answers PeerLeaseRequest, once per worker.
  process @0 :UInt64;    # who asked, on its node
  key @1 :UInt64;
  lease @2 :UInt64;
  worker @3 :UInt64;     # on the granting node
  gpus @4 :List(Int32);  # at most 64
}

struct PeerLeaseRefused {
  # Answers PeerLeaseRequest: not here, now or ever; ask elsewhere.
  process @0 :UInt64;
  key @1 :UInt64;
  count @2 :UInt32;
  why @3 :Text;
}

struct PeerLeaseReclaim {
  # The granting agent -> the asker: others wait; see LeaseReclaim of node.capnp.
  process @0 :UInt64;
  lease @1 :UInt64;
}

struct PeerLeaseReturned {
  # The asker -> the granting agent. A lease that is not there is ignored: it died meanwhile.
  process @0 :UInt64;
  lease @1 :UInt64;
}

# --- processes ---

struct PeerConnect {
  # My process wants to call this actor's worker of yours. Answered only if that is not there, by PeerProcessGone.
  process @0 :UInt64;
  worker @1 :UInt64;
  actor @2 :Id;
  incarnation @3 :UInt64;
}

struct PeerFrame {
  # A frame of call.capnp with its payload, which is this message's payload: the receiver puts it into the ring of `to`.
  from @0 :UInt64;            # on the sender's node
  to @1 :UInt64;              # on the receiver's
  refs @2 :List(OwnedRef);    # every ref inside: for each value its refs, then its forward; at most 4096
}

struct PeerProcessGone {
  # My process is dead, for your process `peer`.
  process @0 :UInt64;
  peer @1 :UInt64;     # 0: for all of yours
  started @2 :UInt64;  # the highest call of `peer` that it began
  reason @3 :Text;
}

struct PeerCredit {
  # Of the frames that your process `to` sent to my process `from`, so many have entered its ring. Grows; a lower one is
  # ignored. At most 2048 more than that are under way.
  from @0 :UInt64;
  to @1 :UInt64;
  consumed @2 :UInt64;
}

# --- objects ---

struct PeerHold {
  # holder is the sender: to the owner, the sender holds `delta` more. holder is another node and delta 1: to the owner,
  # count the sender, which has the ref from `holder`, and say so. holder is another node and delta -1: from the owner, it
  # has counted the receiver for what that has from `holder`. holder is the owner and delta -1: it counts the sender, or
  # is lost to it, so the receiver, which passed the ref on, lets go of the count that it kept.
  object @0 :Id;
  holder @1 :Id;  # a node
  delta @2 :Int32;
}

struct PeerAwait {
  # To the owner, answered by PeerReady once there is a value.
  object @0 :Id;
}

struct PeerReady {
  # The owner -> who awaits.
  object @0 :Id;
  value @1 :Value;          # never pending nor shared
  refs @2 :List(OwnedRef);  # as in PeerFrame; of a remote one those of the object's bytes; at most 16384
}

struct PeerRebuild {
  # To the owner: the bytes of `object` are gone; answered by PeerReady with another value, or an error.
  object @0 :Id;
  lost @1 :Id;  # where its value led to: the object that it was forwarded to, or itself
}

# --- copies ---
#
# An object that has them has bit 63 of the low half of its id set; its copies are objects of their own, whose id has bit
# 62 as well. Their keeper awaits and pulls them from the owner under that id.

struct PeerKeep {
  # The owner -> a node: keep a copy of this object, answered by PeerKept; or keep it no longer. Who keeps a copy when the
  # owner is lost asks so for another, which is awaited and pulled from the asker then.
  object @0 :Id;
  keep @1 :Bool;
  copies @2 :UInt32 = 2;  # on so many nodes there are to be bytes, the owner's counted while it lives
  orphan @3 :Bool;        # the owner is lost
}

struct PeerKept {
  # Answers PeerKeep: the copy is whole; or why there is none.
  object @0 :Id;
  error @1 :List(ErrorEntry);
}

struct PeerFind {
  # Who misses an object of a dead owner -> any node: have you a copy? Answered by PeerReady for the object; its bytes are
  # pulled under the copy's id. An error: it has none.
  object @0 :Id;
}

struct PeerHeld {
  # Who keeps copies of a dead owner's objects -> every node: which of these does nobody at yours hold? Answered by
  # PeerUnused with the same round. The next question replaces this one.
  round @0 :UInt64;
  objects @1 :List(Id);  # at most 1024
  members @2 :UInt64;    # the live nodes as the asker knows them: who knows others names no object
}

struct PeerUnused {
  # Those that nobody here has held at any time since the question before, which named them, too.
  round @0 :UInt64;
  objects @1 :List(Id);  # at most 1024
}

struct PeerKeeping {
  # Who keeps copies of these objects, whose owners are lost -> every node; and back from another that keeps them, once.
  objects @0 :List(Id);  # at most 1024
}

# --- where bytes are ---

struct PeerLocate {
  # Which of these do you have? Answered by PeerLocated with the same request.
  request @0 :UInt64;
  objects @1 :List(Id);  # at most 1024
}

struct PeerPlace {
  # An object that is known here.
  index @0 :UInt32;      # among those of the PeerLocate
  state @1 :UInt8;       # as in ObjectPlace of node.capnp
  sizeBytes @2 :UInt64;
  here @3 :Bool;         # this node has the bytes
  spilled @4 :Bool;      # on disk
  forward @5 :Id;        # not zero: it is the value of this one, of which the others are to be asked
}

struct PeerLocated {
  request @0 :UInt64;
  places @1 :List(PeerPlace);  # at most 1024
}

# --- observers ---

struct PeerInquire {
  # What is your memory used for? An observer of the sender's asks. Answered by PeerAnswer.
  request @0 :UInt64;
}

struct PeerAnswer {
  # A piece of a MemoryReport of memory.capnp, the payload; in order, as fast as the asker takes them. Or an error.
  request @0 :UInt64;
  offsetBytes @1 :UInt64;
  wholeBytes @2 :UInt64;
  error @3 :List(ErrorEntry);
}

# --- bytes of large objects ---

struct PullRequest {
  # To the owner's node, or to one that PullElsewhere named; answered by PullData, PullOnBulk or PullRefused, by the owner
  # also by PullElsewhere.
  transfer @0 :UInt64;     # the asker's number
  object @1 :Id;
  offsetBytes @2 :UInt64;  # so many of them are there already, of those that `stamp` names; whoever has others starts at 0
  stamp @3 :UInt64;        # of one life of the object's bytes, as it stands in each frame of bulk; 0: none are there
  without @4 :Id;          # the node that was named last and did not deliver
  direct @5 :Bool;         # no other node may be named
}

struct PullElsewhere {
  # Ask that node, which has the bytes or is getting them; if it does not deliver, ask here again.
  transfer @0 :UInt64;
  node @1 :Id;
}

struct PullData {
  # The bytes from `offsetBytes` on are the payload.
  transfer @0 :UInt64;
  offsetBytes @1 :UInt64;
  totalBytes @2 :UInt64;  # of the object; offset and payload lie within
}

struct PullOnBulk {
  # The bytes follow on the bulk connection, under the object's id.
  transfer @0 :UInt64;
  totalBytes @1 :UInt64;
}

struct PullRefused {
  transfer @0 :UInt64;
  error @1 :List(ErrorEntry);  # at least one
}

struct BulkOffer {
  # Connect here and prove the key: large objects that I pull from you come there.
  connection @0 :Id;
  host @1 :Text;
  port @2 :UInt16;
  key @3 :Data;  # 32 bytes, used once
}

# --- programs ---

struct ProgramRequest {
  # To the node of a job's driver, answered by ProgramData with the same job, file and offset.
  job @0 :Id;
  file @1 :UInt32;  # 0: the executable, then its shared objects
  offsetBytes @2 :UInt64;
}

struct ProgramData {
  # The bytes from `offsetBytes` on are the payload.
  job @0 :Id;
  file @1 :UInt32;
  offsetBytes @2 :UInt64;
  totalBytes @3 :UInt64;  # of the file; offset and payload lie within
  error @4 :List(ErrorEntry);  # not empty: it cannot be read
}

# --- kept ---

struct Creation {
  # An actor's creation as control keeps it, for any node: a frame by itself, with conversation 6. Its payload are the
  # inline arguments.
  create @0 :CreateActor;
  refs @1 :List(OwnedRef);  # of the arguments, as in PeerFrame; at most 4096
}
