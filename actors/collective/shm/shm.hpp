/// A group whose ranks are processes of one node that share one memfd.
///
///     Fd memory = create_shm_group({.size = 2, .generation = 7});      // somebody, once
///     auto comm = join_shm_group(memory, rank, /*generation=*/7);      // every rank, a copy
///     comm->all_reduce(gradients, Reduce::mean).wait();
///
/// A rank whose process dies is noticed within 0.1 s by ranks that wait for it. A group is used for
/// one generation of ranks: after a death make a new memfd with the next generation. A late rank of
/// the old group still holds the old memfd, so it can disturb nobody.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <chrono>
#include <memory>

namespace troupe::collective {

struct ShmOptions {
  int size = 1;                  ///< ranks, 1 to 1024
  std::uint64_t generation = 1;  ///< ranks that join with another number are refused
  /// Buffer of a rank, 4 KiB to 1 GiB; longer messages go in pieces of this. Larger buffers mean
  /// fewer meetings; the bits do not depend on it. The memfd holds 2 * size of them for the group
  /// and for each split, touched as used.
  Bytes slot = {4 << 20};
  /// Times that split() may be called, in the group and in its splits together; at most 64. Each
  /// makes the memfd longer, and takes memory when it is used.
  int splits = 8;
};

/// Makes the shared memory; its size is sealed. Errors: InvalidArgument for options out of range,
/// NoSpace when the memfd cannot be made. The caller passes (copies of) the descriptor to the
/// ranks.
TROUPE_API Fd create_shm_group(const ShmOptions& options);

/// Takes place `rank` of the group behind the descriptor, which may be closed afterwards. Does not
/// wait for the other ranks. Errors: InvalidArgument when the memory is not a group's, has another
/// generation, has no such rank, the rank is taken already, or the timeout is not positive
/// (`forever` sets no limit).
TROUPE_API std::unique_ptr<Communicator> join_shm_group(const Fd& memory, int rank,
                                                        std::uint64_t generation,
                                                        Duration timeout = std::chrono::seconds(30),
                                                        Progress progress = Progress::caller);

}  // namespace troupe::collective
