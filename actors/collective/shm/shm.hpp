/// A group whose ranks are processes of one node that share one memfd.
///
///     Fd memory = create_shm_group({.size = 2, .generation = 7});      // somebody, once
///     auto comm = join_shm_group(memory, rank, /*generation=*/7);      // every rank, a copy
///     comm->all_reduce(gradients, Reduce::mean).wait();
///
/// Ranks that wait for a rank notice the death of its process within 0.1 s. A group serves one
/// generation of ranks: after a death make a new memfd with the next generation. A late rank of the
/// old group still holds the old memfd, so it cannot disturb the new group.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <chrono>
#include <memory>

namespace troupe::collective {

struct ShmOptions {
  int size = 1;                  ///< ranks, 1 to 1024
  std::uint64_t generation = 1;  ///< ranks that join with another number are refused
  /// Size of a rank's buffer, 4 KiB to 1 GiB. Longer messages go in pieces of this size. Larger
  /// buffers mean fewer meetings; the result's bits do not depend on it. The memfd has 2 * size
  /// buffers for the group and for each split, whose pages are allocated at the first use.
  Bytes slot = {4 << 20};
  /// How often split() may be called, in the group and in its splits together; at most 64. Each
  /// makes the memfd longer, but takes memory only when it is used.
  int splits = 8;
};

/// Makes the shared memory of a group, with its size sealed, and returns its descriptor. The caller
/// passes copies of it to the ranks. Throws InvalidArgument for options out of range, NoSpace when
/// the memfd cannot be made.
TROUPE_API Fd create_shm_group(const ShmOptions& options);

/// Joins the group behind the descriptor as rank `rank`. Does not wait for the other ranks. The
/// descriptor may be closed afterwards. Throws InvalidArgument when the memory is not a group's or
/// has another generation, when the rank does not exist or is taken, or when the timeout is not
/// positive (`forever` sets no limit).
TROUPE_API std::unique_ptr<Communicator> join_shm_group(const Fd& memory, int rank,
                                                        std::uint64_t generation,
                                                        Duration timeout = std::chrono::seconds(30),
                                                        Progress progress = Progress::caller);

}  // namespace troupe::collective
