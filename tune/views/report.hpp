/// An experiment as pictures and as one page. Each is a file that needs no other file.
///
///     std::ofstream("curves.svg") << curves_svg(experiment.board());
///     std::ofstream("report.html") << report_html(experiment.board());
///
/// These are pure functions of the board. Text from outside is escaped, and the page has no script
/// and makes no request (TU-7). Pictures and page follow the reader's light or dark theme.
#pragma once

#include "troupe/tune/board.hpp"

namespace troupe::tune {

/// Draws the scores of the best 200 trials over their steps. A legend names the best twelve, and
/// the best one has a thick line. An arrow leads from a trial's last point before an exploit to the
/// point of the donor that it copied. The score axis is logarithmic when all scores are positive
/// and span more than a factor of 30.
TROUPE_API std::string curves_svg(const Board& board);

/// Draws which trial copied which: a lane over time for each of the best 40 trials. A lane's colour
/// is that of the trial from which its weights first came.
TROUPE_API std::string lineage_svg(const Board& board);

/// Draws parallel coordinates: a line for each of the best 200 trials, through its parameters to
/// its score.
TROUPE_API std::string parallel_svg(const Board& board);

/// Returns a page with the best trial, totals, a table of the best 100 trials, the three pictures
/// and the events.
TROUPE_API std::string report_html(const Board& board);

}  // namespace troupe::tune
