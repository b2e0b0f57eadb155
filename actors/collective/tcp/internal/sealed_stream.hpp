/// The two directions of a link, without a socket: what waits to be written, and what was read.
///
///     output.put(FrameKind::data, bytes);   n = send(fd, output.unwritten());  output.written(n);
///     n = recv(fd, input.space());  input.received(n);  if (input.has_frame()) use(input.front());
#pragma once

#include "troupe/actors/collective/nodes/link.hpp"
#include "troupe/actors/collective/tcp/internal/wire.hpp"
#include "troupe/runtime/base/sealing/sealing.hpp"
#include "troupe/runtime/base/secret.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe::collective::internal {

/// The cipher of a direction after its proof. Both ends replace the key after as many bytes.
class DirectionCipher {
 public:
  DirectionCipher(Secret<32> key, FrameCipher::Use use, Bytes per_key);
  /// Begins a frame of `length` bytes; update() and seal() or open() of the result follow.
  FrameCipher& begin(BlobView head, std::size_t length);

 private:
  Secret<32> key_;
  FrameCipher cipher_;
  std::uint64_t per_key_, used_ = 0;
};

/// Frames that are sealed and not yet written. A frame is sealed straight into its place.
class SealedOutput {
 public:
  /// has_room() is false while more bytes are unwritten.
  static constexpr std::size_t kMostUnwritten = std::size_t{512} << 10;

  SealedOutput(Secret<32> key, Bytes per_key);
  bool has_room() const noexcept { return size_ <= kMostUnwritten; }
  /// Precondition: has_room(), and at most kMaxFrame bytes.
  void put(FrameKind kind, BlobView bytes);
  /// Returns the oldest bytes; all of them, or those up to the buffer's end.
  BlobView unwritten() const noexcept;
  void written(std::size_t count) noexcept;
  /// Forgets all bytes.
  void drop() noexcept;

 private:
  std::byte* place_for(std::size_t size) noexcept;

  DirectionCipher cipher_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0, end_ = 0;  ///< the oldest bytes
  std::size_t wrapped_ = 0;          ///< those after them, from the buffer's beginning
  std::size_t size_ = 0;             ///< all unwritten bytes
};

/// Bytes that came, of which it opens the oldest frame in place.
class SealedInput {
 public:
  SealedInput(Secret<32> key, Bytes per_key);
  /// Returns where to receive; empty while it has a frame, and after a forged one.
  std::span<std::byte> space() noexcept;
  void received(std::size_t count);
  bool has_frame() const noexcept { return frame_size_ > 0; }
  /// Precondition of both: has_frame().
  Frame front() const noexcept;
  void pop();
  /// Returns whether a frame was not authentic. Nothing comes after it.
  bool is_forged() const noexcept { return forged_; }
  /// Returns whether a part of a frame has come.
  bool has_part() const noexcept { return end_ > begin_; }

 private:
  std::span<const std::byte, kFrameHead> head() const noexcept;
  void look();

  DirectionCipher cipher_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0, end_ = 0;  ///< bytes that came
  std::size_t frame_size_ = 0;       ///< of the frame that is open, with head and tag; 0: none is
  bool forged_ = false;
};

}  // namespace troupe::collective::internal
