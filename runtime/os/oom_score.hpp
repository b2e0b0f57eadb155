/// Which processes the kernel ends first when memory runs out: workers, then zygotes. Agents and
/// control keep the score of their launcher, so that a node outlives its workers.
///
///     raise_oom_score();   // in a zygote, and once more in each of its workers
#pragma once

namespace troupe::os {

inline constexpr int kOomScoreStep = 250;
inline constexpr int kMostOomScore = 1000;  ///< of the kernel

/// Raises this process's oom_score_adj by kOomScoreStep. A negative score becomes the step itself:
/// a protected agent does not protect its workers. Needs no privilege. Ignores errors.
void raise_oom_score() noexcept;

}  // namespace troupe::os
