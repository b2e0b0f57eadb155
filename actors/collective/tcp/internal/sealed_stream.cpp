#include "troupe/actors/collective/tcp/internal/sealed_stream.hpp"

#include "troupe/runtime/base/assert.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::collective::internal {
namespace {

constexpr std::size_t kLargest = kMaxFrame + kFrameOverhead;
/// Room for the largest frame in one piece, wherever kMostUnwritten bytes lie.
constexpr std::size_t kOutput = SealedOutput::kMostUnwritten + 2 * kLargest;
/// The most bytes that are read after the end of a frame. They may have to be moved once.
constexpr std::size_t kAhead = std::size_t{16} << 10;
constexpr std::size_t kInput = kLargest + kAhead;

}  // namespace

DirectionCipher::DirectionCipher(Secret<32> key, FrameCipher::Use use, Bytes per_key)
    : key_(std::move(key)),
      cipher_(key_, use, {.count = 1}),  // the proof had count 0
      per_key_(per_key.count) {}

FrameCipher& DirectionCipher::begin(BlobView head, std::size_t length) {
  if (used_ >= per_key_) {
    key_ = key_after(key_);
    cipher_.replace_key(key_);
    used_ = 0;
  }
  used_ += length + kFrameOverhead;
  cipher_.begin(head);
  return cipher_;
}

SealedOutput::SealedOutput(Secret<32> key, Bytes per_key)
    : cipher_(std::move(key), FrameCipher::Use::seal, per_key),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kOutput)) {}

/// Returns a place in one piece, behind the newest bytes. The frames wrap around the buffer's end.
std::byte* SealedOutput::place_for(std::size_t size) noexcept {
  size_ += size;
  if (wrapped_ > 0 || kOutput - end_ < size) {
    TROUPE_ASSERT(begin_ - wrapped_ >= size, "a link's output is larger than its buffer");
    wrapped_ += size;
    return buffer_.get() + wrapped_ - size;
  }
  end_ += size;
  return buffer_.get() + end_ - size;
}

void SealedOutput::put(FrameKind kind, BlobView bytes) {
  TROUPE_ASSERT(has_room() && bytes.size() <= kMaxFrame, "a link cannot take this frame now");
  const FrameHead head = make_head(bytes.size(), kind);
  std::byte* const at = place_for(bytes.size() + kFrameOverhead);
  std::copy(head.begin(), head.end(), at);
  FrameCipher& cipher = cipher_.begin(head, bytes.size());
  cipher.update(bytes.data(), at + kFrameHead, bytes.size());
  cipher.seal(std::span<std::byte, kSealTag>(at + kFrameHead + bytes.size(), kSealTag));
}

BlobView SealedOutput::unwritten() const noexcept {
  return {buffer_.get() + begin_, end_ - begin_};
}

void SealedOutput::written(std::size_t count) noexcept {
  begin_ += count;
  size_ -= count;
  if (begin_ < end_) return;
  begin_ = 0;
  end_ = std::exchange(wrapped_, 0);
}

void SealedOutput::drop() noexcept {
  begin_ = end_ = wrapped_ = size_ = 0;
}

SealedInput::SealedInput(Secret<32> key, Bytes per_key)
    : cipher_(std::move(key), FrameCipher::Use::open, per_key),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kInput)) {}

std::span<const std::byte, kFrameHead> SealedInput::head() const noexcept {
  return std::span<const std::byte, kFrameHead>(buffer_.get() + begin_, kFrameHead);
}

std::span<std::byte> SealedInput::space() noexcept {
  if (has_frame() || forged_) return {};
  const std::size_t have = end_ - begin_;
  const std::size_t frame = have < kFrameHead ? kFrameHead : length_of(head()) + kFrameOverhead;
  if (kInput - begin_ < frame) {  // then at most kAhead bytes are there
    std::memmove(buffer_.get(), buffer_.get() + begin_, have);
    begin_ = 0;
    end_ = have;
  }
  return {buffer_.get() + end_, std::min(frame - have + kAhead, kInput - end_)};
}

void SealedInput::received(std::size_t count) {
  end_ += count;
  look();
}

/// Opens the oldest frame when it is complete.
void SealedInput::look() {
  if (end_ - begin_ < kFrameHead) return;
  const std::size_t length = length_of(head());
  forged_ = length > kMaxFrame || !kind_of(head());
  if (forged_ || end_ - begin_ < length + kFrameOverhead) return;
  std::byte* const at = buffer_.get() + begin_ + kFrameHead;
  FrameCipher& cipher = cipher_.begin(head(), length);
  cipher.update(at, at, length);
  forged_ = !cipher.open(std::span<const std::byte, kSealTag>(at + length, kSealTag));
  if (!forged_) frame_size_ = length + kFrameOverhead;
}

Frame SealedInput::front() const noexcept {
  const std::optional<FrameKind> kind = kind_of(head());
  return {kind.value_or(FrameKind::data),
          {buffer_.get() + begin_ + kFrameHead, frame_size_ - kFrameOverhead}};
}

void SealedInput::pop() {
  begin_ += std::exchange(frame_size_, 0);
  if (begin_ == end_) begin_ = end_ = 0;
  look();
}

}  // namespace troupe::collective::internal
