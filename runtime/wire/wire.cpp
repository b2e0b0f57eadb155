#include "internal/frame.hpp"
#include "troupe/runtime/wire/plain.hpp"

namespace troupe::wire {
namespace {

using internal::Conversation;

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
    to.setLostArgument(reply->lost_argument);
    if (reply->lost) internal::write(to.initLost(), reply->lost);
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
      reply.lost_argument = from.getLostArgument();
      if (from.hasLost()) internal::read(from.getLost(), reply.lost);
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

Value inline_value(const PlainRange& range) {
  Value value;
  value.kind = Value::Kind::inline_bytes;
  value.payload_offset = range.offset;
  value.payload_size = range.size;
  return value;
}

CallMessage general(const PlainCall& plain) {
  Call call;
  call.sequence = plain.sequence;
  call.function = plain.function;
  call.actor_low = plain.actor_low;
  call.attempt = plain.attempt;
  call.results = plain.results;
  for (std::uint32_t i = 0; i < plain.count; ++i)
    call.arguments.push_back(inline_value(plain.arguments[i]));
  return call;
}

CallMessage general(const PlainReply& plain) {
  Reply reply;
  reply.sequence = plain.sequence;
  reply.index = plain.index;
  reply.ran_ns = plain.ran_ns;
  if (plain.has_value) reply.value = inline_value(plain.value);
  return reply;
}

}  // namespace

std::size_t internal::words_of(BlobView frame, Conversation conversation) {
  FrameHead head;
  if (frame.size() < sizeof head) refuse("frame", "is shorter than its head");
  std::memcpy(&head, frame.data(), sizeof head);
  if (head.magic != kMagic) refuse("frame", "does not begin like one");
  if (head.layout != kLayout)
    throw Error(Code::unavailable, "unsupported frame layout " + std::to_string(head.layout));
  if (head.conversation != static_cast<std::uint8_t>(conversation))
    refuse("frame", "belongs to another conversation");
  if (head.words == 0 || head.words > kMaxMessage / sizeof(capnp::word) ||
      head.words > frame.size() / sizeof(capnp::word) - 1)
    refuse("frame", "is shorter than its message, or the message too large");
  return head.words;
}

struct FrameWriter::State {
  internal::Encoder encoder;
};

FrameWriter::FrameWriter() : state_(std::make_unique<State>()) {}
FrameWriter::~FrameWriter() = default;

BlobView FrameWriter::encode(const CallMessage& message) {
  return state_->encoder.encode<schema::CallMessage>(
      message, Conversation::call,
      [](schema::CallMessage::Builder out, const CallMessage& m) { write(out, m); });
}

BlobView FrameWriter::encode(const NodeMessage& message) {
  return state_->encoder.encode<schema::NodeMessage>(
      message, Conversation::node,
      [](schema::NodeMessage::Builder out, const NodeMessage& m) { internal::write(out, m); });
}

Result<Decoded<CallMessage>> decode_call(BlobView frame) {
  BlobView payload;
  if (PlainCall call; read_plain(frame, call, payload))
    return Decoded<CallMessage>{general(call), payload};
  if (PlainReply reply; read_plain(frame, reply, payload))
    return Decoded<CallMessage>{general(reply), payload};
  return internal::decode_frame<CallMessage, schema::CallMessage>(
      frame, Conversation::call,
      [](const schema::CallMessage::Reader& in, CallMessage& out, std::size_t payload) {
        read(in, out, payload);
      });
}

Result<Decoded<NodeMessage>> decode_node(BlobView frame) {
  return internal::decode_frame<NodeMessage, schema::NodeMessage>(
      frame, Conversation::node,
      [](schema::NodeMessage::Reader in, NodeMessage& out, std::size_t payload) {
        internal::read(in, out, payload);
      });
}

}  // namespace troupe::wire
