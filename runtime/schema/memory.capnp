@0xd1c5f0a7b6e94f23;
# What the memory of a node is used for: the answer to an Inquire that asks about it, between agents and to observers.
# It travels as one message without a frame, in the pieces of an Answer.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");
using import "value.capnp".Id;

struct MemoryReport {
  node @0 :Id;
  name @1 :Text;
  arenaBytes @2 :UInt64;
  extentBytes @3 :UInt64;      # granted, those that are ready for the next grant included
  readyBytes @4 :UInt64;       # of these, ready for the next grant
  objectBytes @5 :UInt64;      # of objects in memory that the agent knows
  objects @6 :UInt64;
  waitingObjects @7 :UInt32;   # freed, and somebody looks at them still
  spilled @8 :UInt64;          # objects that are on disk only
  spilledBytes @9 :UInt64;
  diskBytes @10 :UInt64;       # that they take there
  restored @11 :UInt64;        # since the start
  badFolders @12 :UInt32;      # spill folders that nothing is written to any more
  asksWaiting @13 :UInt64;     # who waits for memory
  ownHoles @14 :UInt32;        # free blocks in the agent's own extents
  ownFreeBytes @15 :UInt64;
  ownLargestFree @16 :UInt64;
  processes @17 :List(MemoryProcess);
  rows @18 :List(MemoryObject);  # the largest
  rowsInAll @19 :UInt64;         # how many there would be
  spills @20 :Bool;              # there is a folder to spill to
  jobQuotaBytes @21 :UInt64;     # of each job at this node; 0: no limit
  jobs @22 :List(MemoryJob);
  copies @23 :Bool;              # there is a shared folder for copies
  copied @24 :UInt64;            # objects of this node that have one
  copyBytes @25 :UInt64;         # that they take there
  copyErrors @26 :UInt64;        # of the folders, a full disk not counted
  sites @27 :List(MemorySite);   # those that have most bytes
}

struct MemorySite {
  text @0 :Text;     # "main.cpp:12", or the function whose results or arguments they are
  objects @1 :UInt64;
  bytes @2 :UInt64;
  made @3 :UInt64;   # since the node's start
  grows @4 :Bool;    # has had more objects after each of the last spans than after the one before
}

struct MemoryJob {
  job @0 :Id;        # zero: one that has ended
  bytes @1 :UInt64;  # of objects that its processes have made at this node, in memory and on disk
}

struct MemoryProcess {
  kind @0 :UInt8;         # 0 agent, 1 driver, 2 worker, 3 actor, 4 ended
  pid @1 :UInt32;         # 0: unknown
  job @2 :Id;
  silentNs @3 :UInt64;    # since it last told the agent something
  extents @4 :UInt32;     # of its own
  extentBytes @5 :UInt64;
  objects @6 :UInt64;     # of its making that the agent knows
  objectBytes @7 :UInt64;
}

struct MemoryObject {
  id @0 :Id;              # zero: one that only its holder can name
  state @1 :UInt8;        # 0 pending, 1 error, 2 inline, 3 in memory, 4 on disk, 5 at another node, 6 another object's
  bytes @2 :UInt64;
  owner @3 :Id;           # node whose agent counts who holds it
  makerPid @4 :UInt32;    # 0: unknown, or it has ended
  job @5 :Id;
  pins @6 :UInt32;        # views that are open now
  ageNs @7 :UInt64;       # 0: unknown, as of small ones
  unusedNs @8 :UInt64;    # since it was last made, looked at with the agent's help, or seen with a view
  holders @9 :List(MemoryHolder);
  held @10 :Int64;        # refs in all, those of holders that are not listed included
  site @11 :Text;         # where it was made; empty: unknown
}

struct MemoryHolder {
  kind @0 :UInt8;         # as in MemoryProcess; 0: a value that the agent keeps; 5: a node
  pid @1 :UInt32;
  node @2 :Id;
  refs @3 :Int64;
  silentNs @4 :UInt64;
}
