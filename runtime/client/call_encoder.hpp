/// Encodes the calls of this process whose arguments are objects, hold refs, or are many. Counts
/// the receiver for what a call names. Serves ClientEngine, under its lock.
///
///     wire::Call message = encoder.encode(call, peer.receiver());
///     message.sequence = …;
///     channel.send(encoder.writer().encode(wire::CallMessage(message)), encoder.payload());
///
/// Invariants: ENCODE-1 A call and its payload fit a frame, together with what stands beside it.
/// ENCODE-2 Small values travel along when there is room for all of them; otherwise all objects
/// travel as references. ENCODE-3 A call that does not fit either way carries an error in place of
/// its arguments, so that it ends as every call does. The receiver is counted for the refs of what
/// encode() has returned, and for no others.
#pragma once

#include "troupe/runtime/client/outgoing_value.hpp"
#include "troupe/runtime/client/values.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cstddef>

namespace troupe::client {

class CallEncoder {
 public:
  explicit CallEncoder(Values& values) : values_(values) {}

  /// Encodes function and arguments, which share a frame with `beside` other bytes.
  wire::Call encode(const detail::Call& call, Receiver to, std::size_t beside = 0);
  /// Of the call that was encoded last. Valid until the next encode().
  BlobView payload() const noexcept { return payload_; }
  /// Writes frames, this call's among them. What it returns is valid until its next use.
  wire::FrameWriter& writer() noexcept { return writer_; }

 private:
  wire::Call encode_once(const detail::Call& call, const Receiver& to);
  bool fits(const wire::Call& message, std::size_t beside);
  void take_back(const wire::Call& message, const Receiver& to);

  Values& values_;
  wire::FrameWriter writer_;
  Blob payload_;
};

}  // namespace troupe::client
