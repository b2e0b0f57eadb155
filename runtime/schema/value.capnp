@0xd84d743a44822c2a;
# Structs that several conversations use: ids, locations, values, errors and resource demands.
#
# Rules for every schema in this folder:
# - Fields may be added. A field is never renumbered and never changes its meaning.
# - A reader ignores a field that it does not know. A field that an older writer did not send reads as its default.
# - Sizes and durations carry their unit in the name.
# - Every list has a bound, given beside it. A reader refuses the whole message when a list is longer.
# - A writer cuts a text to its bound. A reader refuses a longer text.
# - Enumerations are numbers. A reader refuses a number that it does not know, unless the field says otherwise.
#
# `A -> B` in a comment means that A sends the message to B.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");

struct Id {
  # 128 bits. Either `high` names the maker of the id and `low` counts the maker's ids, or both halves are random. An
  # absent or zero Id means "none".
  high @0 :UInt64;
  low @1 :UInt64;
}

struct Location {
  # The place of a large object's bytes in the shared memory of this node. Decoding does not check the numbers; the object
  # store checks them at every use.
  segment @0 :UInt32;      # publications segment: store index of the process that made the object
  slot @1 :UInt32;         # in the segment
  generation @2 :UInt64;   # of the slot
  extent @3 :UInt64;       # the extent that holds the bytes
  offsetBytes @4 :UInt64;  # in the extent
  lengthBytes @5 :UInt64;
}

struct ErrorEntry {
  # One error. A list of entries is an error and its causes, outermost first, at most 16. All texts of a list together
  # have at most 8 KiB, so that an error fits into a frame. A writer cuts stacks and last lines first, then drops the
  # innermost causes.
  code @0 :UInt16;             # troupe::Code; a reader keeps a number that it does not know
  outcome @1 :UInt8;           # 0 not executed, 1 executed, 2 unknown
  pid @2 :Int32;               # of the process where it arose; 0: unknown
  attempt @3 :Int32;           # of the task; 0: unknown
  message @4 :Text;            # at most 2048 bytes, as are the next three
  node @5 :Text;
  function @6 :Text;
  type @7 :Text;               # typeid name of the user's exception
  remoteStack @8 :Text;        # at most 4096 bytes
  lastLines @9 :Text;          # that a dead process wrote, at most 4096 bytes
}

struct Value {
  # A value in a message between processes. A reader refuses a kind that it does not know.
  union {
    pending @0 :Void;            # there is no value yet; in a Reply: the call has no result
    inlineBytes @1 :List(Id);    # the bytes are a range of the frame's payload; the list has the ids
                                 # inside them, in order, at most 512
    shared @2 :Location;         # the bytes are in the object store and hold no refs
    error @3 :List(ErrorEntry);  # at least one
    forwarded @4 :Id;            # the value is that of this other object
    remoteBytes @8 :UInt64;      # the bytes, this many, are at another node; Await with `fetch` brings them here
    sharedRefs @9 :SharedRefs;   # the bytes are in the object store and hold refs
  }
  offsetBytes @5 :UInt32;  # inlineBytes: the range, which must lie inside the payload
  sizeBytes @6 :UInt32;    # inlineBytes: at most 4096; a larger value travels as an object
  refCount @7 :UInt32;     # sharedRefs, remoteBytes: above 512: more than 512 refs are inside, and the ids name bundles
}

struct SharedRefs {
  at @0 :Location;
  # The ids inside the bytes, in order, at most 512. With a refCount above 512 they name bundles: inline values
  # without bytes, each with up to 512 of the refs, in order.
  refs @1 :List(Id);
}

struct FunctionKey {
  module @0 :UInt64;        # build-id of the module, folded
  offsetBytes @1 :UInt64;   # of the thunk in the module
}

struct Amount {
  # An amount of a named resource.
  name @0 :Text;               # at most 2048 bytes
  tenThousandths @1 :Int64;    # not negative
}

struct Label {
  key @0 :Text;    # at most 2048 bytes each
  value @1 :Text;
}

struct ResourceDemand {
  # The resources and the placement that a call or a lease needs.
  cpuTenThousandths @0 :Int64 = 10000;  # not negative, as are all amounts
  gpuTenThousandths @1 :Int64;
  memoryBytes @2 :UInt64;
  resources @3 :List(Amount);  # at most 64
  labels @4 :List(Label);      # all must match; at most 64
  placement @5 :UInt8;         # 0 any, 1 pack, 2 spread, 3 node
  node @6 :Id;                 # with placement 3
  soft @7 :Bool;               # with placement 3: prefer that node, do not require it
}
