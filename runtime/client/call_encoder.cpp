#include "troupe/runtime/client/call_encoder.hpp"

#include "troupe/runtime/engine/registry.hpp"
#include "troupe/runtime/ring/ring.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <memory>
#include <utility>

namespace troupe::client {
namespace {

/// Replaces the arguments of a call that does not fit by an error.
void refuse(wire::Call& message) {
  ErrorInfo info;
  info.code = Code::invalid_argument;
  info.outcome = Outcome::not_executed;
  info.message =
      "the arguments of one call hold too many refs or small values to travel together: put some "
      "of them into one object";
  wire::Value refused;
  refused.kind = wire::Value::Kind::error;
  refused.error = std::make_shared<const ErrorInfo>(std::move(info));
  message.arguments = {std::move(refused)};
}

}  // namespace

wire::Call CallEncoder::encode(const detail::Call& call, Receiver to, std::size_t beside) {
  for (;; to.only_references = true) {
    payload_.clear();
    wire::Call message = encode_once(call, to);
    if (fits(message, beside)) return message;
    take_back(message, to);
    if (!to.only_references) continue;
    refuse(message);
    payload_.clear();
    return message;
  }
}

wire::Call CallEncoder::encode_once(const detail::Call& call, const Receiver& to) {
  wire::Call message;
  message.function = engine::Registry::instance().key_of(call.callable);
  message.arguments.reserve(call.arguments.size());
  for (const auto& argument : call.arguments) {
    if (argument.object) {
      message.arguments.push_back(values_.outgoing(argument.object, to, payload_));
      continue;
    }
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    append_inline(value, BlobView(call.bytes).subspan(argument.offset, argument.size), payload_);
    for (std::uint32_t i = 0; i < argument.ref_count; ++i) {
      const auto& ref = call.refs[argument.first_ref + i];
      values_.share(ref, to);
      value.refs.push_back(ref.id());
    }
    message.arguments.push_back(std::move(value));
  }
  return message;
}

/// Returns whether the call fits a frame. An upper bound of its size decides mostly; only a call
/// near the limit is encoded to learn its size.
bool CallEncoder::fits(const wire::Call& message, std::size_t beside) {
  std::size_t most = beside + payload_.size() + 256;
  for (const wire::Value& argument : message.arguments)
    most += argument.kind == wire::Value::Kind::error
                ? ring::kMaxFrame
                : sizeof(wire::Location) + 64 + argument.refs.size() * sizeof(ObjectId);
  if (most <= ring::kMaxFrame) return true;  // mostly
  if (most > wire::kMaxMessage) return false;
  return writer_.encode(wire::CallMessage(message)).size() + payload_.size() + beside <=
         ring::kMaxFrame;
}

/// Returns the counts of a message that the receiver will not get.
void CallEncoder::take_back(const wire::Call& message, const Receiver& to) {
  for (const wire::Value& argument : message.arguments)
    wire::for_each_ref(argument, [&](ObjectId id) { values_.unshare(id, to); });
}

}  // namespace troupe::client
