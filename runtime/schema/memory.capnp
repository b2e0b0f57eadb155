@0xd1c5f0a7b6e94f23;
# The report about a node's memory: processes, jobs, objects and their holders. It answers an Inquire about memory.
# It is one message without a frame. It travels in pieces, as the payload of Answer and PeerAnswer.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");
using import "value.capnp".Id;

struct MemoryReport {
  node @0 :Id;
  name @1 :Text;
  arenaBytes @2 :UInt64;
  extentBytes @3 :UInt64;      # size of the granted extents, those ready for the next grant included
  readyBytes @4 :UInt64;       # of these, the extents that are ready for the next grant
  objectBytes @5 :UInt64;      # size of the objects in memory that the agent knows
  objects @6 :UInt64;          # number of these objects
  waitingObjects @7 :UInt32;   # freed objects that a reader still pins
  spilled @8 :UInt64;          # objects that are on disk only
  spilledBytes @9 :UInt64;     # their size
  diskBytes @10 :UInt64;       # disk space that they take
  restored @11 :UInt64;        # objects read back from disk since the agent's start
  badFolders @12 :UInt32;      # spill folders to which the agent does not write any more
  asksWaiting @13 :UInt64;     # requests that wait for memory
  ownHoles @14 :UInt32;        # free blocks in the agent's own extents
  ownFreeBytes @15 :UInt64;
  ownLargestFree @16 :UInt64;
  processes @17 :List(MemoryProcess);
  rows @18 :List(MemoryObject);  # the largest objects
  rowsInAll @19 :UInt64;         # number of all objects
  spills @20 :Bool;              # there is a folder to spill to
  jobQuotaBytes @21 :UInt64;     # of each job at this node; 0: no limit
  jobs @22 :List(MemoryJob);
  copies @23 :Bool;              # there is a shared folder for copies
  copied @24 :UInt64;            # objects of this node with a copy there
  copyBytes @25 :UInt64;         # disk space of these copies
  copyErrors @26 :UInt64;        # errors of the shared folders, a full disk not counted
  sites @27 :List(MemorySite);   # the call sites with most bytes
}

struct MemorySite {
  # A place in a program that makes objects.
  text @0 :Text;     # "main.cpp:12", or the function whose results or arguments the objects are
  objects @1 :UInt64;
  bytes @2 :UInt64;
  made @3 :UInt64;   # objects made since the node's start
  grows @4 :Bool;    # in each of the last spans of time the number of its objects has grown
}

struct MemoryJob {
  job @0 :Id;        # zero: a job that has ended
  bytes @1 :UInt64;  # of objects that its processes have made at this node, in memory and on disk
}

struct MemoryProcess {
  kind @0 :UInt8;         # 0 agent, 1 driver, 2 worker, 3 actor, 4 ended
  pid @1 :UInt32;         # 0: unknown
  job @2 :Id;
  silentNs @3 :UInt64;    # since its last message to the agent
  extents @4 :UInt32;     # number of extents granted to it
  extentBytes @5 :UInt64;
  objects @6 :UInt64;     # objects that it made and that the agent knows
  objectBytes @7 :UInt64;
}

struct MemoryObject {
  id @0 :Id;              # zero: an object that only its holder can name
  state @1 :UInt8;        # 0 pending, 1 error, 2 inline, 3 in memory, 4 on disk, 5 at another node, 6 forwarded
  bytes @2 :UInt64;
  owner @3 :Id;           # the node whose agent counts its holders
  makerPid @4 :UInt32;    # 0: unknown, or the process has ended
  job @5 :Id;
  pins @6 :UInt32;        # views that are open now
  ageNs @7 :UInt64;       # 0: unknown, as for small objects
  unusedNs @8 :UInt64;    # since it was made, opened through the agent, or last seen with an open view
  holders @9 :List(MemoryHolder);
  held @10 :Int64;        # number of all refs, those of holders that are not listed included
  site @11 :Text;         # where it was made; empty: unknown
}

struct MemoryHolder {
  kind @0 :UInt8;         # as in MemoryProcess; 0: a value that the agent keeps; 5: a node
  pid @1 :UInt32;
  node @2 :Id;
  refs @3 :Int64;
  silentNs @4 :UInt64;
}
