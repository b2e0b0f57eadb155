/// CallHead: what a head sends first in each operation, so that its neighbours compare calls.
#pragma once

#include "troupe/actors/collective/internal/call_log.hpp"
#include "troupe/actors/collective/internal/operation.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace troupe::collective::nodes {

struct CallHead {
  static constexpr std::uint64_t kNames = 4;
  std::uint32_t magic = 0;
  std::uint8_t kind = 0, type = 0, reduce = 0, zero = 0;
  std::int32_t root = 0;
  std::uint32_t also_zero = 0;
  std::uint64_t count = 0;
  std::uint64_t sequence = 0;  ///< number of the rank's operation, for texts
  std::uint64_t meeting = 0;   ///< number of the operation among those of all ranks
  std::uint64_t device = 0;    ///< a hash of all operations of the devices before it
  std::uint64_t call = 0;      ///< the stamp of the program's call; 0: none
  char names[kNames][24]{};    ///< of the program's call, and of those before it
};
static_assert(sizeof(CallHead) == 56 + 24 * CallHead::kNames);

/// Describes an operation of a rank, without its numbers.
CallHead call_head_of(const internal::Operation& operation, const internal::CallLog& log);
/// Reads a frame; nothing when it is no CallHead.
std::optional<CallHead> call_head_from(std::span<const std::byte> frame) noexcept;
std::span<const std::byte> bytes_of(const CallHead& head) noexcept;

/// How two ranks' operations differ: in the calls of the program, or in themselves.
struct Difference {
  bool of_calls = false;
  std::string text;
};
/// Compares what two ranks (of the world) make; nothing when it is the same.
std::optional<Difference> difference_of(int rank, const CallHead& its, int other,
                                        const CallHead& others);

}  // namespace troupe::collective::nodes
