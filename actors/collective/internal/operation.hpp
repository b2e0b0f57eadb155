/// Operation: one collective operation as Communicator passes it to a back end, with its arguments
/// checked.
#pragma once

#include "troupe/actors/collective/communicator.hpp"

#include <atomic>
#include <limits>

namespace troupe::collective::internal {

/// `count` is the number of elements of the smaller side: of one rank's part in a scatter or
/// gather.
struct Operation {
  OperationKind kind = OperationKind::barrier;
  DType type = DType::u8;
  Reduce reduce = Reduce::sum;
  int root = 0;
  const void* in = nullptr;
  void* out = nullptr;
  std::uint64_t count = 0;
  std::vector<Transfers::One> transfers = {};
  Terms terms = {};
  std::uint64_t call = 0;  ///< stamp of the program's call that makes it (call.hpp); 0: none
  /// Work::wait(deadline) lowers it while the operation runs. Null: no limit.
  const std::atomic<Time::rep>* limit = nullptr;
  // split: the arguments, and below them the results
  int color = 0, key = 0;
  std::uint32_t lane = 0;
  std::vector<int> members = {};  ///< ranks of the new group, in its order

  std::uint64_t bytes() const noexcept {
    return count * static_cast<std::uint64_t>(kernels::size_of(type));
  }
  Time must_end() const noexcept {
    return limit == nullptr ? Time::max() : Time(Duration(limit->load(std::memory_order_acquire)));
  }
};

/// The traffic of an operation for a rank, which is bytes * factor / ranks.
struct Moved {
  std::uint64_t bytes = 0;   ///< of the larger side
  std::uint64_t factor = 0;  ///< how often a rank sends them, times the ranks
};
Moved moved_by(const Operation& operation, int ranks, int rank) noexcept;

}  // namespace troupe::collective::internal
