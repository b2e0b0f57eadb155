/// An experiment on a terminal: a live table, or one short line every few seconds elsewhere.
///
///     LiveView view(terminal_of(STDOUT_FILENO));
///     write(view.update(experiment.board(), steady_now()));   // as often as you like
///     write(view.finish(experiment.board()));
///
/// Everything here but terminal_of() is a pure function of the board, and in LiveView of the time
/// given to it.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/tune/board.hpp"

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tune {

/// The capabilities of an output.
struct Terminal {
  bool live = false;  ///< lines can be redrawn in place
  bool colour = false;
  bool unicode = true;  ///< false: no sparklines, plain ASCII
  int width = 80;       ///< columns
  int max_rows = 20;    ///< trials shown, best first
};

/// Examines a file descriptor: whether it is a terminal, and its width. Colour is off when NO_COLOR
/// is set or TERM is dumb; Unicode is off unless the locale is UTF-8.
TROUPE_API Terminal terminal_of(int fd);

/// Returns the table as lines of at most `width` columns: a headline, the best max_rows trials, and
/// how many more there are. Columns without a value are hidden. Columns that do not fit are left
/// out from the right.
TROUPE_API std::vector<std::string> table(const Board& board, const Terminal& terminal);

/// Returns a line such as
/// `12.0s · 4 running, 2 done of 8 · 340 reports · best trial 3: loss 2.31, lr 0.0031`.
TROUPE_API std::string progress_line(const Board& board);

/// Returns the outcome and the best trial with its parameters, to print at the end.
TROUPE_API std::string summary(const Board& board);

/// Returns the history as one row of at most `width` bars. Each bar is the mean of an equal share
/// of the reports; the bars are scaled between the least and the greatest mean.
TROUPE_API std::string sparkline(const std::vector<Sample>& history, std::size_t width);

/// A view that is updated while the experiment runs.
class TROUPE_API LiveView {
 public:
  explicit LiveView(Terminal terminal,
                    Duration every = std::chrono::seconds(3));  ///< between lines when not live
  /// Returns the bytes to write now: new events as lines that stay, then the redrawn table or the
  /// progress line. Empty when nothing is due; a live terminal is updated at most ten times a
  /// second.
  std::string update(const Board& board, Time now);
  /// Returns the last table and the summary.
  std::string finish(const Board& board);
  /// Adds a line that the next update() or finish() shows once, after the events before it.
  void note(const std::string& line) { notes_.push_back(line); }
  /// Adds a whole line that a trial wrote. The next update() or finish() shows it once as
  /// `t7: TEXT`, above the table. Of more than 1,000 lines until then the latest stay.
  void line(int trial, std::string_view text);
  /// Sets the lines on what holds trials up. They stand below the table, or after the progress
  /// line, until the next call.
  void standing(std::vector<std::string> lines) { standing_ = std::move(lines); }

 private:
  std::string line_of(double seconds, const std::string& what) const;
  std::string new_events(const Board& board);
  std::string new_lines();
  std::string erase();
  std::string draw(const Board& board);

  Terminal terminal_;
  Duration every_;
  std::optional<Time> last_;
  std::size_t drawn_ = 0;  ///< lines of the table now on the screen, which erase() removes
  std::uint64_t events_seen_ = 0;
  std::vector<std::string> notes_;
  std::vector<std::string> standing_;
  std::deque<std::string> lines_;
  std::size_t lines_lost_ = 0;
};

}  // namespace troupe::tune
