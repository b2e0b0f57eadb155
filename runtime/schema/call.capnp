@0xf4577e74d1e368d2;
# The conversation of a caller (a driver or a worker) with a worker. It runs over a channel of their own: one ring in each
# direction.
#
# A frame is a head of 8 bytes, the words of one message in a single segment, and the payload to the frame's end:
#
#   u32 words   length of the message in words of 8 bytes, at most 131072
#   u16 0x7254  "Tr"
#   u8  0       this conversation (1: node.capnp)
#   u8  1       version of this layout. 2: a plain call or reply, which wire/plain.cpp
#               describes and this schema does not. A reader refuses any other version with the error `unavailable`.
#
# All numbers are little-endian. There is no segment table, because a message is always one segment. A far pointer to
# another segment is therefore invalid, and the reader refuses it. Inline values are ranges of the payload.
#
# Order. The caller sends Call 1, 2, 3 … The worker starts the calls in that order and answers each call exactly once. The
# answer is either one Reply per result, of which the Reply with `last` ends the call, or a HandBack that names the call.
# Replies of different calls may come in any order. Replies of one call come by index. A Recall may come at any time. When
# either side dies, the other side drains its ring first: a Reply found there counts.
#
# A reader that does not know a member of the union gets the error `unavailable` ("unsupported message N"). A worker that
# cannot read a call closes the channel. The caller's calls then end as after a death, each by its outcome.

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
    recall @3 :Void;  # caller -> worker: hand back all unstarted calls; answered by HandBack, with count 0 if none
  }
}

struct Call {
  # Caller -> worker.
  sequence @0 :UInt64;             # counts the calls of this channel from 1
  functionModule @1 :UInt64;       # see FunctionKey
  functionOffsetBytes @2 :UInt64;
  actorLow @3 :UInt64;             # methods and constructors: low half of the actor's id; else 0
  attempt @4 :UInt32 = 1;
  results @5 :UInt32 = 1;          # 0: a tell; the caller waits for no value
  arguments @6 :List(Value);       # at most 4096; never pending; an error: the function does not run
}

struct Reply {
  # Worker -> caller.
  sequence @0 :UInt64;  # of the call; the caller ignores a Reply to a call that was cancelled or handed back
  index @1 :UInt32;     # of the result
  last @2 :Bool = true;
  ranNs @3 :UInt64;     # time spent in the function
  value @4 :Value;      # pending with index 0: a call without results succeeded
  lostArgument @5 :UInt16;  # not 0, with an error: the call has not run; the bytes of argument lostArgument - 1 are gone
  lost @6 :Id;              # with a forwarded argument: the object whose bytes are gone
}

struct HandBack {
  # Worker -> caller: the worker has not started these calls and will not start them.
  first @0 :UInt64;  # sequence of the first one
  count @1 :UInt64;  # of contiguous sequences
}
