@0xbca936968c7a934c;
# The conversation of a process (driver or worker) and the agent of its node.
#
# Frames are those of call.capnp, with conversation 1. Messages travel through a ring each way; those marked "socket"
# go over the process's unix socket, because descriptors accompany them. The two are not ordered against each other,
# but for this: a message that names a channel, an extent or a segment waits at the reader until its descriptors are
# there.
#
# Order. Hello comes first, over the socket; the agent checks the peer's uid, then answers Welcome, or Shutdown with the
# reason when it cannot serve this protocol. All else follows. Neither side sends anything before it has the other's
# first message. Everything ends with the socket's closing: the agent then treats the process as dead, the process treats
# the node as lost.
#
# A member of the union that a reader does not know gives it the error `unavailable` ("unsupported message N"); the agent
# drops such a process with Shutdown, saying so, and a process reports it and ends.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");
using import "value.capnp".Id;
using import "value.capnp".Value;
using import "value.capnp".Location;
using import "value.capnp".ErrorEntry;
using import "value.capnp".ResourceDemand;
using import "value.capnp".Amount;
using import "call.capnp".Call;

struct NodeMessage {
  union {
    # Meeting.
    hello @0 :Hello;
    welcome @1 :Welcome;
    channel @2 :Channel;
    peerDied @3 :PeerDied;
    # Leases.
    requestLease @4 :RequestLease;
    leaseGranted @5 :LeaseGranted;
    leaseRefused @6 :LeaseRefused;
    leaseReclaim @7 :LeaseReclaim;
    leaseReturned @8 :LeaseReturned;
    blocked @9 :Void;     # worker -> agent: its thread waits for others, its resources are free meanwhile
    unblocked @10 :Void;  # worker -> agent: it runs again, at once; the agent balances by granting nothing new
    # Objects.
    promote @11 :Promote;
    fulfil @12 :Fulfil;
    hold @13 :Hold;
    await @14 :Await;
    ready @15 :Ready;
    free @16 :Free;
    # Actors.
    createActor @17 :CreateActor;
    startActor @18 :StartActor;
    actorCreated @19 :ActorCreated;
    watchActor @20 :WatchActor;
    actorUpdate @21 :ActorUpdate;
    killActor @22 :KillActor;
    findActor @23 :FindActor;
    foundActor @24 :FoundActor;
    # Memory.
    needExtent @25 :NeedExtent;
    giveExtent @26 :GiveExtent;
    extentMapped @27 :ExtentMapped;
    extentSealed @28 :ExtentSealed;
    needReader @29 :NeedReader;
    giveReader @30 :GiveReader;
    recycle @31 :Recycle;
    # The node.
    listNodes @32 :ListNodes;
    nodes @33 :Nodes;
    shutdown @34 :Shutdown;
    # More of memory.
    storeTables @35 :StoreTables;
    storeAttached @36 :Void;  # process -> agent, answers StoreTables: the tables are mapped, seal them; a worker can be leased
    adopt @37 :Adopt;
    unpinned @38 :Unpinned;
    forget @39 :Forget;
    inquire @40 :Inquire;
    answer @41 :Answer;
    # A full store.
    memoryPressure @42 :Void;  # agent -> process: promote the objects that you alone know of, then giveBack empty extents
    giveBack @43 :GiveBack;
    whereIs @44 :WhereIs;
    nowAt @45 :NowAt;
    # Lost objects.
    rebuild @46 :Rebuild;
    rebuilt @47 :Rebuilt;
    lineage @48 :Lineage;
    # Calls that outlive who made them.
    keptCall @49 :KeptCall;
    madeBy @50 :MadeBy;
    forgetCall @51 :ForgetCall;
    # How fast tasks run here.
    pace @52 :Pace;
    # Where objects are made, and what came of a dead process's frames.
    callSite @53 :CallSite;
    arrived @54 :Arrived;
    # Objects of which other nodes have copies.
    replicate @55 :Replicate;
    replicated @56 :Replicated;
    # Names of objects, and where their bytes are.
    nameObject @57 :NameObject;
    namedObject @58 :NamedObject;
    locate @59 :Locate;
    located @60 :Located;
  }
}

# --- meeting ---

struct Hello {
  # Process -> agent, socket, first; with two descriptors: the process's doorbell memory and event.
  protocol @0 :UInt32;
  build @1 :Text;     # build-id of the executable, for people
  kind @2 :UInt8;     # 0 driver, 1 worker, 2 observer
  pid @3 :UInt32;
  token @4 :UInt64;   # workers: what the agent gave the zygote; a wrong one is answered Shutdown
  program @5 :Text;   # drivers that join a cluster: path of the executable, at most 4096 bytes; empty:
                      # the agent's own
  arguments @6 :List(Text);  # of the program; at most 4096, of 128 KiB each
  jobName @7 :Text;
  libraries @8 :List(Text);  # paths of the shared objects that are the program's own; at most 64
  ignoredSignals @9 :UInt64;   # drivers that join a cluster: bit n - 1 is signal n, as the program was started
  blockedSignals @10 :UInt64;
}

struct Welcome {
  # Agent -> process, socket, answers Hello; with three descriptors: memory of the channel between the two, the agent's
  # doorbell memory, its event.
  protocol @0 :UInt32;
  node @1 :Id;
  nodeName @2 :Text;
  process @3 :UInt64;    # index on the node, unique for the node's life
  mySlot @4 :UInt32;     # the agent's channel in the process's doorbell
  agentSlot @5 :UInt32;  # the process in the agent's doorbell
  cpus @6 :UInt32 = 1;   # whole slots of the node, for spin budgets
  job @7 :Id;            # that the process works for
}

struct Channel {
  # Agent -> both processes of a new channel, socket; with three descriptors: channel memory, the peer's doorbell
  # memory, its event.
  peer @0 :UInt64;      # process index of the other side
  side @1 :UInt32;      # 0 or 1: which ring is mine to write
  mySlot @2 :UInt32;
  peerSlot @3 :UInt32;
  remote @4 :Bool;      # the peer lives on another node and the agent carries the frames: no value there is `shared`
  holder @5 :UInt64;    # who counts as holder of refs sent there; 0: the peer itself
}

struct PeerDied {
  # Agent -> every process with a channel to the dead one, after it was reaped: its rings can be drained a last time.
  peer @0 :UInt64;
  reason @1 :Text;  # "killed by signal 9", "exited with code 3"
  started @2 :UInt64 = 0xffffffffffffffff;  # the highest call that it began; the default: the channel's counter tells
}

# --- leases ---

struct RequestLease {
  # Process -> agent: up to `backlog` workers of this demand. The newest message for a key replaces older ones.
  key @0 :UInt64;      # the caller's name for the demand
  backlog @1 :UInt32;  # 0 withdraws
  demand @2 :ResourceDemand;
  near @3 :Id;             # the node that has most of the bytes of its large arguments; none: they have none
  nearBytes @4 :UInt64;    # how many
}

struct LeaseGranted {
  # Agent -> process. The Channel to `worker` was sent before or is under way. Lease 0: to the worker itself, before a
  # caller has the lease: what it has from now on. Of a node without devices only when `demand` is another than before.
  key @0 :UInt64;
  lease @1 :UInt64;
  worker @2 :UInt64;      # process index
  gpus @3 :List(Int32);   # devices that are the worker's under this lease; at most 64
  demand @4 :ResourceDemand;        # lease 0: what the lease reserves; none: unknown
  hasDevices @5 :Bool;    # lease 0 with a demand: the node has devices, and `gpus` says which are the worker's
}

struct LeaseRefused {
  # Agent -> process: no node can ever satisfy the demand; every call of the key fails.
  key @0 :UInt64;
  why @1 :Text;
}

struct LeaseReclaim {
  # Agent -> process: others wait. Start no more calls there and return the lease when those in flight have ended.
  lease @0 :UInt64;
}

struct LeaseReturned {
  # Process -> agent. A lease that is not the sender's is ignored: it died meanwhile.
  lease @0 :UInt64;
}

# --- objects ---

struct Promote {
  # Process -> agent: the object's record is the agent's from now on; the sender holds one count. Sent before any message
  # with the ref, in the same batch.
  object @0 :Id;
  value @1 :Value;  # pending, or what is known
}

struct Fulfil {
  # Process -> agent: the value of an promoted object that was pending. The first one wins.
  object @0 :Id;
  value @1 :Value;
}

struct Hold {
  # Process -> agent: `process` holds `delta` more. A sender registers the receiver before it publishes the ref; a process
  # drops its own counts with a negative delta. What goes into a value that the agent is to keep (Promote, Fulfil, Rebuilt,
  # CreateActor) the agent counts itself.
  object @0 :Id;
  process @1 :UInt64;
  delta @2 :Int32;
  frame @3 :UInt64;    # number, from 1 on, of the sender's frame to that process of this node; 0: in none
  waiting @4 :UInt32;  # of the frames before it so many are not in the ring yet
}

struct Arrived {
  # Process -> agent, answers PeerDied of a process of this node: so many of its frames came. What the dead had counted for
  # the sender in later ones, and had adopted for it, never comes.
  peer @0 :UInt64;
  frames @1 :UInt64;
}

struct Await {
  # Process -> agent: send Ready once, when there is a value.
  object @0 :Id;
  fetch @1 :Bool = true;  # false: a large value at another node stays there, and Ready says `remoteBytes`
}

struct Ready {
  # Agent -> process, answers Await. The refs inside are already counted for the receiver.
  object @0 :Id;
  value @1 :Value;
  node @2 :Id;             # of a value whose bytes are at another node: which
}

struct Free {
  # Process -> agent: the object at this location is dead. Only its owner says so; from anybody else it is ignored.
  location @0 :Location;
}

# --- lost objects ---

struct Rebuild {
  # Process -> agent: the bytes of `object` are gone; answered by Ready with another value or an error. Agent -> the process
  # that made the object: compute it again; answered by Rebuilt.
  object @0 :Id;
  lost @1 :Id;  # where its value led to: the object that it was forwarded to, or itself
}

struct Rebuilt {
  # Process -> agent: the value of an object of its own from here on, whatever it was before.
  object @0 :Id;
  value @1 :Value;
}

struct Pace {
  # Worker -> agent, behind a task, at most four times a second: what ran since it was told last.
  sites @0 :List(SitePace);  # at most 32
}

struct SitePace {
  module @0 :UInt64;        # of the function, see FunctionKey
  offsetBytes @1 :UInt64;
  tasks @2 :UInt32;
  ranNs @3 :UInt64;         # all of them, without opening arguments and waiting for others
}

struct Lineage {
  # Process -> agent: it can compute the object again though it holds it no longer. Agent -> process, once, then: nobody
  # holds it any more.
  object @0 :Id;
}

struct KeptCall {
  # Worker -> agent: a call of the sender's that has ended, to be made again by somebody else when the sender is gone. Agent
  # -> process of the same job: the call is the receiver's from here on. The inline arguments are in this frame's payload.
  number @0 :UInt64;       # its name on this node, given once: the index of the process that made it, and a count
  call @1 :Call;           # to the agent: nothing in it is counted; from the agent: counted for the receiver
  made @2 :List(UInt32);   # which of the ids in it name no object but result `low` of kept call `high`: arguments by
                           # their position, refs inside arguments by 4096 + their position among all; ascending, at most 16384
  demand @3 :ResourceDemand;
  retriesLeft @4 :Int32 = 3;  # -1: without limit
  retryOn @5 :List(Text);     # typeid names; at most 64
  inputBytes @6 :UInt64;      # what the objects take that it names
}

struct MadeBy {
  # Worker -> agent: this object of the sender's, which was promoted, is a result of the kept call. Agent -> process: of one
  # that is the receiver's now; it is asked by Rebuild.
  object @0 :Id;
  call @1 :UInt64;
  result @2 :UInt32;
  retriesLeft @3 :Int32 = 3;  # of the call
}

struct ForgetCall {
  # Process -> agent: the sender will name this kept call no more.
  number @0 :UInt64;
}

# --- actors ---

struct CreateActor {
  # Process -> agent. The inline arguments of `creation` are in this frame's payload.
  actor @0 :Id;
  lifetime @1 :Id;               # the object whose counts keep the actor alive
  name @2 :Text;                 # may be empty
  nameSpace @3 :Text;
  className @4 :Text;
  detached @5 :Bool;
  getIfExists @6 :Bool;
  maxRestarts @7 :Int32;         # -1: without limit
  restartWindowNs @8 :UInt64;    # 0: the actor's life
  maxConcurrency @9 :UInt32 = 1;
  demand @10 :ResourceDemand;
  creation @11 :Call;
  request @12 :UInt64;           # not 0: answered by FoundActor with this number: who has the name, or why nobody
}

struct StartActor {
  # Agent -> worker: become this actor and run `creation`; answered by ActorCreated.
  actor @0 :Id;
  incarnation @1 :UInt64;
  maxConcurrency @2 :UInt32 = 1;
  restarted @3 :Bool;
  name @4 :Text;
  gpus @5 :List(Int32);  # at most 64
  creation @6 :Call;
  lifetime @7 :Id;       # the object that the actor's handles count
}

struct ActorCreated {
  # Worker -> agent, answers StartActor. Of an incarnation that is over: ignored.
  actor @0 :Id;
  incarnation @1 :UInt64;
  error @2 :List(ErrorEntry);  # not empty: the constructor threw
}

struct WatchActor {
  # Process -> agent: send ActorUpdate now and at every change.
  actor @0 :Id;
}

struct ActorUpdate {
  # Agent -> watchers. A lower incarnation than one already seen is ignored.
  actor @0 :Id;
  state @1 :UInt8;             # 0 pending, 1 alive, 2 restarting, 3 dead
  incarnation @2 :UInt64;
  worker @3 :UInt64;           # alive: its process; Channel was sent before or is under way
  error @4 :List(ErrorEntry);  # dead: why; pending: how its last life ended, if it had one
  retryAt @5 :UInt64;          # pending: when its next life begins, in ns of CLOCK_MONOTONIC
  silent @6 :Bool;             # alive: its node says nothing, and is not known to be dead
}

struct KillActor {
  # Process -> agent.
  actor @0 :Id;
  mayRestart @1 :Bool;
}

struct FindActor {
  # Process -> agent, answered by FoundActor with the same request number.
  request @0 :UInt64;
  name @1 :Text;
  nameSpace @2 :Text;
}

struct FoundActor {
  # Agent -> process, answers FindActor and CreateActor.
  request @0 :UInt64;
  found @1 :Bool;
  actor @2 :Id;        # found: the receiver already holds one count of `lifetime`
  lifetime @3 :Id;
  className @4 :Text;
  error @5 :List(ErrorEntry);  # nobody can tell, or it could not be made
}

# --- memory ---

struct NeedExtent {
  # Process -> agent, answered by GiveExtent.
  lengthBytes @0 :UInt64;  # at least
  request @1 :UInt64;
}

struct GiveExtent {
  # Agent -> process, socket; with one descriptor, or an error and none. With neither: objects of the receiver's have been
  # recycled since it asked, so that it may have room; it asks again if not.
  extent @0 :UInt64;
  lengthBytes @1 :UInt64;
  error @2 :List(ErrorEntry);
  request @3 :UInt64;  # that it answers; with a descriptor it comes another way than without
}

struct ExtentMapped {
  # Process -> agent, after GiveExtent: seal it.
  extent @0 :UInt64;
}

struct ExtentSealed {
  # Agent -> process, after ExtentMapped: readers may have it now.
  extent @0 :UInt64;
}

struct NeedReader {
  # Process -> agent, answered by GiveReader: a descriptor to read a publications segment or an extent.
  isSegment @0 :Bool;
  id @1 :UInt64;
}

struct GiveReader {
  # Agent -> process, socket; with one descriptor, or an error and none: it is gone.
  isSegment @0 :Bool;
  id @1 :UInt64;
  lengthBytes @2 :UInt64;
  error @3 :List(ErrorEntry);
  incarnation @4 :UInt32;  # of a segment
}

struct Recycle {
  # Agent -> writer: the object of this slot is dead and unpinned; its memory may be used again. With another
  # generation than the slot's present one: ignored.
  slot @0 :UInt32;
  generation @1 :UInt64;
}

struct StoreTables {
  # Agent -> process, socket, once after Welcome; with three descriptors: publications, pins, retirements. Answered by
  # storeAttached. The numbers are the object store's layout; it checks them against the size of the segments.
  processes @0 :UInt32;
  slots @1 :UInt32;
  extents @2 :UInt32;
  process @3 :UInt32;      # index of the receiver in the tables
  incarnation @4 :UInt32;  # of that index
  extentBytes @5 :UInt64;
}

struct Adopt {
  # Process -> agent: this object of the sender's is about to be named in a message to another process; keep it until
  # Free, or until whose it is has died. Sent before that message, in the same batch.
  location @0 :Location;
  site @1 :UInt32;     # number of a CallSite; 0: unknown
  process @2 :UInt64;  # whose it is from then on; 0: the sender's
  frame @3 :UInt64;    # as in Hold
  waiting @4 :UInt32;
}

struct CallSite {
  # Process -> agent: the name of a place where it makes objects, before the first Adopt that has the number.
  number @0 :UInt32;  # from 1 on
  text @1 :Text;      # "main.cpp:12", or the name of a function
}

struct Unpinned {
  # Process -> agent: the last view of a freed object is gone here.
  process @0 :UInt32;  # index of the object's maker in the tables
  slot @1 :UInt32;
}

struct Forget {
  # Agent -> every process: the extent or segment is gone; unmap it. One that is not mapped is ignored.
  isSegment @0 :Bool;
  id @1 :UInt64;
}

struct GiveBack {
  # Process -> agent: it has unmapped this extent of its own, in which nothing lives.
  extent @0 :UInt64;
}

struct WhereIs {
  # Process -> agent, answered by NowAt with the same request number: an adopted object is not where it was adopted.
  request @0 :UInt64;
  location @1 :Location;  # where it was
}

struct NowAt {
  # Agent -> process, answers WhereIs. It may have moved again when it is looked at.
  request @0 :UInt64;
  location @1 :Location;       # without an error: to be opened once, never kept or passed on
  error @2 :List(ErrorEntry);  # it is gone, or there is no memory to bring it back to
}

struct Replicate {
  # Process -> agent, after the object's Promote, whose id says that it has copies (bit 63 of its low half). Answered by
  # Replicated with the same request number.
  request @0 :UInt64;
  object @1 :Id;
  copies @2 :UInt32;    # on so many nodes, this one among them; from 2 on
  timeoutNs @3 :UInt64;
}

struct Replicated {
  # Agent -> process: so many nodes have it; or why not, and then none but this one is asked to keep it.
  request @0 :UInt64;
  error @1 :List(ErrorEntry);
}

struct NameObject {
  # Process -> agent, answered by NamedObject with the same request number.
  request @0 :UInt64;
  verb @1 :UInt8;         # 0 detach: the object, which was promoted, gets this name; 1 find; 2 forget: nothing has it any more
  name @2 :Text;
  object @3 :Id;          # detach
  fingerprint @4 :UInt64; # detach: of the value's type, ...
  type @5 :Text;          # ... and its name, for people
}

struct NamedObject {
  # Agent -> process. `found` of detach: it has the name; of find: there is one; of forget: there was one.
  request @0 :UInt64;
  found @1 :Bool;
  object @2 :Id;          # find: the receiver already holds one count of it
  fingerprint @3 :UInt64;
  type @4 :Text;
  error @5 :List(ErrorEntry);
}

struct Locate {
  # Process -> agent, answered by one or more Located with the same request number.
  request @0 :UInt64;
  objects @1 :List(Id);   # at most 512; which were promoted
}

struct ObjectPlace {
  # Where the bytes of an object are, as far as the nodes that answered in time know.
  index @0 :UInt32;       # among those of the Locate
  state @1 :UInt8;        # 0 not known, 1 not ready, 2 small: inside its record, 3 in shared memory or on disk, 4 an error
  sizeBytes @2 :UInt64;
  spilled @3 :Bool;       # at a node it is on disk, and nowhere in memory
  nodes @4 :List(Id);     # that have the bytes, at most 64
}

struct Located {
  request @0 :UInt64;
  places @1 :List(ObjectPlace);  # at most 512
  more @2 :Bool;                 # the answer goes on in another message
}

# --- the node ---

struct ListNodes {
  # Process -> agent, answered by Nodes with the same request number.
  request @0 :UInt64;
}

struct NodeRow {
  id @0 :Id;
  name @1 :Text;
  alive @2 :Bool = true;
  cpuTenThousandths @3 :Int64;
  cpuFreeTenThousandths @4 :Int64;
  gpuTenThousandths @5 :Int64;
  gpuFreeTenThousandths @6 :Int64;
  memoryBytes @7 :UInt64;
  storeCapacityBytes @8 :UInt64;
  storeUsedBytes @9 :UInt64;
  workers @10 :UInt32;
  resources @11 :List(Amount);  # at most 64
}

struct Nodes {
  # Agent -> process, answers ListNodes.
  request @0 :UInt64;
  rows @1 :List(NodeRow);  # at most 4096
  more @2 :Bool;           # the answer goes on in another message
}

struct Inquire {
  # Process -> agent: a question for control, the payload, as control.capnp has it. Answered by Answer.
  request @0 :UInt64;
  about @1 :UInt8;  # 0: so; 1: what the memory of a node is used for, without payload
  node @2 :Id;      # 1: of this node; absent: of the agent's own
}

struct Answer {
  # Agent -> process: a piece of the answer, control's or a MemoryReport of memory.capnp, the payload; or an error.
  request @0 :UInt64;
  offsetBytes @1 :UInt64;
  wholeBytes @2 :UInt64;
  error @3 :List(ErrorEntry);
}

struct Shutdown {
  # Agent -> process: end yourself now; for the log. Driver -> agent: its job is finished. Worker -> agent, before
  # storeAttached: it cannot start, since the system refused it a thread, memory or a descriptor.
  why @0 :Text;
}
