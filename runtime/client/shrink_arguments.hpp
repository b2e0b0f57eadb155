/// Makes a call fit a frame: its larger arguments become objects, and travel as references. Serves
/// ClientEngine.
///
///     shrink_arguments(call, engine);      // engine.put(bytes, refs, site) makes an object
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/ring/ring.hpp"
#include "troupe/runtime/wire/plain.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace troupe::client {

/// The most arguments of a call.
inline constexpr std::size_t kMostArguments = 200;
/// The most bytes of all inline arguments of a call.
inline constexpr std::size_t kMostInlineArguments = 8 * 1024;
/// A call with fewer bytes, few arguments and no refs fits in any case.
inline constexpr std::size_t kSmallCall = 256;

/// Throws InvalidArgument when the call takes more than kMostArguments, and what `to.put()` throws.
template <class Store>
void shrink_arguments(detail::Call& call, Store& to) {
  if (call.arguments.size() > kMostArguments)
    throw InvalidArgument(Code::invalid_argument,
                          "a call takes at most 200 arguments: put them into a vector");
  if (call.arguments.size() <= wire::kPlainArguments && call.refs.empty() &&
      call.bytes.size() < kSmallCall)
    return;  // mostly
  // In the message an argument takes its bytes, aligned, and the ids of its refs.
  const auto room_for = [](const detail::Argument& argument) {
    return argument.size + 16 + argument.ref_count * sizeof(ObjectId);
  };
  const auto put_one = [&](detail::Argument& argument) {
    argument.object = to.put(BlobView(call.bytes).subspan(argument.offset, argument.size),
                             std::span(call.refs).subspan(argument.first_ref, argument.ref_count),
                             {call.callable->name});
    argument.size = 0;
    argument.ref_count = 0;
  };
  // Each argument also has a header.
  const std::size_t limit =
      std::min(kMostInlineArguments, ring::kMaxFrame - 1024 - 72 * call.arguments.size());
  std::size_t total = 0;
  for (auto& argument : call.arguments) {
    if (argument.object) continue;
    if (argument.size > wire::kInlineValue || argument.ref_count > wire::kMaxRefs)
      put_one(argument);
    else
      total += room_for(argument);
  }
  // Make objects of the larger arguments first, until the rest fits.
  for (const std::size_t at_least : {std::size_t{272}, std::size_t{64}, std::size_t{0}})
    for (auto& argument : call.arguments) {
      if (total <= limit) return;
      if (argument.object || room_for(argument) < at_least) continue;
      total -= room_for(argument);
      put_one(argument);
    }
}

}  // namespace troupe::client
