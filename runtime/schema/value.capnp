@0xd84d743a44822c2a;
# What several conversations speak of: values, errors, what a call needs.
#
# Rules for every schema here. Fields are added, never renumbered or given another meaning; a reader that does not
# know a field ignores it, and a field that an older writer did not send reads as its default. Sizes and durations
# carry their unit in the name. Every list has a bound, given beside it; a longer one is refused with the whole
# message. A text longer than its bound is cut by the writer and refused by the reader. Enumerations are numbers;
# one that a reader does not know is refused unless the field says otherwise.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");

struct Id {
  # 128 bits: high names who made it, low counts there; or both are random. Absent: none.
  high @0 :UInt64;
  low @1 :UInt64;
}

struct Location {
  # Where the bytes of a large object lie on this node. Checked by the object store at every use, so any number may
  # stand here.
  segment @0 :UInt32;      # publications segment: the process that made the object
  slot @1 :UInt32;         # in the segment
  generation @2 :UInt64;   # of the slot
  extent @3 :UInt64;       # memory that holds the bytes
  offsetBytes @4 :UInt64;  # in the extent
  lengthBytes @5 :UInt64;
}

struct ErrorEntry {
  # One error; a list of them is an error and its causes, outermost first, at most 16. All texts of a list together
  # are at most 8 KiB, so that an error fits into a frame: a writer drops the innermost causes first.
  code @0 :UInt16;             # troupe::Code; a reader keeps a number that it does not know
  outcome @1 :UInt8;           # 0 not executed, 1 executed, 2 unknown
  pid @2 :Int32;               # of the process where it arose; 0: unknown
  attempt @3 :Int32;           # of the task; 0: unknown
  message @4 :Text;            # at most 2048 bytes, as are the next three
  node @5 :Text;
  function @6 :Text;
  type @7 :Text;               # typeid name of the user's exception
  remoteStack @8 :Text;        # at most 4096 bytes
}

struct Value {
  # A value as it crosses. A kind that a reader does not know is refused.
  union {
    pending @0 :Void;            # not there yet; in a Reply: there is none
    inlineBytes @1 :List(Id);    # a range of the frame's payload; here the ids inside it, in order, at most 512
    shared @2 :Location;         # bytes in the object store
    error @3 :List(ErrorEntry);  # at least one
    forwarded @4 :Id;            # the value of this other object
    remoteBytes @8 :UInt64;      # so many bytes, at another node; Await with `fetch` brings them
    sharedRefs @9 :SharedRefs;   # bytes in the object store that hold refs
  }
  offsetBytes @5 :UInt32;  # inlineBytes: the range, which must lie inside the payload
  sizeBytes @6 :UInt32;    # inlineBytes: at most 4096; a larger value travels as an object
  refCount @7 :UInt32;     # sharedRefs, remoteBytes: above 512: there are more refs inside, and the ids are those of bundles
}

struct SharedRefs {
  at @0 :Location;
  # The ids inside the bytes, in order, at most 512. With a refCount above 512 they are bundles: inline values without
  # bytes, which hold the refs in order.
  refs @1 :List(Id);
}

struct FunctionKey {
  module @0 :UInt64;        # build-id of the module, folded
  offsetBytes @1 :UInt64;   # of the thunk in the module
}

struct Amount {
  # So much of a named resource.
  name @0 :Text;               # at most 2048 bytes
  tenThousandths @1 :Int64;    # not negative
}

struct Label {
  key @0 :Text;    # at most 2048 bytes each
  value @1 :Text;
}

struct ResourceDemand {
  # What a call or a lease needs.
  cpuTenThousandths @0 :Int64 = 10000;  # not negative, as are all amounts
  gpuTenThousandths @1 :Int64;
  memoryBytes @2 :UInt64;
  resources @3 :List(Amount);  # at most 64
  labels @4 :List(Label);      # all must match; at most 64
  placement @5 :UInt8;         # 0 any, 1 pack, 2 spread, 3 node
  node @6 :Id;                 # with placement 3
  soft @7 :Bool;               # with placement 3: prefer, do not insist
}
