/// PerTrial: the resources that each running trial reserves.
///
///     tune::Options<> options{.goal = tune::maximize, .trials = 20, .per_trial = {.cpus = 2}};
///     options.per_trial = {.cpus = 1, .gpus = 1, .workers = 4};   // a gang of four in each trial
#pragma once

#include "troupe/runtime/options.hpp"

namespace troupe::tune {

/// Tasks that a trial submits reserve CPUs of their own, beside its. Leave some free for them, by
/// Options::concurrent or with cpus = 0. Texts in `resources` and `labels` must live as long as the options do.
struct PerTrial {
  double cpus = 1;  ///< 0: none; then as many trials run as Options::concurrent says
  /// A whole number, or a fraction of one GPU. A process with GPUs runs one attempt.
  double gpus = 0;
  Bytes memory = {};
  Resources resources = {};
  Labels labels = {};
  /// Ranks of the gang that the trial runs with train::fit(t, …). The amounts above are then those
  /// of one rank. The trial reserves the sum on one node. If no node can hold the sum, the gang
  /// reserves it over several nodes. 0: the trial runs no gang that reserves resources.
  int workers = 0;
};

}  // namespace troupe::tune
