/// Traffic: the bytes that the operations of a group move, as the formulas of the literature count
/// them.
///
///     const Traffic before = communicator.traffic();
///     step();
///     const std::uint64_t moved = communicator.traffic().payload() - before.payload();
///
/// An operation counts the bytes that a rank sends if it moves as few as possible. With N ranks and
/// S bytes of the larger side, all_reduce counts 2(N-1)/N S, reduce_scatter and all_gather (N-1)/N
/// S each, broadcast (N-1) S on its root, and a send S on its sender. A back end may read and copy
/// more.
#pragma once

#include <cstdint>

namespace troupe::collective {

/// What an operation is for. The formulas of a layout count only `payload`.
enum class Purpose : std::uint8_t { payload, norm, count };

/// Bytes since the beginning of the group, rounded down once. A split has its own count.
struct Traffic {
  std::uint64_t all_reduce = 0;
  std::uint64_t reduce_scatter = 0;
  std::uint64_t all_gather = 0;
  std::uint64_t broadcast = 0;
  std::uint64_t send = 0;  ///< also those of exchange and group
  // Not part of the payload:
  std::uint64_t norm = 0;     ///< of operations with Purpose::norm
  std::uint64_t count = 0;    ///< of operations with Purpose::count
  std::uint64_t padding = 0;  ///< of the elements that Terms::padding names

  std::uint64_t payload() const noexcept {
    return all_reduce + reduce_scatter + all_gather + broadcast + send;
  }
};

}  // namespace troupe::collective
