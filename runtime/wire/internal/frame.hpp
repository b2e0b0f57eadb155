/// Encodes and decodes the frames of every conversation: a head, one segment of Cap'n Proto, and
/// the payload; see schema/call.capnp.
///
///     BlobView frame = encoder.encode<schema::PeerMessage>(message, Conversation::peer, write);
///     return decode_frame<PeerMessage, schema::PeerMessage>(bytes, Conversation::peer, read);
#pragma once

#include <capnp/serialize.h>
#include <kj/exception.h>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "troupe/runtime/wire/internal/fields.hpp"

namespace troupe::wire::internal {

enum class Conversation : std::uint8_t {
  call = 0,
  node = 1,
  peer = 2,
  to_control = 3,
  from_control = 4,
  between_agents = 5,
  creation = 6
};

/// The first word of a frame.
struct FrameHead {
  std::uint32_t words;
  std::uint16_t magic;
  std::uint8_t conversation;
  std::uint8_t layout;
};
static_assert(sizeof(FrameHead) == sizeof(capnp::word));
inline constexpr std::uint16_t kMagic = 0x7254;
inline constexpr std::uint8_t kLayout = 1;

/// Bound of nesting for Cap'n Proto's reader. The schemas nest eleven deep at most: a text of an
/// error of an argument of a creation.
inline constexpr int kMaxNesting = 16;

/// Returns the number of words of a frame's message. Throws Error when its head is not valid.
std::size_t words_of(BlobView frame, Conversation conversation);

/// Calls `read_root` with the root of a frame's message. Copies the words first if the frame is not
/// aligned.
template <class Root, class Read>
void parse(BlobView frame, std::size_t words, const Read& read_root) {
  using capnp::word;
  // The limit allows each word to be read once. A message whose pointers overlap would let a small
  // frame expand to a large result; the limit refuses it. Cap'n Proto counts the root's pointer
  // more than once, hence the extra words.
  capnp::ReaderOptions options;
  options.traversalLimitInWords = words + 4;
  options.nestingLimit = kMaxNesting;
  const std::byte* at = frame.data() + sizeof(FrameHead);
  std::unique_ptr<std::uint64_t[]> aligned;
  if (reinterpret_cast<std::uintptr_t>(at) % alignof(word) != 0) {
    aligned = std::make_unique<std::uint64_t[]>(words);
    std::memcpy(aligned.get(), at, words * sizeof(word));
    at = reinterpret_cast<const std::byte*>(aligned.get());
  }
  const kj::ArrayPtr<const word> segment(reinterpret_cast<const word*>(at), words);
  capnp::SegmentArrayMessageReader reader(kj::arrayPtr(&segment, 1), options);
  read_root(reader.getRoot<Root>());
}

/// Decodes a frame. `read(root, message, payload_size)` fills the message and throws Error when it
/// refuses a field.
template <class Message, class Root, class Read>
Result<Decoded<Message>> decode_frame(
    BlobView frame, Conversation conversation, const Read& read,
    std::size_t max_payload = std::numeric_limits<std::size_t>::max()) {
  try {
    const std::size_t words = words_of(frame, conversation);
    Decoded<Message> nothing;
    Result<Decoded<Message>> out(std::move(nothing));  // filled in place: moving it costs more
    out->payload = frame.subspan(sizeof(FrameHead) + words * sizeof(capnp::word));
    if (out->payload.size() > max_payload) refuse("payload", "is too large");
    parse<Root>(frame, words, [&](const typename Root::Reader& root) {
      read(root, out->message, out->payload.size());
    });
    return out;
  } catch (const Error& error) {
    return error;
  } catch (const kj::Exception& e) {
    return Error(Code::invalid_argument,
                 std::string("a message is malformed: ") + e.getDescription().cStr());
  }
}

/// Builds frames without payload in one reused buffer. No allocation up to 32 KiB.
class Encoder {
 public:
  /// Valid until the next call.
  template <class Root, class Message, class Write>
  BlobView encode(const Message& message, Conversation conversation, const Write& write_root) {
    using capnp::word;
    builder_.reset();
    builder_.emplace(kj::arrayPtr(scratch_.get() + 1, kScratchWords));
    write_root(builder_->initRoot<Root>(), message);
    const auto segments = builder_->getSegmentsForOutput();
    if (segments.size() == 1) return finish(scratch_.get(), segments[0].size(), conversation);
    // The message did not fit the scratch: copy it into one segment that is large enough.
    const auto root = builder_->getRoot<Root>().asReader();
    capnp::MallocMessageBuilder whole(static_cast<unsigned>(root.totalSize().wordCount + 1));
    whole.setRoot(root);
    const auto copied = whole.getSegmentsForOutput();
    TROUPE_ASSERT(copied.size() == 1, "a message is one segment");
    large_ = zeroed(copied[0].size() + 1);
    std::memcpy(static_cast<void*>(large_.get() + 1), copied[0].begin(),
                copied[0].size() * sizeof(word));
    return finish(large_.get(), copied[0].size(), conversation);
  }

 private:
  static constexpr std::size_t kScratchWords = 4096;  // twice kMaxFrame of a ring; larger is rare
  struct FreeWords {
    void operator()(capnp::word* words) const noexcept { std::free(words); }
  };
  using Words = std::unique_ptr<capnp::word[], FreeWords>;
  /// Returns zeroed words. calloc() maps large blocks, so untouched pages take no memory.
  static Words zeroed(std::size_t words) {
    Words at(static_cast<capnp::word*>(std::calloc(words, sizeof(capnp::word))));
    if (!at) throw std::bad_alloc();
    return at;
  }
  static BlobView finish(capnp::word* frame, std::size_t words, Conversation conversation) {
    const FrameHead head{static_cast<std::uint32_t>(words), kMagic,
                         static_cast<std::uint8_t>(conversation), kLayout};
    std::memcpy(static_cast<void*>(frame), &head, sizeof head);
    return {reinterpret_cast<const std::byte*>(frame), (words + 1) * sizeof(capnp::word)};
  }

  // One word for the head, then the first segment. Cap'n Proto zeroes the segment again when a
  // builder ends, as the next builder needs it.
  Words scratch_ = zeroed(kScratchWords + 1);
  std::optional<capnp::MallocMessageBuilder> builder_;
  Words large_;
};

}  // namespace troupe::wire::internal
