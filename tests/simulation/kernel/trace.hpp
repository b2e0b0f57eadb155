/// An order-sensitive 64-bit hash of everything that happened in a simulated run.
///
///     Trace trace;
///     trace.mix(42).mix("sent");
///     std::uint64_t fingerprint = trace.value();   // equal runs, equal value
#pragma once

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstdint>
#include <cstring>
#include <string_view>

namespace troupe::sim {

/// Collects values. The same values in another order give another hash. Addresses must not be
/// mixed in, since they differ between runs.
class Trace {
 public:
  Trace& mix(std::uint64_t value) noexcept {
    std::uint64_t x = state_ ^ (value + 0x9e3779b97f4a7c15ULL);
    state_ = splitmix64(x);
    return *this;
  }
  Trace& mix(std::string_view text) noexcept { return bytes(text.data(), text.size()); }
  Trace& mix(BlobView view) noexcept { return bytes(view.data(), view.size()); }
  std::uint64_t value() const noexcept { return state_; }

 private:
  /// Mixes bytes with one multiplication per word of eight bytes, since messages are most of what
  /// a run hashes.
  Trace& bytes(const void* data, std::size_t size) noexcept {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
    const char* at = static_cast<const char*>(data);
    std::uint64_t sum = size, word = 0;
    for (; size >= sizeof word; at += sizeof word, size -= sizeof word) {
      std::memcpy(&word, at, sizeof word);
      sum = (sum ^ word) * kOdd;
      sum ^= sum >> 32;
    }
    word = 0;
    if (size > 0) std::memcpy(&word, at, size);
    return mix((sum ^ word) * kOdd);
  }
  std::uint64_t state_ = 0x243f6a8885a308d3ULL;
};

/// Mixes a message into the trace. A scenario with its own message type overloads this function
/// beside that type.
inline void trace_into(Trace& trace, const Blob& message) {
  trace.mix(BlobView(message));
}
inline void trace_into(Trace& trace, std::uint64_t message) {
  trace.mix(message);
}

}  // namespace troupe::sim
