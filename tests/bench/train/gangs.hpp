/// Rows of the suite "train" on gangs of train::fit: steps over nodes, checkpoints, starts and
/// restarts. Each makes clusters of its own. Precondition: this process has no other threads and no
/// Session. All throw std::runtime_error when they do not measure what they say.
#pragma once

#include "suite.hpp"

namespace troupe::bench {

/// Milliseconds of a step on two ranks on two nodes. The floor is the same on one node.
Reading step_over_nodes(bool quick);
/// Milliseconds that the second checkpoint in a folder stops two ranks, which stage 256 MiB. The
/// floor is 50 ms and 1.5 times a copy of the staged bytes in two processes.
Reading checkpoint_stall(bool quick);
/// Microseconds of Worker::wants_checkpoint() on two nodes, as the mean over steps of 2 ms.
Reading asking(bool quick);
/// Milliseconds from fit() to the end of step 1 on three ranks on three nodes, after another run.
Reading gang_start(bool quick);
/// Milliseconds from the SIGKILL of such a rank to the end of the next gang's step 1.
Reading gang_recovery(bool quick);

}  // namespace troupe::bench
