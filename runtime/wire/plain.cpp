#include "troupe/runtime/wire/plain.hpp"

#include <bit>
#include <cstring>

namespace troupe::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

/// The first word, from its lowest byte on:
///   1 byte   kind of the message
///   3 bytes  of a call: number of arguments, attempt, number of results
///   4 bytes  the second half of a frame's head (schema/call.capnp): the magic number, the
///            conversation of calls (0) and layout 2
/// A frame with a schema has layout 1.
enum class Kind : std::uint8_t { call = 1, reply = 2, reply_without_value = 3 };
constexpr std::uint64_t kFrame = 0x0200'7254'0000'0000;
constexpr std::uint64_t kSame = 0xFFFF'FFFF'0000'00FF;  ///< bits equal in all messages of a kind

constexpr std::uint64_t first_word(Kind kind) noexcept {
  return kFrame | static_cast<std::uint64_t>(kind);
}

// Indices of the words after the first one. A call has kSequence to kActor, then two ranges in each
// word. A reply has kSequence, kRan, and kResult: the index of the result in the low half, its
// range in the high half.
enum : std::size_t { kSequence = 1, kModule, kOffset, kActor, kRanges };
enum : std::size_t { kRan = 2, kResult, kReplyWords };

constexpr std::size_t words_of_call(std::size_t arguments) noexcept {
  return kRanges + (arguments + 1) / 2;
}
static_assert(words_of_call(kPlainArguments) <= PlainFrame{}.words.size());

constexpr std::uint32_t kMost = 0xFF;         ///< attempts, results
constexpr std::uint32_t kMostBytes = 0xFFFF;  ///< offset and size of a range

bool is_small(const PlainRange& range) noexcept {
  return (range.offset | range.size) <= kMostBytes;
}
std::uint64_t packed(const PlainRange& range) noexcept {
  return range.offset | std::uint64_t{range.size} << 16;
}
PlainRange unpacked(std::uint64_t word) noexcept {
  return {static_cast<std::uint32_t>(word & kMostBytes),
          static_cast<std::uint32_t>(word >> 16 & kMostBytes)};
}

bool within(const PlainRange& range, std::size_t payload) noexcept {
  return range.size <= kInlineValue && range.offset <= payload &&
         range.size <= payload - range.offset;
}

std::uint64_t word_at(BlobView frame, std::size_t word) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, frame.data() + word * sizeof value, sizeof value);
  return value;
}

BlobView written(const PlainFrame& frame, std::size_t words) noexcept {
  return {reinterpret_cast<const std::byte*>(frame.words.data()), words * sizeof(std::uint64_t)};
}

}  // namespace

BlobView write_plain(const PlainCall& call, PlainFrame& frame) noexcept {
  if (call.count > kPlainArguments || call.attempt > kMost || call.results > kMost) return {};
  auto& words = frame.words;
  words[0] = first_word(Kind::call) | std::uint64_t{call.count} << 8 |
             std::uint64_t{call.attempt} << 16 | std::uint64_t{call.results} << 24;
  words[kSequence] = call.sequence;
  words[kModule] = call.function.module;
  words[kOffset] = call.function.offset;
  words[kActor] = call.actor_low;
  for (std::size_t i = 0; i < call.count; ++i) {
    const PlainRange& range = call.arguments[i];
    if (!is_small(range)) return {};
    std::uint64_t& word = words[kRanges + i / 2];
    word = i % 2 == 0 ? packed(range) : word | packed(range) << 32;
  }
  return written(frame, words_of_call(call.count));
}

BlobView write_plain(const PlainReply& reply, PlainFrame& frame) noexcept {
  if (!is_small(reply.value)) return {};
  auto& words = frame.words;
  words[0] = first_word(reply.has_value ? Kind::reply : Kind::reply_without_value);
  words[kSequence] = reply.sequence;
  words[kRan] = reply.ran_ns;
  words[kResult] = reply.index;
  if (reply.has_value) words[kResult] |= packed(reply.value) << 32;
  return written(frame, kReplyWords);
}

bool read_plain(BlobView frame, PlainCall& call, BlobView& payload) noexcept {
  if (frame.size() < kRanges * sizeof(std::uint64_t)) return false;
  const std::uint64_t first = word_at(frame, 0);
  if ((first & kSame) != first_word(Kind::call)) return false;
  const auto count = static_cast<std::uint32_t>(first >> 8 & kMost);
  const std::size_t size = words_of_call(count) * sizeof(std::uint64_t);
  if (count > kPlainArguments || frame.size() < size) return false;
  payload = frame.subspan(size);
  call.sequence = word_at(frame, kSequence);
  call.function.module = word_at(frame, kModule);
  call.function.offset = word_at(frame, kOffset);
  call.actor_low = word_at(frame, kActor);
  call.attempt = static_cast<std::uint32_t>(first >> 16 & kMost);
  call.results = static_cast<std::uint32_t>(first >> 24 & kMost);
  call.count = count;
  for (std::size_t i = 0; i < count; ++i) {
    call.arguments[i] = unpacked(word_at(frame, kRanges + i / 2) >> (i % 2 == 0 ? 0 : 32));
    if (!within(call.arguments[i], payload.size())) return false;
  }
  return true;
}

bool read_plain(BlobView frame, PlainReply& reply, BlobView& payload) noexcept {
  constexpr std::size_t kSize = kReplyWords * sizeof(std::uint64_t);
  if (frame.size() < kSize) return false;
  const std::uint64_t same = word_at(frame, 0) & kSame;
  reply.has_value = same == first_word(Kind::reply);
  if (!reply.has_value && same != first_word(Kind::reply_without_value)) return false;
  payload = frame.subspan(kSize);
  reply.sequence = word_at(frame, kSequence);
  reply.ran_ns = word_at(frame, kRan);
  const std::uint64_t result = word_at(frame, kResult);
  reply.index = static_cast<std::uint32_t>(result);
  reply.value = reply.has_value ? unpacked(result >> 32) : PlainRange{};
  return within(reply.value, payload.size());
}

}  // namespace troupe::wire
