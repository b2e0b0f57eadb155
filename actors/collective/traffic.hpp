/// What the operations of a group move, as the formulas of the literature count it.
///
///     const Traffic before = communicator.traffic();
///     step();
///     const std::uint64_t moved = communicator.traffic().payload() - before.payload();
///
/// Bytes that a rank sends when each operation moves the least it can: with N ranks and S bytes of
/// the larger side, all_reduce counts 2(N-1)/N S, reduce_scatter and all_gather (N-1)/N S each,
/// broadcast (N-1) S on its root, a send S on its sender. What a back end reads and copies for it
/// is its own affair.
#pragma once

#include <cstdint>

namespace troupe::collective {

/// What an operation is for; only `payload` is what the formulas of a layout speak of.
enum class Purpose : std::uint8_t { payload, norm, count };

/// Bytes, rounded down once, from the group's beginning. A split counts its own.
struct Traffic {
  std::uint64_t all_reduce = 0;
  std::uint64_t reduce_scatter = 0;
  std::uint64_t all_gather = 0;
  std::uint64_t broadcast = 0;
  std::uint64_t send = 0;  ///< also those of exchange and group
  // Apart from these:
  std::uint64_t norm = 0;     ///< of operations with Purpose::norm
  std::uint64_t count = 0;    ///< of operations with Purpose::count
  std::uint64_t padding = 0;  ///< of the elements that Terms::padding names

  std::uint64_t payload() const noexcept {
    return all_reduce + reduce_scatter + all_gather + broadcast + send;
  }
};

}  // namespace troupe::collective
