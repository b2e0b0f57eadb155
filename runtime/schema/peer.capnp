@0xb0634897f24b09d6;
# The conversation of the agents of two nodes.
#
# Frames are those of call.capnp, with conversation 2. They travel over a Link (runtime/net/link.hpp): exactly once and in
# order, from one run of an agent to one run of another. When either agent ends, the conversation is over. One message of
# the Link holds many frames, one after the other. A payload has at most 512 KiB.
#
# A process is named by its index on its own node. A node is named by its id, which names one run of its agent.
#
# Refs. One agent owns an object's record for the object's whole life. The rules for counts are:
# - An owner that sends a ref counts the receiving node before it sends the message. A receiver that held the object
#   already gives the surplus count back by PeerHold.
# - For a ref sent to its owner nothing is counted.
# - A node that passes on a ref of a third node tells no other node. It counts the receiver in its own table. The receiver
#   tells the owner from which node it has the ref. The owner counts the receiver and confirms that. The receiver then
#   tells the node that passed the ref on, which drops its count. All three messages are PeerHold.
#
# A reader that does not know a member of the union gets the error `unavailable` ("unsupported message N") and ends the
# connection.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");
using import "value.capnp".Id;
using import "value.capnp".Value;
using import "value.capnp".ErrorEntry;
using import "value.capnp".ResourceDemand;
using import "node.capnp".CreateActor;
using import "node.capnp".ListQuestion;

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
  # A ref in a message between nodes: an object, and the node whose agent owns its record.
  objectHigh @0 :UInt64;
  objectLow @1 :UInt64;
  ownerHigh @2 :UInt64;
  ownerLow @3 :UInt64;
}

# --- leases ---

struct PeerLeaseRequest {
  # The asking agent -> another: asks for `count` more workers, in addition to earlier requests. Each worker is answered
  # by PeerLeaseGranted or counted in a PeerLeaseRefused.
  process @0 :UInt64;  # the process of the asker's node that wants the workers
  key @1 :UInt64;      # that process's name for the demand
  count @2 :UInt32;
  job @3 :Id;
  demand @4 :ResourceDemand;
  noFaster @5 :Bool;  # the asker knows no faster node that takes it: a slow node waits for none
}

struct PeerLeaseWithdraw {
  # The asking agent -> the asked one: withdraws all requests of this key that are not granted yet.
  process @0 :UInt64;
  key @1 :UInt64;
}

struct PeerLeaseGranted {
  # Answers PeerLeaseRequest, once per worker.
  process @0 :UInt64;    # the asking process, on its node
  key @1 :UInt64;
  lease @2 :UInt64;
  worker @3 :UInt64;     # on the granting node
  gpus @4 :List(Int32);  # at most 64
}

struct PeerLeaseRefused {
  # Answers PeerLeaseRequest: this node does not grant `count` of the workers. Ask another node.
  process @0 :UInt64;
  key @1 :UInt64;
  count @2 :UInt32;
  why @3 :Text;
  forEver @4 :Bool;  # this node never starts a worker of the request's job; `why` is a sentence for the user
}

struct PeerLeaseReclaim {
  # The granting agent -> the asker: other processes wait for resources; see LeaseReclaim of node.capnp.
  process @0 :UInt64;
  lease @1 :UInt64;
}

struct PeerLeaseReturned {
  # The asker -> the granting agent, which ignores a lease that it does not have: it ended with its worker meanwhile.
  process @0 :UInt64;
  lease @1 :UInt64;
}

# --- processes ---

struct PeerConnect {
  # The sender's process wants to call this actor, which runs in this worker of the receiver. The receiver answers
  # PeerProcessGone if the worker is not there, and nothing otherwise.
  process @0 :UInt64;
  worker @1 :UInt64;
  actor @2 :Id;
  incarnation @3 :UInt64;
}

struct PeerFrame {
  # Carries a frame of call.capnp with its payload, as this message's payload. The receiver puts it into the ring of `to`.
  from @0 :UInt64;            # on the sender's node
  to @1 :UInt64;              # on the receiver's
  refs @2 :List(OwnedRef);    # every ref inside: for each value its refs, then its forward; at most 4096
}

struct PeerProcessGone {
  # The sender's process is dead. The receiver passes that on to its process `peer` as PeerDied.
  process @0 :UInt64;
  peer @1 :UInt64;     # 0: to all processes of the receiver's node
  started @2 :UInt64;  # the highest call of `peer` that the process began
  reason @3 :Text;
  stack @4 :Text;      # as in PeerDied
  lastLines @5 :Text;
}

struct PeerCredit {
  # Flow control of carried frames: of the frames that the receiver's process `to` sent to the sender's process `from`,
  # `consumed` have entered the ring of `from`. The number only grows; a lower one is ignored. At most 2048 frames beyond
  # it are under way.
  from @0 :UInt64;
  to @1 :UInt64;
  consumed @2 :UInt64;
}

# --- objects ---

struct PeerHold {
  # Counts of nodes. Its meaning follows from `holder` and `delta`:
  #   holder = the sender     to the owner: the sender holds `delta` more
  #   holder = a third, 1     to the owner: the sender has the ref from `holder`; count the sender, and confirm it
  #   holder = a third, -1    from the owner: it has counted the receiver, which has the ref from `holder`
  #   holder = the owner, -1  to the node that passed the ref on: the owner counts the sender, or the sender cannot reach
  #                           the owner; drop the count that you kept for the sender
  object @0 :Id;
  holder @1 :Id;  # a node
  delta @2 :Int32;
}

struct PeerAwait {
  # To the owner: asks for the value, answered by one PeerReady as soon as there is a value.
  object @0 :Id;
}

struct PeerReady {
  # Answers PeerAwait, PeerRebuild and PeerFind.
  object @0 :Id;
  value @1 :Value;          # neither pending nor shared
  refs @2 :List(OwnedRef);  # the refs inside, as in PeerFrame; remoteBytes: those in the object's bytes; at most 16384
}

struct PeerRebuild {
  # To the owner: the bytes of `object` are gone. The owner answers PeerReady with another value, or an error.
  object @0 :Id;
  lost @1 :Id;  # the object whose bytes are gone: the one that `object` was forwarded to, or `object` itself
}

# --- copies ---
#
# Replicas: copies of an object that outlive its owner. An object with copies has bit 63 of the low half of its id set.
# Each copy is an object of its own; its id is the original's with bit 62 set too. The node that keeps a copy awaits and
# pulls it from the owner under the copy's id.

struct PeerKeep {
  # The owner -> a node: keep a copy of this object, answered by PeerKept; or keep it no longer. When the owner is lost, a
  # node that keeps a copy sends this message to ask for a further copy. The receiver then awaits and pulls it from the
  # sender.
  object @0 :Id;
  keep @1 :Bool;
  copies @2 :UInt32 = 2;  # number of nodes that are to have the bytes, a living owner included
  orphan @3 :Bool;        # the owner is lost
}

struct PeerKept {
  # Answers PeerKeep: the copy is complete. With an error there is no copy.
  object @0 :Id;
  error @1 :List(ErrorEntry);
}

struct PeerFind {
  # From a node that misses an object of a dead owner -> any node: asks for a copy. Answered by PeerReady for the object,
  # with an error if the node has no copy. The asker pulls the bytes under the copy's id.
  object @0 :Id;
}

struct PeerHeld {
  # From a node that keeps copies of a dead owner's objects -> every node: asks which of these objects have no holder at
  # the receiver. Answered by PeerUnused with the same round. The next PeerHeld replaces this one.
  round @0 :UInt64;
  objects @1 :List(Id);  # at most 1024
  members @2 :UInt64;    # digest of the live nodes that the asker knows; a receiver that knows others names no object
}

struct PeerUnused {
  # Answers PeerHeld: the objects that had no holder at the sender at any time since the PeerHeld before. The earlier
  # one named them, too.
  round @0 :UInt64;
  objects @1 :List(Id);  # at most 1024
}

struct PeerKeeping {
  # From a node that keeps copies of these objects, whose owners are lost -> every node. Another node that keeps copies of
  # them answers once with the same message.
  objects @0 :List(Id);  # at most 1024
}

# --- where bytes are ---

struct PeerLocate {
  # Asks which of these objects the receiver knows. Answered by PeerLocated with the same request.
  request @0 :UInt64;
  objects @1 :List(Id);  # at most 1024
}

struct PeerPlace {
  # An object that the sender of PeerLocated knows.
  index @0 :UInt32;      # among the objects of the PeerLocate
  state @1 :UInt8;       # as in ObjectPlace of node.capnp
  sizeBytes @2 :UInt64;
  here @3 :Bool;         # the sender's node has the bytes
  spilled @4 :Bool;      # the bytes are on disk
  forward @5 :Id;        # not zero: the value is that of this other object; ask the other nodes about it
}

struct PeerLocated {
  request @0 :UInt64;
  places @1 :List(PeerPlace);  # at most 1024
}

# --- observers ---

struct PeerInquire {
  # An observer at the sender's node asks for the receiver's MemoryReport. Answered by PeerAnswer.
  request @0 :UInt64;
  aboutLogs @1 :Bool;  # it, or a driver, asks for the next piece of a job's log instead, as Inquire of node.capnp does
  job @2 :Id;
  afterBytes @3 :UInt64;
  mostBytes @4 :UInt32;
  waitMs @5 :UInt32;
  untilComplete @6 :Bool;
  rows @7 :ListQuestion;  # present: an observer asks for rows of the receiver's node instead
  aboutStacks @8 :Bool;  # it asks for the stacks of processes instead
  stackPid @9 :Int32;
  stackActor @10 :Id;
  stackJob @11 :Id;
  stopJob @12 :Id;     # present: an observer asks to stop this job, whose driver is at the receiver's node
  stopUser @13 :Text;  # who asks; at most 256 bytes
}

struct PeerAnswer {
  # Answers PeerInquire. The payload is a piece of a MemoryReport of memory.capnp, or of a LogBatch. The pieces come in order, as fast as
  # the asker takes them. With an error there is no payload.
  request @0 :UInt64;
  offsetBytes @1 :UInt64;
  wholeBytes @2 :UInt64;
  error @3 :List(ErrorEntry);
}

# --- bytes of large objects ---

struct PullRequest {
  # To the owner's node, or to a node that PullElsewhere named: send the object's bytes. Answered by PullData, PullOnBulk
  # or PullRefused. An owner may also answer PullElsewhere.
  transfer @0 :UInt64;     # the asker's number
  object @1 :Id;
  offsetBytes @2 :UInt64;  # how many bytes of that stamp the asker has; a sender with another stamp starts at 0
  stamp @3 :UInt64;        # names one version of the object's bytes, as in each bulk frame; 0: the asker has none
  without @4 :Id;          # the node that the last PullElsewhere named and that did not deliver
  direct @5 :Bool;         # the owner may not answer PullElsewhere
}

struct PullElsewhere {
  # The owner -> the asker: pull from `node`, which has the bytes or is receiving them. If it does not deliver, the asker
  # sends the owner another PullRequest.
  transfer @0 :UInt64;
  node @1 :Id;
}

struct PullData {
  # Answers PullRequest. The payload is the object's bytes from `offsetBytes` on.
  transfer @0 :UInt64;
  offsetBytes @1 :UInt64;
  totalBytes @2 :UInt64;  # of the object; offset and payload lie within
}

struct PullOnBulk {
  # Answers PullRequest: the bytes follow on the bulk connection, under the object's id.
  transfer @0 :UInt64;
  totalBytes @1 :UInt64;
}

struct PullRefused {
  # Answers PullRequest: the sender cannot send the bytes.
  transfer @0 :UInt64;
  error @1 :List(ErrorEntry);  # at least one
}

struct BulkOffer {
  # The sender listens at this address. The receiver connects and proves the key; the large objects that the sender pulls
  # from it then travel over that connection.
  connection @0 :Id;
  host @1 :Text;
  port @2 :UInt16;
  key @3 :Data;  # 32 bytes, used once
}

# --- programs ---

struct ProgramRequest {
  # To the node of a job's driver: asks for a piece of a file. Answered by ProgramData with the same job, file and offset.
  job @0 :Id;
  file @1 :UInt32;  # 0: the executable, then its shared objects
  offsetBytes @2 :UInt64;
}

struct ProgramData {
  # Answers ProgramRequest. The payload is the file's bytes from `offsetBytes` on.
  job @0 :Id;
  file @1 :UInt32;
  offsetBytes @2 :UInt64;
  totalBytes @3 :UInt64;  # of the file; offset and payload lie within
  error @4 :List(ErrorEntry);  # not empty: the file cannot be read
}

# --- kept ---

struct Creation {
  # An actor's creation as control keeps it, so that any node can make the actor. It is a frame of its own, with
  # conversation 6. The payload has the inline arguments.
  create @0 :CreateActor;
  refs @1 :List(OwnedRef);  # of the arguments, as in PeerFrame; at most 4096
}
