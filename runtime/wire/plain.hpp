/// The compact layout of a *plain* call (all arguments inline, no refs) and of its reply. Client
/// code writes and reads it without walking the message schema.
///
/// A plain message has a few words. A call with one small argument, or a small result, fits into
/// one cache line of a ring together with its length word. The first word distinguishes it from the
/// frames of schema/call.capnp; plain.cpp describes all words. The payload follows, as in every
/// frame. A message that does not fit this layout uses the schema. decode_call() reads both
/// layouts, and returns the error for a frame that is neither.
///
///     PlainFrame frame;
///     channel.send(write_plain(PlainCall{…}, frame), payload);
///     if (PlainReply reply; read_plain(bytes, reply, payload)) …
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <array>

namespace troupe::wire {

inline constexpr std::size_t kPlainArguments = 4;

/// A range of the frame's payload.
struct PlainRange {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
};

/// A Call with at most kPlainArguments arguments, all inline and without refs.
struct PlainCall {
  std::uint64_t sequence = 0;
  FunctionKey function;
  std::uint64_t actor_low = 0;
  std::uint32_t attempt = 1;
  std::uint32_t results = 1;
  std::uint32_t count = 0;  ///< of the arguments
  std::array<PlainRange, kPlainArguments> arguments;
};

/// The last Reply of a call: one inline value without refs, or none.
struct PlainReply {
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;
  bool has_value = true;  ///< false: a call without results succeeded
  std::uint64_t ran_ns = 0;
  PlainRange value;
};

/// Room for any plain message.
struct PlainFrame {
  alignas(16) std::array<std::uint64_t, 48> words;
};

/// Writes the message without its payload. The result lies in `frame`. It is empty when the message
/// does not fit the layout, as with more than 255 attempts or results.
BlobView write_plain(const PlainCall& call, PlainFrame& frame) noexcept;
BlobView write_plain(const PlainReply& reply, PlainFrame& frame) noexcept;

/// Reads a plain message. Returns false when the frame has another layout or a range is not within
/// the payload; `call` or `reply` and `payload` are then unspecified, and decode_call() returns the
/// error. The frame must be private memory.
bool read_plain(BlobView frame, PlainCall& call, BlobView& payload) noexcept;
bool read_plain(BlobView frame, PlainReply& reply, BlobView& payload) noexcept;

}  // namespace troupe::wire
