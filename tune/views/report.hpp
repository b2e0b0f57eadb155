/// An experiment as pictures and as one page: files that need nothing else.
///
///     std::ofstream("curves.svg") << curves_svg(experiment.board());
///     std::ofstream("report.html") << report_html(experiment.board());
///
/// Pure functions of the board. Everything that comes from outside is escaped; the page has no
/// script and asks for nothing over the network. Both follow the reader's light or dark theme.
#pragma once

#include "troupe/tune/board.hpp"

namespace troupe::tune {

/// Every trial's score over its steps; the best twelve named in a legend, the best one drawn
/// strongly. An arrow leads from where a trial was to the donor's point that it copied. The score
/// axis is logarithmic when the scores are positive and span more than a factor of 30.
TROUPE_API std::string curves_svg(const Board& board);

/// Who copied whom: a lane per trial (the best 40) over time, coloured by the trial that its
/// weights once came from.
TROUPE_API std::string lineage_svg(const Board& board);

/// Parallel coordinates: a line per trial (the best 200) through its parameters to its score.
TROUPE_API std::string parallel_svg(const Board& board);

/// Best trial, table, the three pictures and the events, in one file.
TROUPE_API std::string report_html(const Board& board);

}  // namespace troupe::tune
