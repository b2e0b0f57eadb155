@0xb8821e40888fdbc0;
# The conversation of agents with control, and of agents with each other about control.
#
# Frames are those of call.capnp without payload: conversation 3 to control, 4 from control, 5 between agents. They travel
# over a Link (runtime/net/link.hpp): exactly once and in order, from one run of a process to one run of another.
#
# Order. RegisterNode is an agent's first message to each control, and Registered answers it. NodeHosts follows once the
# agent has reported the actors that it started. Control answers Fence to a message whose epoch is over.
#
# Sender and receiver of a message to or from control follow from the connection. The messages do not name them, so that
# no node can speak for another.
#
# A reader that does not know a member of the union gets the error `unavailable` ("unsupported message N") and ends the
# connection.

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
    drain @4 :DrainNode;
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
    clusterEnds @18 :ClusterEnds;
    notice @19 :Notice;
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
  # The resources that a node has, or has free. A free amount is negative while more runs than there is room for. All
  # numbers lie within ±2^61.
  cpuTenThousandths @0 :Int64;
  gpuTenThousandths @1 :Int64;
  memoryBytes @2 :Int64;
  custom @3 :List(Amount);  # at most 64
}

struct NodeDescription {
  id @0 :Id;
  name @1 :Text;
  address @2 :Text;         # the address at which other agents and control reach it
  publicKey @3 :Data;       # CURVE; at most 256 bytes
  resources @4 :Resources;
  labels @5 :List(Label);   # at most 64
  besideControl @6 :Bool;   # it runs on control's host; it wins ties
}

struct RegisterNode {
  # Agent -> control, the first message; repeated until Registered answers it.
  node @0 :NodeDescription;
  epoch @1 :UInt64;    # the epoch that control gave this agent; 0: a new process
  session @2 :Id;      # of this start of the agent
  number @3 :UInt64;   # comes back in Registered
}

struct Registered {
  # Control -> agent, answers RegisterNode. The agent ignores it when it comes from a control older than one it has heard.
  epoch @0 :UInt64;
  controlEpoch @1 :UInt64;
  session @2 :Id;
  number @3 :UInt64;
}

struct Heartbeat {
  # Agent -> control, every second and when a newer roster was applied; answered by HeartbeatAnswer.
  epoch @0 :UInt64;
  sequence @1 :UInt64;
  roster @2 :UInt64;  # version of the Roster that the agent applied last
}

struct HeartbeatAnswer {
  # Control -> agent, answers Heartbeat.
  controlEpoch @0 :UInt64;
  sequence @1 :UInt64;
}

struct Leaving {
  # Agent -> control: the agent has stopped its workers and ends itself.
  epoch @0 :UInt64;
}

struct Roster {
  # Control -> agent: the voters, which an agent asks when it does not hear control, and the fenced nodes. It replaces the
  # Roster before as a whole. The agent ignores a lower version.
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
  # Agent -> control, when it changed, at most every 100 ms. NodeDescription has what never changes.
  free @0 :Resources;
  gpuFreeTenThousandths @1 :List(Int64);  # per device; at most 64
  accepts @2 :Bool = true;                # false: place nothing new there
  waiting @3 :UInt32;                     # lease requests queued there
  storeCapacityBytes @4 :UInt64;
  storeUsedBytes @5 :UInt64;
  workers @6 :UInt32;
  unreachable @7 :List(Id);  # nodes to which it has had no connection for some seconds; at most 64
  mostActors @8 :UInt32 = 4294967295;  # it has processes for no more actors
}

struct NodePace {
  # Agent -> control, at most twice a second: the run times of tasks on the sender's node.
  sites @0 :List(SitePace);  # at most 32
}

struct ClusterRow {
  # One live node, as control sees it.
  description @0 :NodeDescription;
  epoch @1 :UInt64;
  suspect @2 :Bool;
  draining @3 :Bool;
  report @4 :NodeReport;
  avoided @5 :Bool;  # it is slow: new work goes there only if no other node can take it
  slow @6 :Text;     # a sentence about why it is slow or that it is tried again; empty: it is as fast as others
}

struct ClusterNodes {
  # Control -> agent: all live nodes. The agent ignores a lower version.
  version @0 :UInt64;
  rows @1 :List(ClusterRow);  # sorted by id; at most 4096
}

struct ClusterEnds {
  # Control -> every registered agent: the head ends the cluster. The agent ends its node and sends Leaving.
  why @0 :Text;  # a sentence
}

struct NodeIsDead {
  # Control -> agent: this epoch of the node is dead for ever. Its actors may run elsewhere now.
  node @0 :Id;
  epoch @1 :UInt64;
  why @2 :Text;
}

struct DrainRequest {
  # Agent -> control: drain this node. Answered by ListReply of the nodes.
  request @0 :UInt64;
  node @1 :Id;
  withinNs @2 :Int64;  # at least 0
}

struct DrainNode {
  # Control -> agent: take no new tasks or actors. Leave when the node has no lease, actor or driver, or when this time is over.
  withinNs @0 :Int64;  # at least 0
}

# --- actors ---

struct Locality {
  # How many bytes of an actor's arguments a node has.
  node @0 :Id;
  sizeBytes @1 :UInt64;
}

struct ActorSpec {
  # Everything that a node needs to make the actor.
  id @0 :Id;
  job @1 :Id;
  name @2 :Text;                 # may be empty
  nameSpace @3 :Text;
  className @4 :Text;
  creation @5 :Data;             # a frame of peer.capnp's Creation; opaque to control
  lifetime @6 :Id;               # the object whose holders keep the actor alive
  owner @7 :Id;                  # the node whose agent owns that object
  demand @8 :ResourceDemand;
  locality @9 :List(Locality);   # the nodes that have its arguments; at most 4096
  maxRestarts @10 :Int32;        # -1: without limit
  restartWindowNs @11 :Int64;    # 0: the actor's whole life; not negative
  detached @12 :Bool;
}

struct SpawnActor {
  # Agent -> control: make this actor. Answered by ActorReply. A repeated SpawnActor has no further effect.
  request @0 :UInt64;
  spec @1 :ActorSpec;
  getIfExists @2 :Bool;
  again @3 :Bool;  # the agent sent it to an earlier control, which may have begun a life of the actor
}

struct ActorReply {
  # Control -> agent, answers SpawnActor and FindActor.
  request @0 :UInt64;
  actor @1 :Id;      # absent: there is none, or an error
  className @2 :Text;
  lifetime @3 :Id;
  owner @4 :Id;
  created @5 :Bool;  # false: getIfExists found an actor with the name
  error @6 :List(ErrorEntry);
}

struct StartActorAt {
  # Control -> agent: begin a life of this actor. Always answered by ActorStarted or ActorStartFailed.
  node @0 :Id;         # the receiver
  epoch @1 :UInt64;    # the receiver's epoch; the agent refuses another one
  spec @2 :ActorSpec;
  incarnation @3 :UInt64;
  restarted @4 :Bool;
  restarts @5 :UInt32;  # number of restarts so far, within the restart window
}

struct StopActorAt {
  # Control -> agent: end this life of the actor. The agent reports the end by ActorGone, as it does any other.
  node @0 :Id;
  epoch @1 :UInt64;
  actor @2 :Id;
  incarnation @3 :UInt64;
  graceful @4 :Bool;  # it may finish the calls that it has received
  why @5 :Text;
  forGood @6 :Bool;   # no other life follows, whatever ActorGone says
}

struct ActorStarted {
  # Agent -> control, answers StartActorAt.
  actor @0 :Id;
  incarnation @1 :UInt64;
  worker @2 :UInt64;  # process index on the sender
}

struct ActorStartFailed {
  # Agent -> control, answers StartActorAt.
  actor @0 :Id;
  incarnation @1 :UInt64;
  error @2 :List(ErrorEntry);  # empty: the agent got no worker
}

struct ActorGone {
  # Agent -> control: the process of an actor that had started is dead.
  actor @0 :Id;
  incarnation @1 :UInt64;
  error @2 :List(ErrorEntry);
  intended @3 :Bool;  # the actor was told to end, or ended itself
}

struct KillActor {
  # Agent -> control: end the actor's present life.
  actor @0 :Id;
  mayRestart @1 :Bool;
  life @2 :UInt64;  # with mayRestart: end no incarnation later than this one; 0: end the present one
  job @3 :Id;       # the job that kills it; absent: the agent itself, or an unknown job
  request @4 :UInt64;  # not 0: control answers ActorReply with an error, if it refuses
}

struct HandlesGone {
  # The owner of the actor's lifetime object -> control: that object has no holder left.
  actor @0 :Id;
}

struct FindActor {
  # Agent -> control: asks for the actor with this name. Answered by ActorReply.
  request @0 :UInt64;
  nameSpace @1 :Text;
  name @2 :Text;
}

struct WatchActor {
  # Agent -> control: asks for an ActorLocation now and one at every change.
  actor @0 :Id;
  on @1 :Bool = true;  # false: send no more of them
}

struct ActorLocation {
  # Control -> every agent that sent WatchActor. The agent ignores an incarnation lower than one that it has seen.
  actor @0 :Id;
  state @1 :UInt8;     # 0 pending, 1 placing, 2 alive, 3 restarting, 4 dead
  incarnation @2 :UInt64;
  node @3 :Id;         # alive: the node that hosts it
  epoch @4 :UInt64;    # alive: of that node
  worker @5 :UInt64;   # alive: process index on that node
  error @6 :List(ErrorEntry);  # dead: the reason; neither dead nor alive: how its last life ended, if it had one
  retryIn @7 :UInt64;  # ns until its next life begins
}

struct HostedActor {
  # One actor of a NodeHosts.
  spec @0 :ActorSpec;
  incarnation @1 :UInt64;
  worker @2 :UInt64;
  restarts @3 :UInt32;  # number of restarts so far, within the restart window
  ended @4 :Bool;       # its process is gone; the agent sends ActorGone again, since control may not have received it
}

struct NodeHosts {
  # Agent -> control, after each Registered: all actors that the node hosts, in as many messages as a Link needs.
  epoch @0 :UInt64;
  controlEpoch @1 :UInt64;      # of the control that the agent obeys
  actors @2 :List(HostedActor);  # at most 16384
  page @3 :UInt32;              # number of this message, from 0
  more @4 :Bool;                # the next page follows
  number @5 :UInt64;            # number in the Registered before
}

# --- jobs ---

struct JobFile {
  path @0 :Text;    # at most 4096 bytes
  sha256 @1 :Text;  # in hexadecimal
}

struct JobRecord {
  id @0 :Id;
  name @1 :Text;
  state @2 :UInt8;              # 0 running, 1 finished, 2 failed, 3 stopped
  node @3 :Id;                  # of its driver
  epoch @4 :UInt64;             # of that node
  why @5 :Text;
  startedNs @6 :Int64;          # wall clock, for people
  endedNs @7 :Int64;
  program @8 :Text;             # on the driver's host; at most 4096 bytes
  arguments @9 :List(Text);     # at most 4096, of 128 KiB each
  files @10 :List(JobFile);     # the executable, then its shared objects; at most 4096
  ignoredSignals @11 :UInt64;   # signals that its workers ignore at their start: bit n - 1 is signal n
  blockedSignals @12 :UInt64;   # signals that its workers block at their start
  user @13 :Text;               # that the driver's node runs as; at most 256 bytes
  pid @14 :UInt32;              # of the driver
}

struct StartJob {
  # Agent -> control: a driver has joined. Answered by JobReply. A repeated StartJob has no further effect.
  request @0 :UInt64;
  job @1 :JobRecord;
}

struct JobReply {
  # Control -> agent, answers StartJob.
  request @0 :UInt64;
  error @1 :List(ErrorEntry);
}

struct FinishJob {
  # Agent -> control: the driver has finished its job.
  job @0 :Id;
  stoppedWhy @1 :Text;  # not empty: a person has stopped the job, and how its driver then ended does not count
}

struct DriverDied {
  # Agent -> control: the driver died before it finished its job.
  job @0 :Id;
  why @1 :Text;
}

struct JobEnded {
  # Control -> agents: end what runs for this job.
  job @0 :Id;
  state @1 :UInt8;
  why @2 :Text;
}

struct GetJob {
  # Agent -> control: asks for a job. Answered by JobInfo.
  request @0 :UInt64;
  job @1 :Id;
}

struct JobInfo {
  # Control -> agent, answers GetJob.
  request @0 :UInt64;
  job @1 :JobRecord;  # absent: control does not know the job
}

# --- key-value map ---

struct KeyValueRequest {
  # Agent -> control, answered by KvReply. Name space, keys and values are the user's bytes.
  request @0 :UInt64;
  verb @1 :UInt8;      # 0 get, 1 put, 2 erase, 3 list
  nameSpace @2 :Data;
  key @3 :Data;        # list: a prefix
  value @4 :Data;      # put
  expected @5 :Data;   # put with mode 2
  mode @6 :UInt8;      # put: 0 always, 1 if absent, 2 if equal
}

struct KvReply {
  # Control -> agent, answers KeyValueRequest.
  request @0 :UInt64;
  done @1 :Bool;            # put and erase: the map has changed; get: there is a value; list: always
  value @2 :Data;           # get, or a put that changed nothing: the present value. Absent: none; of no bytes: empty
  keys @3 :List(Data);      # list: in byte order; at most 10000
  error @4 :List(ErrorEntry);
}

# --- names of objects ---

struct ObjectName {
  name @0 :Text;
  object @1 :Id;
  owner @2 :Id;           # the node whose agent owns the object's record
  keeper @3 :Id;          # the node whose agent holds the object because of the name
  fingerprint @4 :UInt64; # of the value's type
  type @5 :Text;          # name of the value's type, for people
  job @6 :Id;             # the job that named it
  sizeBytes @7 :UInt64;
}

struct NameObject {
  # Agent -> control, answered by NamedObject. The agent repeats it to a new control until it is answered.
  request @0 :UInt64;
  verb @1 :UInt8;         # 0 detach: give the object this name; 1 find: the object with this name; 2 whose: a name of
                          # this object, if it has one; 3 forget: free the name (with an object: only if it has it)
  what @2 :ObjectName;    # detach: whole; otherwise the name or the object alone
}

struct NamedObject {
  # Control -> agent, answers NameObject. With `done`, `what` is the object that has, or had, the name.
  request @0 :UInt64;
  done @1 :Bool;
  what @2 :ObjectName;
  error @3 :List(ErrorEntry);
}

struct ObjectForgotten {
  # Control -> the keeper, if it lives: no object has the name any more, and the keeper drops its count.
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
  # Control -> agent, answers ListRequest and DrainRequest.
  request @0 :UInt64;
  nodes @1 :List(ClusterRow);  # at most 4096 rows in each list
  actors @2 :List(ActorRow);
  jobs @3 :List(JobRecord);
  objects @4 :List(ObjectName);
  leftOff @5 :UInt32;  # rows for which there was no room
  deadNodes @6 :List(DeadNode);  # with the nodes; at most 256, the newest first
}

struct DeadNode {
  # A node that died or left in the last day.
  description @0 :NodeDescription;  # without the key
  epoch @1 :UInt64;
  why @2 :Text;
  diedUnixNs @3 :Int64;
  left @4 :Bool;  # it has said that it goes
}

struct Notice {
  # Control -> the agent beside it: a line of control's log.
  kind @0 :UInt8;  # 0 refused message, 1 trouble with an actor, 2 slow node
  text @1 :Text;
}

# --- between agents ---

struct AskControl {
  # Agent -> voter: asks whether the voter hears control, and whether the asker is fenced. Answered by ControlAnswer.
  epoch @0 :UInt64;
  number @1 :UInt64;
  node @2 :Id;  # the asker; the receiver refuses it when the connection belongs to another node
}

struct ControlAnswer {
  # Voter -> agent, answers AskControl.
  number @0 :UInt64;
  hearsControl @1 :Bool;
  fenced @2 :Bool;
  node @3 :Id;  # the voter; the receiver refuses it when the connection belongs to another node
}
