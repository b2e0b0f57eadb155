@0xb8821e40888fdbc0;
# What agents and control say to each other, and what agents say about control.
#
# Frames are those of call.capnp without payload: conversation 3 to control, 4 from control, 5 between agents. They travel
# over a Link: exactly once and in order, from one life of a process to one life of another.
#
# Order. RegisterNode is an agent's first message to each control; Registered answers it, and NodeHosts follows once the
# agent has told of its starts. Whoever speaks with an epoch that is over is answered Fence.
#
# To control and from it: who sent a message and who gets it is known from the connection and does not stand in it, so
# that nobody can speak for another.
#
# A member of the union that a reader does not know gives it the error `unavailable` ("unsupported message N") and ends
# the connection.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema::control");
using import "value.capnp".Id;
using import "value.capnp".ErrorEntry;
using import "value.capnp".Amount;
using import "value.capnp".Label;
using import "value.capnp".ResourceDemand;
using import "node.capnp".SitePace;

struct ToControl {
  union {
    # The node.
    registerNode @0 :RegisterNode;
    heartbeat @1 :Heartbeat;
    leaving @2 :Leaving;
    report @3 :NodeReport;
    # Actors.
    spawnActor @4 :SpawnActor;
    actorStarted @5 :ActorStarted;
    actorStartFailed @6 :ActorStartFailed;
    actorGone @7 :ActorGone;
    killActor @8 :KillActor;
    handlesGone @9 :HandlesGone;
    findActor @10 :FindActor;
    watchActor @11 :WatchActor;
    nodeHosts @12 :NodeHosts;
    # Jobs.
    startJob @13 :StartJob;
    finishJob @14 :FinishJob;
    driverDied @15 :DriverDied;
    getJob @16 :GetJob;
    # The rest.
    keyValue @17 :KeyValueRequest;
    list @18 :ListRequest;
    drain @19 :DrainRequest;
    pace @20 :NodePace;
    nameObject @21 :NameObject;
  }
}

struct FromControl {
  union {
    # The node.
    registered @0 :Registered;
    heartbeatAnswer @1 :HeartbeatAnswer;
    roster @2 :Roster;
    fence @3 :Fence;
    drain @4 :Void;  # nothing new on this node; it leaves when it is empty
    clusterNodes @5 :ClusterNodes;
    nodeIsDead @6 :NodeIsDead;
    # Actors.
    startActorAt @7 :StartActorAt;
    stopActorAt @8 :StopActorAt;
    actorReply @9 :ActorReply;
    actorLocation @10 :ActorLocation;
    # Jobs.
    jobReply @11 :JobReply;
    jobEnded @12 :JobEnded;
    jobInfo @13 :JobInfo;
    # The rest.
    kvReply @14 :KvReply;
    listReply @15 :ListReply;
    namedObject @16 :NamedObject;
    objectForgotten @17 :ObjectForgotten;
  }
}

struct BetweenAgents {
  union {
    ask @0 :AskControl;
    answer @1 :ControlAnswer;
  }
}

# --- the node ---

struct Resources {
  # What a node has, or has free. Free amounts are negative while more runs than there is room for. All numbers lie
  # within ±2^61.
  cpuTenThousandths @0 :Int64;
  gpuTenThousandths @1 :Int64;
  memoryBytes @2 :Int64;
  custom @3 :List(Amount);  # at most 64
}

struct NodeDescription {
  id @0 :Id;
  name @1 :Text;
  address @2 :Text;         # where its peers and probes reach it
  publicKey @3 :Data;       # CURVE; at most 256 bytes
  resources @4 :Resources;
  labels @5 :List(Label);   # at most 64
  besideControl @6 :Bool;   # on control's host; wins ties
}

struct RegisterNode {
  # Agent -> control, first; repeated until answered by Registered.
  node @0 :NodeDescription;
  epoch @1 :UInt64;    # 0: a new process
  session @2 :Id;      # of this start of the agent
  number @3 :UInt64;   # comes back in the answer
}

struct Registered {
  # Control -> agent, answers RegisterNode. From an older control than one already heard: ignored.
  epoch @0 :UInt64;
  controlEpoch @1 :UInt64;
  session @2 :Id;
  number @3 :UInt64;
}

struct Heartbeat {
  # Agent -> control, every second and when a newer roster was applied; answered by HeartbeatAnswer.
  epoch @0 :UInt64;
  sequence @1 :UInt64;
  roster @2 :UInt64;  # version applied last
}

struct HeartbeatAnswer {
  controlEpoch @0 :UInt64;
  sequence @1 :UInt64;
}

struct Leaving {
  # Agent -> control: its workers are stopped and it ends itself.
  epoch @0 :UInt64;
}

struct Roster {
  # Control -> agent. Replaced as a whole; a lower version is ignored.
  version @0 :UInt64;
  voters @1 :List(Id);         # sorted; at most 4096
  besideControl @2 :Id;
  fenced @3 :List(Fenced);  # sorted; at most 4096
}

struct Fenced {
  node @0 :Id;
  epoch @1 :UInt64;
}

struct Fence {
  # Control -> agent: this epoch is over, end yourself now.
  epoch @0 :UInt64;
  why @1 :Text;
}

struct NodeReport {
  # Agent -> control, when it changed, at most every 100 ms. What never changes stands in the description.
  free @0 :Resources;
  gpuFreeTenThousandths @1 :List(Int64);  # per device; at most 64
  accepts @2 :Bool = true;                # false: nothing new there
  waiting @3 :UInt32;                     # requests queued there
  storeCapacityBytes @4 :UInt64;
  storeUsedBytes @5 :UInt64;
  workers @6 :UInt32;
  unreachable @7 :List(Id);  # nodes to which it gets no connection, for some seconds now; at most 64
}

struct NodePace {
  # Agent -> control, at most twice a second: how long tasks ran there.
  sites @0 :List(SitePace);  # at most 32
}

struct ClusterRow {
  description @0 :NodeDescription;
  epoch @1 :UInt64;
  suspect @2 :Bool;
  draining @3 :Bool;
  report @4 :NodeReport;
  avoided @5 :Bool;  # it is slow: nothing new goes there that others can take
  slow @6 :Text;     # why, or that it is tried again; empty: it is as fast as others
}

struct ClusterNodes {
  # Control -> agent: all live nodes. A lower version is ignored.
  version @0 :UInt64;
  rows @1 :List(ClusterRow);  # sorted by id; at most 4096
}

struct NodeIsDead {
  # Control -> agent: dead for ever; what it had may be running elsewhere.
  node @0 :Id;
  epoch @1 :UInt64;
  why @2 :Text;
}

struct DrainRequest {
  # Agent -> control, answered by ListReply of the nodes.
  request @0 :UInt64;
  node @1 :Id;
}

# --- actors ---

struct Locality {
  node @0 :Id;
  sizeBytes @1 :UInt64;
}

struct ActorSpec {
  # All that is needed to make the actor anywhere.
  id @0 :Id;
  job @1 :Id;
  name @2 :Text;                 # may be empty
  nameSpace @3 :Text;
  className @4 :Text;
  creation @5 :Data;             # a frame of peer.capnp's Creation; opaque to control
  lifetime @6 :Id;               # the object that its handles count
  owner @7 :Id;                  # the node that keeps these counts
  demand @8 :ResourceDemand;
  locality @9 :List(Locality);   # where its arguments are; at most 4096
  maxRestarts @10 :Int32;        # -1: without limit
  restartWindowNs @11 :Int64;    # 0: ever; not negative
  detached @12 :Bool;
}

struct SpawnActor {
  # Agent -> control, answered by ActorReply. Repeating it is harmless.
  request @0 :UInt64;
  spec @1 :ActorSpec;
  getIfExists @2 :Bool;
  again @3 :Bool;  # it was sent to an earlier control, which may have begun a life of it
}

struct ActorReply {
  # Control -> agent, answers SpawnActor and FindActor.
  request @0 :UInt64;
  actor @1 :Id;      # absent: not found, or an error
  className @2 :Text;
  lifetime @3 :Id;
  owner @4 :Id;
  created @5 :Bool;  # false: getIfExists found it
  error @6 :List(ErrorEntry);
}

struct StartActorAt {
  # Control -> agent, always answered by ActorStarted or ActorStartFailed.
  node @0 :Id;         # the receiver
  epoch @1 :UInt64;    # its epoch; another one is refused
  spec @2 :ActorSpec;
  incarnation @3 :UInt64;
  restarted @4 :Bool;
  restarts @5 :UInt32;  # so far, within its window
}

struct StopActorAt {
  # Control -> agent, which reports the death as it does any other.
  node @0 :Id;
  epoch @1 :UInt64;
  actor @2 :Id;
  incarnation @3 :UInt64;
  graceful @4 :Bool;  # it may finish what it was asked
  why @5 :Text;
  forGood @6 :Bool;   # no other life follows, whatever control hears of its end
}

struct ActorStarted {
  actor @0 :Id;
  incarnation @1 :UInt64;
  worker @2 :UInt64;  # process index on the sender
}

struct ActorStartFailed {
  actor @0 :Id;
  incarnation @1 :UInt64;
  error @2 :List(ErrorEntry);  # empty: no worker could be had
}

struct ActorGone {
  # Agent -> control: the process of an actor that had started is dead.
  actor @0 :Id;
  incarnation @1 :UInt64;
  error @2 :List(ErrorEntry);
  intended @3 :Bool;  # it was told to end, or ended itself
}

struct KillActor {
  actor @0 :Id;
  mayRestart @1 :Bool;
  life @2 :UInt64;  # with mayRestart: no later one than this; 0: the one that there is
  job @3 :Id;       # that kills it; absent: the agent itself, or one that does not say
  request @4 :UInt64;  # not 0: answered by ActorReply with an error, if it is refused
}

struct HandlesGone {
  # The owner of the actor's lifetime object -> control: nobody holds a handle any more.
  actor @0 :Id;
}

struct FindActor {
  # Agent -> control, answered by ActorReply.
  request @0 :UInt64;
  nameSpace @1 :Text;
  name @2 :Text;
}

struct WatchActor {
  # Agent -> control, answered by ActorLocation now and at every change.
  actor @0 :Id;
  on @1 :Bool = true;  # false: no more of it
}

struct ActorLocation {
  # Control -> watchers. A lower incarnation than one already seen is ignored.
  actor @0 :Id;
  state @1 :UInt8;     # 0 pending, 1 placing, 2 alive, 3 restarting, 4 dead
  incarnation @2 :UInt64;
  node @3 :Id;         # alive: where
  epoch @4 :UInt64;    # of that node
  worker @5 :UInt64;   # process index there
  error @6 :List(ErrorEntry);  # dead: why; neither dead nor alive: how its last life ended, if it had one
  retryIn @7 :UInt64;  # ns from now on for which its next life waits
}

struct HostedActor {
  spec @0 :ActorSpec;
  incarnation @1 :UInt64;
  worker @2 :UInt64;
  restarts @3 :UInt32;  # so far, within its window
  ended @4 :Bool;       # its process is gone and its ActorGone follows again: whether control took it in is unknown
}

struct NodeHosts {
  # Agent -> control, after each Registered: all that it hosts, in as many messages as a Link needs.
  epoch @0 :UInt64;
  controlEpoch @1 :UInt64;      # of the control that it obeys
  actors @2 :List(HostedActor);  # at most 16384
  page @3 :UInt32;              # from 0 on
  more @4 :Bool;                # the next page follows
  number @5 :UInt64;            # of the Registered that it follows
}

# --- jobs ---

struct JobFile {
  path @0 :Text;    # at most 4096 bytes
  sha256 @1 :Text;  # in hexadecimal
}

struct JobRecord {
  id @0 :Id;
  name @1 :Text;
  state @2 :UInt8;              # 0 running, 1 finished, 2 failed
  node @3 :Id;                  # of its driver
  epoch @4 :UInt64;             # of that node
  why @5 :Text;
  startedNs @6 :Int64;          # wall clock, for people
  endedNs @7 :Int64;
  program @8 :Text;             # on the driver's host; at most 4096 bytes
  arguments @9 :List(Text);     # at most 4096, of 128 KiB each
  files @10 :List(JobFile);     # the executable, then its shared objects; at most 4096
  ignoredSignals @11 :UInt64;   # what its workers are started with: bit n - 1 is signal n
  blockedSignals @12 :UInt64;
}

struct StartJob {
  # Agent -> control, answered by JobReply. Repeating it is harmless.
  request @0 :UInt64;
  job @1 :JobRecord;
}

struct JobReply {
  request @0 :UInt64;
  error @1 :List(ErrorEntry);
}

struct FinishJob {
  job @0 :Id;
}

struct DriverDied {
  job @0 :Id;
  why @1 :Text;
}

struct JobEnded {
  # Control -> agents: what runs for it is to go.
  job @0 :Id;
  state @1 :UInt8;
  why @2 :Text;
}

struct GetJob {
  # Agent -> control, answered by JobInfo.
  request @0 :UInt64;
  job @1 :Id;
}

struct JobInfo {
  request @0 :UInt64;
  job @1 :JobRecord;  # absent: not known
}

# --- key-value map ---

struct KeyValueRequest {
  # Agent -> control, answered by KvReply. All bytes are the user's.
  request @0 :UInt64;
  verb @1 :UInt8;      # 0 get, 1 put, 2 erase, 3 list
  nameSpace @2 :Data;
  key @3 :Data;        # list: a prefix
  value @4 :Data;      # put
  expected @5 :Data;   # put with mode 2
  mode @6 :UInt8;      # put: 0 always, 1 if absent, 2 if equal
}

struct KvReply {
  request @0 :UInt64;
  done @1 :Bool;            # something was changed, or found
  value @2 :Data;           # absent: none; of no bytes: an empty one
  keys @3 :List(Data);      # list: in byte order; at most 10000
  error @4 :List(ErrorEntry);
}

# --- names of objects ---

struct ObjectName {
  name @0 :Text;
  object @1 :Id;
  owner @2 :Id;           # the node whose agent owns the object's record
  keeper @3 :Id;          # the node whose agent holds it for the name's sake
  fingerprint @4 :UInt64; # of the value's type, ...
  type @5 :Text;          # ... and its name, for people
  job @6 :Id;             # whose program named it
  sizeBytes @7 :UInt64;
}

struct NameObject {
  # Agent -> control, answered by NamedObject, and repeated to another control until it is.
  request @0 :UInt64;
  verb @1 :UInt8;         # 0 detach: the object has this name; 1 find: what has it; 2 whose: a name of the object, if it
                          # has one; 3 forget: nothing has it any more (with an object: that one has not)
  what @2 :ObjectName;    # detach; else its name, or its object, alone
}

struct NamedObject {
  # Control -> agent. With `done`: what has, or had, the name.
  request @0 :UInt64;
  done @1 :Bool;
  what @2 :ObjectName;
  error @3 :List(ErrorEntry);
}

struct ObjectForgotten {
  # Control -> the keeper, if it lives: nothing has the name any more.
  name @0 :Text;
  object @1 :Id;
}

# --- lists for people ---

struct ListRequest {
  # Agent -> control, answered by ListReply.
  request @0 :UInt64;
  what @1 :UInt8;  # 0 nodes, 1 actors, 2 jobs, 3 names of objects
}

struct ActorRow {
  actor @0 :Id;
  job @1 :Id;
  name @2 :Text;
  nameSpace @3 :Text;
  className @4 :Text;
  state @5 :UInt8;  # as in ActorLocation
  node @6 :Id;
  incarnation @7 :UInt64;
  restarts @8 :UInt32;
  detached @9 :Bool;
  why @10 :Text;
}

struct ListReply {
  request @0 :UInt64;
  nodes @1 :List(ClusterRow);  # at most 4096, as are the others
  actors @2 :List(ActorRow);
  jobs @3 :List(JobRecord);
  objects @4 :List(ObjectName);
  leftOff @5 :UInt32;  # rows for which there was no room
}

# --- between agents ---

struct AskControl {
  # Agent -> voter, answered by ControlAnswer: do you hear control, and am I fenced?
  epoch @0 :UInt64;
  number @1 :UInt64;
  node @2 :Id;  # the asker; refused when the connection knows it by another name
}

struct ControlAnswer {
  number @0 :UInt64;
  hearsControl @1 :Bool;
  fenced @2 :Bool;
  node @3 :Id;  # who answers; likewise
}
