/// The two messages of the straight path, a call whose arguments travel inline and its reply, in a
/// layout of their own, written and read without walking a schema.
///
/// They are a few words, so that a call with one small argument, or a small result, fits into one
/// cache line of a ring together with its length. The first word tells them from the frames of
/// schema/call.capnp (plain.cpp has all words); the payload follows, as in every frame. A message
/// that does not fit the layout goes as the schema's. decode_call() reads both, and says what is
/// wrong with one that is neither.
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
  bool has_value = true;  ///< else it is pending: a call without results ended well
  std::uint64_t ran_ns = 0;
  PlainRange value;
};

/// Room for any plain message.
struct PlainFrame {
  alignas(16) std::array<std::uint64_t, 48> words;
};

/// Writes the message without its payload; the result lies in `frame`. Empty: it does not fit, as
/// with more than 255 attempts or results. Cost: about 40 instructions.
BlobView write_plain(const PlainCall& call, PlainFrame& frame) noexcept;
BlobView write_plain(const PlainReply& reply, PlainFrame& frame) noexcept;

/// False, and nothing of use written, when the frame is something else or its ranges are not within
/// the payload (then decode_call() says what is wrong). The frame must be private memory.
bool read_plain(BlobView frame, PlainCall& call, BlobView& payload) noexcept;
bool read_plain(BlobView frame, PlainReply& reply, BlobView& payload) noexcept;

}  // namespace troupe::wire
