/// Random streams: every draw has a stream of its own, named by the seed, a purpose and a number.
/// A draw therefore depends on no other draw, so that a restart need not repeat those before it.
#pragma once

#include "troupe/runtime/base/random.hpp"

namespace troupe::tune {

/// What a stream is for. The values are part of every study: they must never change.
enum class Purpose : std::uint64_t {
  sample = 1,   ///< a point; number: the trial, or with a grid() the count of samples
  bracket = 2,  ///< the bracket of a trial; number: the trial
  exploit = 3,  ///< donor and new parameters; numbers: trial and step
  shift = 4,    ///< the shifts of a low-discrepancy sequence
};

/// Returns the stream of these numbers.
constexpr Random stream(std::uint64_t seed, Purpose purpose, std::uint64_t number,
                        std::uint64_t part = 0) noexcept {
  std::uint64_t state = seed;
  for (const std::uint64_t word : {static_cast<std::uint64_t>(purpose), number, part})
    state = splitmix64(state) ^ word;
  return Random(splitmix64(state));
}

}  // namespace troupe::tune
