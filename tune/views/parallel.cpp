#include "troupe/tune/internal/ranking.hpp"
#include "troupe/tune/internal/svg.hpp"
#include "troupe/tune/internal/text.hpp"
#include "troupe/tune/views/report.hpp"

namespace troupe::tune {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 380;
constexpr double kUpper = 84;
constexpr double kLower = kHeight - 40;
constexpr std::size_t kRowLimit = 200;

/// The columns from left to right: the parameters, then the score.
struct Columns {
  const Board& board;
  std::vector<int> rows;  ///< places of the trials with a score, best first

  std::size_t count() const { return board.space.size() + 1; }
  bool is_score(std::size_t k) const { return k + 1 == count(); }
  const Domain* domain(std::size_t k) const {
    return is_score(k) ? nullptr : &board.space.parameters[k].domain;
  }
  bool is_choice(std::size_t k) const {
    return !is_score(k) && domain(k)->kind == Domain::Kind::choice;
  }
  double value(int row, std::size_t k) const {
    const TrialInfo& t = board.trials[static_cast<std::size_t>(row)];
    return is_score(k) ? t.score() : t.params[k];
  }
  double x(std::size_t k) const {
    const auto steps = static_cast<double>(count() - 1);
    return count() == 1 ? kWidth / 2 : 90 + (kWidth - 200) * static_cast<double>(k) / steps;
  }
  Axis axis(std::size_t k) const {
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
    for (const int row : rows) {
      if (!std::isfinite(value(row, k))) continue;  // a scheduler may have left the domain
      low = std::min(low, value(row, k));
      high = std::max(high, value(row, k));
    }
    if (low > high) low = high = 0;
    if (is_choice(k)) low = domain(k)->low, high = domain(k)->high;
    const bool log = !is_score(k) && domain(k)->log && low > 0;
    const bool turned = is_score(k) && !board.goal.larger();  // better scores are at the top
    return {low, high, log, turned ? kUpper : kLower, turned ? kLower : kUpper};
  }
};

/// Returns the values that an axis labels: every option of a choice; else the ends and the middle.
std::vector<double> marks_of(const Columns& columns, std::size_t k, const Axis& axis) {
  std::vector<double> marks;
  if (columns.is_choice(k)) {
    for (std::size_t o = 0; o < columns.domain(k)->options.size(); ++o) {
      marks.push_back(static_cast<double>(o));
    }
    return marks;
  }
  if (!(axis.high > axis.low)) return {axis.low};
  const double middle =
      axis.log ? std::sqrt(axis.low) * std::sqrt(axis.high) : axis.low / 2 + axis.high / 2;
  return {axis.low, middle, axis.high};
}

std::string draw_axis(const Columns& columns, std::size_t k, const Axis& axis) {
  const double x = columns.x(k);
  std::string out = "<line x1=\"" + coordinate(x) + "\" x2=\"" + coordinate(x) + "\" y1=\"" +
                    coordinate(kUpper) + "\" y2=\"" + coordinate(kLower) +
                    "\" stroke=\"var(--ink)\" stroke-width=\"1.2\"/>";
  const Board& board = columns.board;
  const std::string& name = columns.is_score(k) ? board.metric : board.space.parameters[k].name;
  out += svg_text(x, kUpper - 14, fit(name, 20), "middle", "font-weight=\"600\"");
  for (const double mark : marks_of(columns, k, axis)) {
    const std::string words = columns.is_score(k) ? number(mark) : show(*columns.domain(k), mark);
    out +=
        svg_text(x + 8, axis.at(mark) + 4, fit(words, 16), "start",
                 "class=\"soft\" style=\"paint-order:stroke;stroke:var(--bg);stroke-width:4px\"");
  }
  return out;
}

std::string draw_trial(const Columns& columns, const std::vector<Axis>& axes, std::size_t rank,
                       std::size_t shade) {
  const int row = columns.rows[rank];
  std::string d;
  for (std::size_t k = 0; k < columns.count(); ++k) {
    d += (k ? "L" : "M") + coordinate(columns.x(k)) + " " +
         coordinate(axes[k].at(columns.value(row, k)));
  }
  const bool good = rank < (columns.rows.size() + 1) / 2;
  return "<path class=\"line\" d=\"" + d + "\" stroke=\"" + (good ? colour(shade) : "var(--soft)") +
         "\" stroke-width=\"" + (rank == 0 ? "3.2" : "1.6") + "\" opacity=\"" +
         (rank == 0 ? "1"
          : good    ? "0.75"
                    : "0.4") +
         "\"><title>trial " +
         std::to_string(columns.board.trials[static_cast<std::size_t>(row)].number) +
         "</title></path>\n";
}

}  // namespace

std::string parallel_svg(const Board& board) {
  std::string out = svg_open(kWidth, kHeight, board.name + ": parameters and score");
  out += svg_text(40, 26, "Parameters and score", "start", "class=\"h\"");
  out += svg_text(40, 45, "a line per trial through its last parameters; the better half in colour",
                  "start", "class=\"soft\"");
  Columns columns{board, {}};
  for (const int row : ranking(board)) {
    const bool scored = std::isfinite(board.trials[static_cast<std::size_t>(row)].score());
    if (scored && columns.rows.size() < kRowLimit) columns.rows.push_back(row);
  }
  if (columns.rows.empty()) {
    return out + svg_text(kWidth / 2, kHeight / 2, "no score yet", "middle") + "</svg>\n";
  }
  std::vector<Axis> axes;
  for (std::size_t k = 0; k < columns.count(); ++k) axes.push_back(columns.axis(k));
  const std::vector<std::size_t> shade = shades(board);
  for (std::size_t i = columns.rows.size(); i-- > 0;) {
    out += draw_trial(columns, axes, i, shade[static_cast<std::size_t>(columns.rows[i])]);
  }
  for (std::size_t k = 0; k < columns.count(); ++k) out += draw_axis(columns, k, axes[k]);
  return out + "</svg>\n";
}

}  // namespace troupe::tune
