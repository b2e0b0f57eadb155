@0xf4577e74d1e368d2;
# The conversation of a caller and a worker, over a channel of their own (one ring each way).
#
# A frame is a head of 8 bytes, the words of one message in a single segment, and the payload to the frame's end:
#
#   u32 words   length of the message in words of 8 bytes, at most 131072
#   u16 0x7254  "Tr"
#   u8  0       this conversation (1: node.capnp)
#   u8  1       version of this layout; 2: a plain call or reply, whose words are in wire/plain.cpp and not of this schema;
#               another one is answered `unavailable`
#
# All numbers are little-endian. There is no segment table: a message is always one segment, so that a far pointer to
# another one has nowhere to go and is refused. Inline values are ranges of the payload.
#
# Order. The caller sends Call 1, 2, 3 … The worker starts them in that order and answers each exactly once: with one
# Reply per result, of which the one with `last` ends the call, or by naming it in a HandBack. Replies of different
# calls may come in any order; those of one call come by index. A Recall may come at any time. When either side dies
# the other one drains the ring first: a Reply found there counts.
#
# A member of the union that a reader does not know gives it the error `unavailable` ("unsupported message N"): a
# worker answers a call it cannot read by closing the channel, and the caller's calls end by outcome.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");
using import "value.capnp".Id;
using import "value.capnp".FunctionKey;
using import "value.capnp".Value;

struct CallMessage {
  union {
    call @0 :Call;
    reply @1 :Reply;
    handBack @2 :HandBack;
    recall @3 :Void;  # caller -> worker: hand back what you have not started; answered by HandBack, count 0 if none
  }
}

struct Call {
  # Caller -> worker.
  sequence @0 :UInt64;             # counts the calls of this channel from 1
  functionModule @1 :UInt64;       # see FunctionKey
  functionOffsetBytes @2 :UInt64;
  actorLow @3 :UInt64;             # methods and constructors: low half of the actor's id; else 0
  attempt @4 :UInt32 = 1;
  results @5 :UInt32 = 1;          # 0: a tell, nobody waits for a value
  arguments @6 :List(Value);       # at most 4096; never pending, never an error
}

struct Reply {
  # Worker -> caller.
  sequence @0 :UInt64;  # of the call; one that is not in flight is ignored: it was cancelled or handed back
  index @1 :UInt32;     # of the result
  last @2 :Bool = true;
  ranNs @3 :UInt64;     # time in the function
  value @4 :Value;      # pending with index 0: a call without results ended well
  lostArgument @5 :UInt16;  # not 0, with an error: the call has not run, since the bytes of argument lostArgument - 1 are gone
  lost @6 :Id;              # if that argument was forwarded: the object
}

struct HandBack {
  # Worker -> caller: these calls were not started and never will be here.
  first @0 :UInt64;  # sequence
  count @1 :UInt64;  # contiguous
}
