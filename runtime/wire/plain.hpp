/// The two messages of the straight path, a call whose arguments travel inline and its reply,
/// written and read without walking a schema.
///
/// Such messages differ from each other in a few numbers only. A *stencil* is the frame that
/// FrameWriter makes, with the places of those numbers, which it finds by having FrameWriter encode
/// the same message with each number changed. So the bytes are the schema's own, whatever its
/// layout is. A frame that differs from the stencil anywhere else is not plain: decode_call() reads
/// it.
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

/// Writes the message without its payload; the result lies in `frame`. Same bytes as
/// FrameWriter::encode(). Cost: about 60 instructions.
BlobView write_plain(const PlainCall& call, PlainFrame& frame) noexcept;
BlobView write_plain(const PlainReply& reply, PlainFrame& frame) noexcept;

/// False, and nothing of use written, when the frame is something else or its ranges are not within
/// the payload (then decode_call() says what is wrong). The frame must be private memory.
bool read_plain(BlobView frame, PlainCall& call, BlobView& payload) noexcept;
bool read_plain(BlobView frame, PlainReply& reply, BlobView& payload) noexcept;

}  // namespace troupe::wire
