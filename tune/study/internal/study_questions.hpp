/// The answers to questions about a study: from its rows, and from what its owner knows beside
/// them.
///
///     socket << answer_to(question, store.rows(), &overview) << '\n';
#pragma once

#include "troupe/tune/domain.hpp"
#include "troupe/tune/study/study_protocol.hpp"
#include "troupe/tune/study/study_rows.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe::tune::internal {

/// What an owner knows of its experiment beside the rows.
struct StudyOverview {
  std::shared_ptr<const SearchSpace> space;  ///< none before the experiment was seen
  std::string metric;
  int planned = 0;
  int slots = 0;
  std::optional<int> room;
  bool paused = false;
  bool over = false;
  std::string why_over;
  double seconds = 0;
  std::uint64_t reports = 0;
  int best = -1;  ///< a trial
  long best_step = 0;
  double best_score = 0;
};

/// Returns the line that answers, or the line of an error. Blocks on the disk. `overview` may be
/// null: no process runs the study. An answer has at most about 512 KiB, or one row.
std::string answer_to(const StudyQuestion& question, const StudyRows& rows,
                      const StudyOverview* overview);

}  // namespace troupe::tune::internal
