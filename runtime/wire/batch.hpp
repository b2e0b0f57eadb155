/// A batch: many frames in one message of a Link. Agents and control send the frames of one pass of
/// their event loop together.
///
///     wire::append_frame(batch, wire::Protocol::peer, writer.encode(message));
///     auto good = wire::split_batch(received, [&](wire::Protocol protocol, BlobView frame) {
///       return handle(protocol, frame);                   // false: no more of them
///     });
///
/// A batch is a sequence of: u32 size, u8 protocol, 3 zero bytes (little-endian), the frame, zeros
/// up to a multiple of 8. An empty batch is legal and has no frames.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstdint>

namespace troupe::wire {

/// The protocol of a frame, which selects its codec.
enum class Protocol : std::uint8_t {
  peer = 2,
  to_control = 3,
  from_control = 4,
  between_agents = 5
};

inline constexpr std::size_t kBatchHead = 8;

/// Returns the bytes that a frame takes in a batch.
inline constexpr std::size_t batched_size(std::size_t frame) noexcept {
  return kBatchHead + (frame + 7) / 8 * 8;
}

/// Appends a frame. Copies it once; allocates only when the batch has no room.
inline void append_frame(Blob& batch, Protocol protocol, BlobView frame) {
  const auto size = static_cast<std::uint32_t>(frame.size());
  const std::byte head[kBatchHead] = {std::byte(size), std::byte(size >> 8), std::byte(size >> 16),
                                      std::byte(size >> 24), std::byte(protocol)};
  batch.insert(batch.end(), head, head + kBatchHead);
  batch.insert(batch.end(), frame.begin(), frame.end());
  batch.resize((batch.size() + 7) / 8 * 8);
}

/// Calls `f(Protocol, BlobView)` for each frame, in order, until it returns false. If the batch is
/// aligned to 8, so is each frame. Errors: InvalidArgument when the batch is malformed; `f` has
/// then been called for the frames before the malformed one.
template <class F>
Result<void> split_batch(BlobView batch, F&& f) {
  if (batch.size() % 8 != 0) return Error(Code::invalid_argument, "a batch of odd length");
  while (!batch.empty()) {
    const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(batch[i]); };
    const std::uint32_t size = byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
    const std::uint32_t protocol = byte(4);
    if (size > batch.size() - kBatchHead)
      return Error(Code::invalid_argument, "a frame that reaches past the end of its batch");
    if (protocol < 2 || protocol > 5 || (byte(5) | byte(6) | byte(7)) != 0)
      return Error(Code::invalid_argument, "a frame of an unknown conversation");
    if (!f(static_cast<Protocol>(protocol), batch.subspan(kBatchHead, size))) return {};
    batch = batch.subspan(batched_size(size));
  }
  return {};
}

}  // namespace troupe::wire
