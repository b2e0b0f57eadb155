#include "internal/fields.hpp"

#include <capnp/serialize.h>
#include <kj/exception.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace troupe::wire {
namespace {

using capnp::word;

/// The first word of a frame; see schema/call.capnp.
struct FrameHead {
  std::uint32_t words;
  std::uint16_t magic;
  std::uint8_t conversation;
  std::uint8_t layout;
};
static_assert(sizeof(FrameHead) == sizeof(word));
constexpr std::uint16_t kMagic = 0x7254;
constexpr std::uint8_t kLayout = 1;
constexpr std::uint8_t kCalls = 0;
constexpr std::uint8_t kNode = 1;

constexpr std::size_t kScratchWords = 4096;  // more than a ring's frame: larger ones are rare
constexpr int kMaxNesting = 16;

/// The schemas do not go deeper than ten; the innermost is a text of an error of an argument.
static_assert(kMaxNesting > 10);

void write(schema::CallMessage::Builder out, const CallMessage& message) {
  if (const auto* call = std::get_if<Call>(&message)) {
    internal::write(out.initCall(), *call);
  } else if (const auto* reply = std::get_if<Reply>(&message)) {
    auto to = out.initReply();
    to.setSequence(reply->sequence);
    to.setIndex(reply->index);
    to.setLast(reply->last);
    to.setRanNs(reply->ran_ns);
    internal::write(to.initValue(), reply->value);
  } else if (const auto* back = std::get_if<HandBack>(&message)) {
    auto to = out.initHandBack();
    to.setFirst(back->first);
    to.setCount(back->count);
  } else {
    out.setRecall();
  }
}

void read(const schema::CallMessage::Reader& in, CallMessage& message, std::size_t payload_size) {
  switch (in.which()) {
    case schema::CallMessage::CALL:
      return internal::read(in.getCall(), message.emplace<Call>(), payload_size);
    case schema::CallMessage::REPLY: {
      const auto from = in.getReply();
      auto& reply = message.emplace<Reply>();
      reply.sequence = from.getSequence();
      reply.index = from.getIndex();
      reply.last = from.getLast();
      reply.ran_ns = from.getRanNs();
      return internal::read(from.getValue(), reply.value, payload_size);
    }
    case schema::CallMessage::HAND_BACK: {
      const auto from = in.getHandBack();
      message.emplace<HandBack>(HandBack{from.getFirst(), from.getCount()});
      return;
    }
    case schema::CallMessage::RECALL: message.emplace<Recall>(); return;
  }
  internal::unsupported(static_cast<unsigned>(in.which()));
}

/// The words of a frame, once its head is known to tell the truth.
std::size_t words_of(BlobView frame, std::uint8_t conversation) {
  FrameHead head;
  if (frame.size() < sizeof head) internal::refuse("frame", "is shorter than its head");
  std::memcpy(&head, frame.data(), sizeof head);
  if (head.magic != kMagic) internal::refuse("frame", "does not begin like one");
  if (head.layout != kLayout)
    throw Error(Code::unavailable, "unsupported frame layout " + std::to_string(head.layout));
  if (head.conversation != conversation)
    internal::refuse("frame", "belongs to another conversation");
  if (head.words == 0 || head.words > kMaxMessage / sizeof(word) ||
      head.words > frame.size() / sizeof(word) - 1)
    internal::refuse("frame", "is shorter than its message, or the message too large");
  return head.words;
}

template <class Root, class Read>
void parse(BlobView frame, std::size_t words, std::size_t payload_size, const Read& read_root) {
  // Each part of a message is read once, so it may be walked once: overlapping pointers gain
  // nothing. Cap'n Proto itself counts the root's pointer more than once.
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
  read_root(reader.getRoot<Root>(), payload_size);
}

template <class Message, class Root, class Read>
Result<Decoded<Message>> decode(BlobView frame, std::uint8_t conversation, const Read& read_root) {
  try {
    const std::size_t words = words_of(frame, conversation);
    Decoded<Message> nothing;
    Result<Decoded<Message>> out(std::move(nothing));  // read in place: moving the whole costs more
    out->payload = frame.subspan(sizeof(FrameHead) + words * sizeof(word));
    parse<Root>(frame, words, out->payload.size(),
                [&](const typename Root::Reader& root, std::size_t payload_size) {
                  read_root(root, out->message, payload_size);
                });
    return out;
  } catch (const Error& error) {
    return error;
  } catch (const kj::Exception& e) {
    return Error(Code::invalid_argument,
                 std::string("a message is malformed: ") + e.getDescription().cStr());
  }
}

struct FreeWords {
  void operator()(word* words) const noexcept { std::free(words); }
};
using Words = std::unique_ptr<word[], FreeWords>;

/// Zeroed; pages that are never touched cost nothing.
Words zeroed(std::size_t words) {
  Words at(static_cast<word*>(std::calloc(words, sizeof(word))));
  if (!at) throw std::bad_alloc();
  return at;
}

}  // namespace

/// One word for the head, then the first segment, which Cap'n Proto leaves zeroed when a builder
/// ends.
struct FrameWriter::State {
  Words scratch = zeroed(kScratchWords + 1);
  std::optional<capnp::MallocMessageBuilder> builder;
  Words large;

  template <class Root, class Message, class Write>
  BlobView encode(const Message& message, std::uint8_t conversation, const Write& write_root) {
    builder.reset();
    builder.emplace(kj::arrayPtr(scratch.get() + 1, kScratchWords));
    write_root(builder->initRoot<Root>(), message);
    const auto segments = builder->getSegmentsForOutput();
    if (segments.size() == 1) return finish(scratch.get(), segments[0].size(), conversation);
    // Too large for the scratch: copied into a segment that holds it all.
    const auto root = builder->getRoot<Root>().asReader();
    capnp::MallocMessageBuilder whole(static_cast<unsigned>(root.totalSize().wordCount + 1));
    whole.setRoot(root);
    const auto copied = whole.getSegmentsForOutput();
    TROUPE_ASSERT(copied.size() == 1, "a message is one segment");
    large = zeroed(copied[0].size() + 1);
    std::memcpy(static_cast<void*>(large.get() + 1), copied[0].begin(),
                copied[0].size() * sizeof(word));
    return finish(large.get(), copied[0].size(), conversation);
  }

  static BlobView finish(word* frame, std::size_t words, std::uint8_t conversation) {
    const FrameHead head{static_cast<std::uint32_t>(words), kMagic, conversation, kLayout};
    std::memcpy(static_cast<void*>(frame), &head, sizeof head);
    return {reinterpret_cast<const std::byte*>(frame), (words + 1) * sizeof(word)};
  }
};

FrameWriter::FrameWriter() : state_(std::make_unique<State>()) {}
FrameWriter::~FrameWriter() = default;

BlobView FrameWriter::encode(const CallMessage& message) {
  return state_->encode<schema::CallMessage>(
      message, kCalls,
      [](schema::CallMessage::Builder out, const CallMessage& m) { write(out, m); });
}

BlobView FrameWriter::encode(const NodeMessage& message) {
  return state_->encode<schema::NodeMessage>(
      message, kNode,
      [](schema::NodeMessage::Builder out, const NodeMessage& m) { internal::write(out, m); });
}

Result<Decoded<CallMessage>> decode_call(BlobView frame) {
  return decode<CallMessage, schema::CallMessage>(
      frame, kCalls,
      [](const schema::CallMessage::Reader& in, CallMessage& out, std::size_t payload) {
        read(in, out, payload);
      });
}

Result<Decoded<NodeMessage>> decode_node(BlobView frame) {
  return decode<NodeMessage, schema::NodeMessage>(
      frame, kNode, [](schema::NodeMessage::Reader in, NodeMessage& out, std::size_t payload) {
        internal::read(in, out, payload);
      });
}

}  // namespace troupe::wire
