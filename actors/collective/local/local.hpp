/// A group whose ranks are threads of one process: the reference back end, on which every layout is
/// tested.
///
///     auto ranks = local_group(2);
///     std::thread other([&] { train(*ranks[1]); });
///     train(*ranks[0]);
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/actors/collective/local/link.hpp"

#include <chrono>
#include <memory>
#include <vector>

namespace troupe::collective {

struct LocalOptions {
  Duration timeout = std::chrono::seconds(30);  ///< positive; `forever` sets no limit
  /// Size of a rank's buffer. Longer messages go in pieces. The result's bits do not depend on it.
  Bytes slot = {1 << 20};
  /// How often split() may be called, in the group and in its splits together; at most 64. Each
  /// reserves address space, but takes memory only when it is used.
  int splits = 8;
  Progress progress = Progress::caller;  ///< of every rank's communicator
  SimulatedLink link = {};               ///< for tests; splits have it too
};

/// Returns `size` connected ends, index = rank. Each may be used by a thread of its own. Throws
/// InvalidArgument unless 1 <= size <= 1024, 0 <= splits <= 64 and the timeout is positive.
/// Cost: address space of 2 * size * slot for the group and for each split, and 64 KiB for each
/// pair of ranks that sends (4 KiB above 64 ranks). Pages are allocated at the first use.
TROUPE_API std::vector<std::unique_ptr<Communicator>> local_group(int size,
                                                                  const LocalOptions& options = {});

}  // namespace troupe::collective
