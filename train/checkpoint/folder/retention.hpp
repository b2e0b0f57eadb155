/// Which checkpoints of a run stay, and which one a run resumes from. Pure functions.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::train {

/// Returns the step with the best finite value; nothing when no step has one. Of equal values the
/// earlier step wins.
TROUPE_API std::optional<long> best_step(std::span<const long> steps,
                                         const std::map<long, double>& values, bool maximize);

/// Returns the steps whose checkpoints the run does not need, ascending: all but the newest
/// `keep` and the best.
TROUPE_API std::vector<long> unneeded(std::span<const long> steps,
                                      const std::map<long, double>& values, int keep,
                                      bool maximize);

/// A folder of a step as it was found.
struct FoundFolder {
  long step = 0;
  std::string problem;  ///< why it is not complete; empty: it is
};

/// What a run starts from.
struct Start {
  std::vector<long> steps;           ///< of complete folders, the newest first
  std::vector<std::string> skipped;  ///< a sentence for each newer folder that is not complete
};
/// Returns the complete folders and says why newer ones are skipped. Folders that are not
/// complete and older than the newest complete one are left out.
TROUPE_API Start choose_start(std::vector<FoundFolder> found);

}  // namespace troupe::train
