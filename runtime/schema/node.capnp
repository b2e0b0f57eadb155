@0xbca936968c7a934c;
# The conversation of a process (driver, worker or observer) and the agent of its node.
#
# Frames are those of call.capnp, with conversation 1. Messages travel through two rings, one in each direction. Messages
# marked "socket" go over the process's unix socket, because file descriptors accompany them. Socket and ring have no
# common order. Therefore a reader holds back a message that names a channel, an extent or a segment until it has the
# descriptors.
#
# Order. Hello comes first, over the socket. The agent checks the uid of the process and answers Welcome. It answers
# Shutdown with the reason when it cannot serve this protocol. All other messages follow. The agent sends nothing before
# Hello, and the process sends nothing else before Welcome. The conversation ends when the socket closes. The agent then
# treats the process as dead, and the process treats the node as lost.
#
# A reader that does not know a member of the union gets the error `unavailable` ("unsupported message N"). The agent
# sends such a process Shutdown with that reason and drops it. A process reports the error and ends.

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
    blocked @9 :Void;     # worker -> agent: its thread waits for values; its resources are free until `unblocked`
    unblocked @10 :Void;  # worker -> agent: its thread runs again. The worker does not wait for resources; the agent
                          # grants nothing new until the balance is restored
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
    storeAttached @36 :Void;  # process -> agent, answers StoreTables: the tables are mapped and the agent may seal them.
                              # From then on a worker can be leased
    adopt @37 :Adopt;
    unpinned @38 :Unpinned;
    forget @39 :Forget;
    inquire @40 :Inquire;
    answer @41 :Answer;
    # A full store.
    memoryPressure @42 :Void;  # agent -> process: promote the objects that only you know, then send GiveBack for each
                               # empty extent
    giveBack @43 :GiveBack;
    whereIs @44 :WhereIs;
    nowAt @45 :NowAt;
    # Lost objects.
    rebuild @46 :Rebuild;
    rebuilt @47 :Rebuilt;
    lineage @48 :Lineage;
    # Calls that outlive the worker that made them.
    keptCall @49 :KeptCall;
    madeBy @50 :MadeBy;
    forgetCall @51 :ForgetCall;
    # How fast tasks run here.
    pace @52 :Pace;
    # The call sites that make objects, and how many frames of a dead process arrived.
    callSite @53 :CallSite;
    arrived @54 :Arrived;
    # Objects with replicas at other nodes.
    replicate @55 :Replicate;
    replicated @56 :Replicated;
    # Names of objects, and where their bytes are.
    nameObject @57 :NameObject;
    namedObject @58 :NamedObject;
    locate @59 :Locate;
    located @60 :Located;
    # Why a wait lasts.
    explain @61 :Explain;
    explained @62 :Explained;
    # Rows of lists.
    askRows @63 :AskRows;
    giveRows @64 :GiveRows;
  }
}

# --- meeting ---

struct Hello {
  # Process -> agent, socket, the first message; with two descriptors: the process's doorbell memory and doorbell event.
  protocol @0 :UInt32;
  build @1 :Text;     # build-id of the executable, for people
  kind @2 :UInt8;     # 0 driver, 1 worker, 2 observer
  pid @3 :UInt32;
  token @4 :UInt64;   # workers: the token that the agent gave the zygote; the agent answers a wrong token with Shutdown
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
  mySlot @4 :UInt32;     # the slot of the agent's channel in the process's doorbell
  agentSlot @5 :UInt32;  # the slot of the process in the agent's doorbell
  cpus @6 :UInt32 = 1;   # whole CPUs of the node; the process derives from it how long it spins
  job @7 :Id;            # the job that the process works for
}

struct Channel {
  # Agent -> each of the two processes of a new channel, socket; with three descriptors: the channel memory, the peer's
  # doorbell memory and the peer's doorbell event.
  peer @0 :UInt64;      # process index of the other side
  side @1 :UInt32;      # 0 or 1: the ring that the receiver of this message writes
  mySlot @2 :UInt32;    # the channel's slot in the receiver's doorbell
  peerSlot @3 :UInt32;  # the channel's slot in the peer's doorbell
  remote @4 :Bool;      # the peer lives on another node and the agent carries the frames: no value there is `shared`
  holder @5 :UInt64;    # the process that counts as the holder of refs sent over this channel; 0: the peer itself
}

struct PeerDied {
  # Agent -> every process with a channel to the dead process, after that process was reaped. The receiver drains its ring
  # a last time and answers Arrived.
  peer @0 :UInt64;
  reason @1 :Text;  # "killed by signal 9", "exited with code 3"
  started @2 :UInt64 = 0xffffffffffffffff;  # the highest call that it began; the default: read the channel's counter
  stack @3 :Text;      # of the thread that crashed, at most 4096 bytes
  lastLines @4 :Text;  # that it wrote, at most 4096 bytes
}

# --- leases ---

struct RequestLease {
  # Process -> agent: asks for up to `backlog` workers of this demand. The newest message for a key replaces older ones.
  # Each granted worker is answered by LeaseGranted. LeaseRefused answers a demand that no node can ever satisfy.
  key @0 :UInt64;      # the caller's name for the demand
  backlog @1 :UInt32;  # 0 withdraws the request
  demand @2 :ResourceDemand;
  near @3 :Id;             # the node that has most bytes of the large arguments; none: there are no large arguments
  nearBytes @4 :UInt64;    # how many bytes that node has
}

struct LeaseGranted {
  # Agent -> process. The Channel to `worker` was sent before or is under way.
  #
  # With lease 0 the message goes to the worker itself, before a caller receives the lease. It says which resources and
  # devices the worker has from then on. A node without devices sends it only when `demand` differs from the one before.
  key @0 :UInt64;
  lease @1 :UInt64;
  worker @2 :UInt64;      # process index
  gpus @3 :List(Int32);   # devices that the worker may use under this lease; at most 64
  demand @4 :ResourceDemand;        # lease 0: the resources that the lease reserves; none: unknown
  hasDevices @5 :Bool;    # lease 0 with a demand: the node has devices, and `gpus` lists the worker's
}

struct LeaseRefused {
  # Agent -> process: no node can ever satisfy the demand; every call of the key fails.
  key @0 :UInt64;
  why @1 :Text;
}

struct LeaseReclaim {
  # Agent -> process: other processes wait for resources. The process sends no more calls under this lease. It sends
  # LeaseReturned when the calls in flight have ended.
  #
  # With a holder: to the worker. The holder does not answer. A worker that runs nothing under the lease answers with
  # LeaseReturned in the holder's place. It then hands back each call of the holder until LeaseGranted names the holder.
  lease @0 :UInt64;
  holder @1 :UInt64;
}

struct LeaseReturned {
  # Process -> agent: the sender no longer uses the lease. The agent ignores a lease that the sender does not have: it
  # ended with its worker meanwhile.
  lease @0 :UInt64;
}

# --- objects ---

struct Promote {
  # Process -> agent: the agent owns the object's record from now on, and the sender holds one count. The sender sends it
  # before any message that names the ref, in the same batch.
  object @0 :Id;
  value @1 :Value;  # the value, or pending
}

struct Fulfil {
  # Process -> agent: the value of a promoted object that was pending. The agent ignores a second one.
  object @0 :Id;
  value @1 :Value;
}

struct Hold {
  # Process -> agent: adds `delta` to the counts that `process` holds of the object. A process that sends a ref counts the
  # receiver by this message before it publishes the frame with the ref. A process drops its own counts with a negative
  # delta. The agent itself counts the refs inside a value that it keeps (Promote, Fulfil, Rebuilt, CreateActor).
  #
  # `frame` and `waiting` let the agent take a count back when the sender dies before the frame arrives; see Arrived.
  object @0 :Id;
  process @1 :UInt64;
  delta @2 :Int32;
  frame @3 :UInt64;    # number, from 1, of the frame with the ref among the sender's frames to `process`; 0: in no frame
  waiting @4 :UInt32;  # how many of the frames before it are not in the ring yet
}

struct Arrived {
  # Process -> agent, answers PeerDied: says how many frames of the dead process arrived. The agent takes back the counts
  # (Hold) and objects (Adopt) that the dead process gave the sender in later frames. For a process of another node it
  # says that the sender writes no more frames into that proxy channel.
  peer @0 :UInt64;
  frames @1 :UInt64;
}

struct Await {
  # Process -> agent: asks for the value. The agent sends one Ready, as soon as there is a value.
  object @0 :Id;
  fetch @1 :Bool = true;  # false: a large value at another node stays there, and Ready has `remoteBytes`
}

struct Ready {
  # Agent -> process, answers Await and Rebuild. The agent has counted the refs inside the value for the receiver.
  object @0 :Id;
  value @1 :Value;
  node @2 :Id;             # with remoteBytes: the node that has the bytes
}

struct Free {
  # Process -> agent: the object at this location can be freed. Only its owner sends it; the agent ignores it from any
  # other process.
  location @0 :Location;
}

# --- lost objects ---

struct Rebuild {
  # Process -> agent: the bytes of `object` are gone. The agent answers Ready with another value or an error.
  # Agent -> the process that made the object: compute the object again. The process answers Rebuilt.
  object @0 :Id;
  lost @1 :Id;  # the object whose bytes are gone: the one that `object` was forwarded to, or `object` itself
}

struct Rebuilt {
  # Process -> agent, answers Rebuild: the new value of an object that the sender made. It replaces the value before.
  object @0 :Id;
  value @1 :Value;
}

struct Pace {
  # Worker -> agent, after a task, at most four times a second: the run times of tasks since the last Pace.
  sites @0 :List(SitePace);  # at most 32
}

struct SitePace {
  module @0 :UInt64;        # of the function, see FunctionKey
  offsetBytes @1 :UInt64;
  tasks @2 :UInt32;
  ranNs @3 :UInt64;         # sum over the tasks, without the time to open arguments and to wait for other tasks
}

struct Lineage {
  # Process -> agent: the sender can compute the object again, although it no longer holds it.
  # Agent -> that process, once, later: the object has no holder left.
  object @0 :Id;
}

struct KeptCall {
  # Worker -> agent: a call of the sender that has ended. Another process can make it again when the sender is gone.
  # Agent -> process of the same job: the receiver keeps the call from now on.
  # The inline arguments are in this frame's payload.
  number @0 :UInt64;       # the call's name on this node, never reused: index of the process that made it, and a count
  call @1 :Call;           # to the agent: the refs inside are not counted; from the agent: counted for the receiver
  made @2 :List(UInt32);   # positions of ids that name no object but result `low` of kept call `high`. An argument has
                           # its own position; a ref inside arguments has 4096 + its position among all such refs.
                           # Ascending, at most 16384
  demand @3 :ResourceDemand;
  retriesLeft @4 :Int32 = 3;  # -1: without limit
  retryOn @5 :List(Text);     # typeid names of exceptions; at most 64
  inputBytes @6 :UInt64;      # size of the objects that the call names
}

struct MadeBy {
  # Worker -> agent: this promoted object of the sender is a result of the kept call.
  # Agent -> process: the same, of a kept call that the receiver has now. The agent asks it for the object by Rebuild.
  object @0 :Id;
  call @1 :UInt64;            # number of the KeptCall
  result @2 :UInt32;          # index of the result
  retriesLeft @3 :Int32 = 3;  # of the call
}

struct ForgetCall {
  # Process -> agent: the sender will not name this kept call any more.
  number @0 :UInt64;
}

# --- actors ---

struct CreateActor {
  # Process -> agent: make this actor. The inline arguments of `creation` are in this frame's payload.
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
  request @12 :UInt64;           # not 0: answered by FoundActor with this number: the actor with the name, or an error
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
  # Worker -> agent, answers StartActor. The agent ignores it when that incarnation is over.
  actor @0 :Id;
  incarnation @1 :UInt64;
  error @2 :List(ErrorEntry);  # not empty: the constructor threw
}

struct WatchActor {
  # Process -> agent: asks for an ActorUpdate now and one at every change.
  actor @0 :Id;
}

struct ActorUpdate {
  # Agent -> every process that sent WatchActor. The receiver ignores an incarnation lower than one that it has seen.
  actor @0 :Id;
  state @1 :UInt8;             # 0 pending, 1 alive, 2 restarting, 3 dead
  incarnation @2 :UInt64;
  worker @3 :UInt64;           # alive: its process index; the Channel was sent before or is under way
  error @4 :List(ErrorEntry);  # dead: the reason; pending: how its last life ended, if it had one
  retryAt @5 :UInt64;          # pending: when its next life begins, in ns of CLOCK_MONOTONIC
  silent @6 :Bool;             # alive: its node does not answer, and is not known to be dead
}

struct KillActor {
  # Process -> agent: end the actor's present life.
  actor @0 :Id;
  mayRestart @1 :Bool;  # another life may follow
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
  actor @2 :Id;        # found: the agent has counted one holder of `lifetime` for the receiver
  lifetime @3 :Id;
  className @4 :Text;
  error @5 :List(ErrorEntry);  # the directory could not be asked, or the actor could not be made
}

# --- memory ---

struct NeedExtent {
  # Process -> agent: asks for an extent, answered by GiveExtent.
  lengthBytes @0 :UInt64;  # the least length
  request @1 :UInt64;
}

struct GiveExtent {
  # Agent -> process, answers NeedExtent. An extent comes over the socket with one descriptor. An error comes without one.
  # A message with neither says that objects of the receiver have been recycled since it asked. The receiver then tries
  # its own extents, and asks again if they have no room.
  extent @0 :UInt64;
  lengthBytes @1 :UInt64;
  error @2 :List(ErrorEntry);
  request @3 :UInt64;  # of the NeedExtent. Needed because answers with and without a descriptor have no common order
}

struct ExtentMapped {
  # Process -> agent, after GiveExtent: the extent is mapped, and the agent seals it.
  extent @0 :UInt64;
}

struct ExtentSealed {
  # Agent -> process, after ExtentMapped: the extent is sealed, and readers may map it now.
  extent @0 :UInt64;
}

struct NeedReader {
  # Process -> agent, answered by GiveReader: a descriptor to read a publications segment or an extent.
  isSegment @0 :Bool;
  id @1 :UInt64;
}

struct GiveReader {
  # Agent -> process, answers NeedReader, socket; with one descriptor. An error without a descriptor: it is gone.
  isSegment @0 :Bool;
  id @1 :UInt64;
  lengthBytes @2 :UInt64;
  error @3 :List(ErrorEntry);
  incarnation @4 :UInt32;  # of a segment
}

struct Recycle {
  # Agent -> the process that made the object: the object of this slot is freed and no reader pins it. The process may use
  # its memory again. It ignores a generation other than the slot's present one.
  slot @0 :UInt32;
  generation @1 :UInt64;
}

struct StoreTables {
  # Agent -> process, socket, once, after Welcome; with three descriptors: publications, pins, retirements. Answered by
  # storeAttached. The numbers are the object store's layout. The object store checks them against the segments' sizes.
  processes @0 :UInt32;
  slots @1 :UInt32;
  extents @2 :UInt32;
  process @3 :UInt32;      # index of the receiver in the tables
  incarnation @4 :UInt32;  # of that index
  extentBytes @5 :UInt64;
}

struct Adopt {
  # Process -> agent: the sender is about to name this object of its own in a message to another process. The agent keeps
  # the object until its owner sends Free or dies. The sender sends it before that message, in the same batch.
  location @0 :Location;
  site @1 :UInt32;     # number of a CallSite; 0: unknown
  process @2 :UInt64;  # the process that owns the object from then on; 0: the sender
  frame @3 :UInt64;    # as in Hold
  waiting @4 :UInt32;  # as in Hold
}

struct CallSite {
  # Process -> agent: the name of a place in the program that makes objects. It comes before the first Adopt with its
  # number.
  number @0 :UInt32;  # from 1 on
  text @1 :Text;      # "main.cpp:12", or the name of a function
}

struct Unpinned {
  # Process -> agent: the sender has closed its last view of a freed object.
  process @0 :UInt32;  # index of the object's maker in the tables
  slot @1 :UInt32;
}

struct Forget {
  # Agent -> every process: the extent or segment is gone; unmap it. A process that has not mapped it ignores the message.
  isSegment @0 :Bool;
  id @1 :UInt64;
}

struct GiveBack {
  # Process -> agent: the sender has unmapped this extent of its own, which holds no object. The agent may grant it again.
  extent @0 :UInt64;
}

struct WhereIs {
  # Process -> agent, answered by NowAt with the same request number: an adopted object is no longer at its location. The
  # agent moves objects between memory and disk.
  request @0 :UInt64;
  location @1 :Location;  # the one at which it was adopted
}

struct NowAt {
  # Agent -> process, answers WhereIs. The object may have moved again before the receiver opens the location; the
  # receiver then asks again.
  request @0 :UInt64;
  location @1 :Location;       # without an error: the receiver opens it once, and neither keeps it nor passes it on
  error @2 :List(ErrorEntry);  # the object is gone, or no memory is free to restore it
}

struct Replicate {
  # Process -> agent, after the object's Promote: make replicas. Bit 63 of the low half of the object's id is set (see
  # peer.capnp). Answered by Replicated with the same request number.
  request @0 :UInt64;
  object @1 :Id;
  copies @2 :UInt32;    # number of nodes that are to have the bytes, this node included; at least 2
  timeoutNs @3 :UInt64;
}

struct Replicated {
  # Agent -> process, answers Replicate: all these nodes have the bytes. With an error they do not, and no other node is
  # asked to keep a replica.
  request @0 :UInt64;
  error @1 :List(ErrorEntry);
}

struct NameObject {
  # Process -> agent, answered by NamedObject with the same request number.
  request @0 :UInt64;
  verb @1 :UInt8;         # 0 detach: gives the promoted object this name; 1 find: asks for it; 2 forget: frees the name
  name @2 :Text;
  object @3 :Id;          # detach
  fingerprint @4 :UInt64; # detach: of the value's type
  type @5 :Text;          # detach: name of the value's type, for people
}

struct NamedObject {
  # Agent -> process, answers NameObject.
  request @0 :UInt64;
  found @1 :Bool;         # detach: the object has the name; find: an object has it; forget: an object had it
  object @2 :Id;          # find: the agent has counted one holder for the receiver
  fingerprint @3 :UInt64;
  type @4 :Text;
  error @5 :List(ErrorEntry);
}

struct Locate {
  # Process -> agent, answered by one or more Located with the same request number.
  request @0 :UInt64;
  objects @1 :List(Id);   # promoted objects; at most 512
}

struct ObjectPlace {
  # The place of an object's bytes, as far as the nodes that answered in time know.
  index @0 :UInt32;       # among the objects of the Locate
  state @1 :UInt8;        # 0 unknown, 1 pending, 2 small: inside its record, 3 in shared memory or on disk, 4 an error
  sizeBytes @2 :UInt64;
  spilled @3 :Bool;       # a node has it on disk, and no node has it in memory
  nodes @4 :List(Id);     # the nodes that have the bytes; at most 64
}

struct Located {
  # Agent -> process, answers Locate.
  request @0 :UInt64;
  places @1 :List(ObjectPlace);  # at most 512
  more @2 :Bool;                 # the answer goes on in another message
}

# --- why a wait lasts ---

struct Explain {
  # Process -> agent, answered by Explained with the same request number: asks why a lease request of the sender, or an
  # actor, waits.
  request @0 :UInt64;
  key @1 :UInt64;       # of the sender's RequestLease; without an actor
  actor @2 :Id;         # absent: `key` counts
}

struct Explained {
  # Agent -> process, answers Explain.
  request @0 :UInt64;
  why @1 :Text;         # one sentence; empty: the agent knows of no wait
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
  draining @12 :Bool;
  suspect @13 :Bool;            # control has not heard it for some seconds
  address @14 :Text;            # host at which other nodes reach it; empty: a private node
}

struct Nodes {
  # Agent -> process, answers ListNodes.
  request @0 :UInt64;
  rows @1 :List(NodeRow);  # at most 4096
  more @2 :Bool;           # the answer goes on in another message
}

struct Inquire {
  # Process -> agent: a question, answered by one or more Answer.
  request @0 :UInt64;
  about @1 :UInt8;  # 0: the payload is a ToControl of control.capnp; 1: asks for a node's MemoryReport, without payload
  node @2 :Id;      # with 1, 2, 4 and 5: that node; absent: the agent's own
  # about 2 asks for the next piece of a job's log on the node, without payload:
  job @3 :Id;
  afterBytes @4 :UInt64;    # offset behind what the asker has
  mostBytes @5 :UInt32;     # of the answer; at most 1 MiB
  waitMs @6 :UInt32;        # how long the answer may wait for lines; at most 10000
  untilComplete @7 :Bool;   # answered at once when no line can follow
  # about 3 asks for rows of all nodes, without payload:
  rows @8 :ListQuestion;
  # about 4 asks for the stacks of processes of the node, without payload: one of these, not two.
  stackPid @9 :Int32;
  stackActor @10 :Id;
  stackJob @11 :Id;
  # about 5, to the driver's node: stop this job. Only observers ask it.
  stopJob @12 :Id;
  stopUser @13 :Text;  # who asks; at most 256 bytes
}

struct ListQuestion {
  # Which rows of a list are asked for; runtime/observe/question.hpp.
  kind @0 :UInt8;     # 0 tasks, 1 functions, 2 processes, 3 nodes, 4 actors, 5 jobs, 6 objects, 7 reasons, 8 waits, 9 queues, 10 events
  limit @1 :UInt32;
  where @2 :Text;
  sort @3 :Text;
  after @4 :Text;
}

struct AskRows {
  # Agent -> driver or worker, answered by GiveRows with the same request number: asks for rows that only the receiver
  # knows. The payload says what the agent knows about the receiver's surroundings (runtime/observe/answer_bytes.hpp).
  request @0 :UInt64;
  rows @1 :ListQuestion;
}

struct GiveRows {
  # Driver or worker -> agent, answers AskRows. The payload is a piece of an answer (runtime/observe/answer_bytes.hpp).
  # The pieces come in order.
  request @0 :UInt64;
  offsetBytes @1 :UInt64;
  wholeBytes @2 :UInt64;
  why @3 :Text;       # not empty: the sender has no answer, and there is no payload
}

struct Answer {
  # Agent -> process, answers Inquire. The payload is a piece of the answer: control's answer, a MemoryReport of
  # memory.capnp, a LogBatch (wire/log_batch.hpp) or rows (observe/answer_bytes.hpp). The pieces come in order. With an error there is no payload.
  request @0 :UInt64;
  offsetBytes @1 :UInt64;
  wholeBytes @2 :UInt64;
  error @3 :List(ErrorEntry);
}

struct Shutdown {
  # Agent -> process: end yourself now.
  # Driver -> agent: its job is finished.
  # Worker -> agent, before storeAttached: it cannot start; the system refused it a thread, memory or a descriptor.
  why @0 :Text;      # for the log
  cancels @1 :Bool;  # agent -> driver: a person stops the job, so its waits end as cancelled
}
