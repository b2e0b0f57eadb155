/// Encodes plain calls, whose arguments travel inline without refs, and reads their replies. Knows
/// the wire's name of each function that was called lately. Serves CallSender.
///
///     const BlobView head = plain.encode(call, {sequence, actor_low, attempt, results});
///     if (!head.empty()) channel.send(head, call.bytes);     // else: the general path
///
/// Invariants: PLAIN-1 A call with an object, with a ref or with too many arguments is never
/// encoded. PLAIN-2 A function's name is that of the registry, whatever was called between.
#pragma once

#include "troupe/runtime/engine/registry.hpp"
#include "troupe/runtime/wire/messages.hpp"
#include "troupe/runtime/wire/plain.hpp"

#include <array>
#include <cstdint>
#include <utility>

namespace troupe::client {

class PlainCalls {
 public:
  /// What a call has besides its function and arguments.
  struct Numbers {
    std::uint64_t sequence = 0;
    std::uint64_t actor_low = 0;
    std::uint32_t attempt = 1;
    std::uint32_t results = 1;
  };
  /// Returns the frame of the call without its payload, which is `call.bytes`; empty: the call is
  /// not plain. Valid until the next call of encode().
  BlobView encode(const detail::Call& call, const Numbers& numbers) {
    if (call.arguments.size() > wire::kPlainArguments || !call.refs.empty()) return {};
    wire::PlainCall plain;
    for (const auto& argument : call.arguments) {
      if (argument.object) return {};
      plain.arguments[plain.count++] = {argument.offset, argument.size};
    }
    plain.sequence = numbers.sequence;
    plain.function = key_of(call.callable);
    plain.actor_low = numbers.actor_low;
    plain.attempt = numbers.attempt;
    plain.results = numbers.results;
    return wire::write_plain(plain, frame_);
  }
  /// Converts a plain reply into a general one. Valid until the next call.
  const wire::Reply& general(const wire::PlainReply& reply) {
    reply_.sequence = reply.sequence;
    reply_.index = reply.index;
    reply_.ran_ns = reply.ran_ns;
    reply_.value.kind =
        reply.has_value ? wire::Value::Kind::inline_bytes : wire::Value::Kind::pending;
    reply_.value.payload_offset = reply.value.offset;
    reply_.value.payload_size = reply.value.size;
    return reply_;
  }

 private:
  const wire::FunctionKey& key_of(const detail::Callable* callable) {
    auto& [known, key] = keys_[(reinterpret_cast<std::uintptr_t>(callable) / 64) % keys_.size()];
    if (known != callable) {
      key = engine::Registry::instance().key_of(callable);
      known = callable;
    }
    return key;
  }

  wire::PlainFrame frame_;  ///< scratch
  wire::Reply reply_;       ///< scratch
  /// The cache of key_of().
  std::array<std::pair<const detail::Callable*, wire::FunctionKey>, 16> keys_{};
};

}  // namespace troupe::client
