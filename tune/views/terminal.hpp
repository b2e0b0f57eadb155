/// An experiment on a terminal: a live table, or one short line every few seconds elsewhere.
///
///     LiveView view(terminal_of(STDOUT_FILENO));
///     write(view.update(experiment.board(), steady_now()));   // as often as you like
///     write(view.finish(experiment.board()));
///
/// Everything here is a pure function of the board (and, in LiveView, of the time given to it).
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/tune/board.hpp"

namespace troupe::tune {

struct Terminal {
  bool live = false;  ///< lines can be redrawn in place
  bool colour = false;
  bool unicode = true;  ///< false: no sparklines, plain ASCII
  int width = 80;       ///< columns
  int max_rows = 20;    ///< trials shown, best first
};

/// What the file is: a terminal with its width, no colour when NO_COLOR is set or TERM is dumb, no
/// Unicode unless the locale is UTF-8.
TROUPE_API Terminal terminal_of(int fd);

/// The table as lines of at most `width` columns: a headline, the trials best first (at most
/// max_rows), how many more there are. Columns without a value are hidden; columns that do not fit
/// are left out from the right.
TROUPE_API std::vector<std::string> table(const Board& board, const Terminal& terminal);

/// `12.0s · 4 running, 2 done of 8 · 340 reports · best trial 3: loss 2.31, lr 0.0031`
TROUPE_API std::string progress_line(const Board& board);

/// The best trial with its parameters, for the end.
TROUPE_API std::string summary(const Board& board);

/// Bars of one row: the last `width` values, scaled between their least and greatest.
TROUPE_API std::string sparkline(const std::vector<Sample>& history, std::size_t width);

class TROUPE_API LiveView {
 public:
  explicit LiveView(Terminal terminal,
                    Duration every = std::chrono::seconds(3));  ///< between lines when not live
  /// Bytes to write now: new events as lines that stay, then the redrawn table; on a live terminal
  /// at most ten times a second. Empty when nothing is due.
  std::string update(const Board& board, Time now);
  /// The last table and the summary.
  std::string finish(const Board& board);
  /// A line that the next of these shows once, after the events before it.
  void note(const std::string& line) { notes_.push_back(line); }

 private:
  std::string line_of(double seconds, const std::string& what) const;
  std::string new_events(const Board& board);
  std::string erase();
  std::string draw(const Board& board);

  Terminal terminal_;
  Duration every_;
  std::optional<Time> last_;
  std::size_t drawn_ = 0;  ///< lines of the table on the screen
  std::uint64_t events_seen_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace troupe::tune
