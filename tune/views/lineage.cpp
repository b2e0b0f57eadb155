#include "troupe/tune/internal/ranking.hpp"
#include "troupe/tune/internal/svg.hpp"
#include "troupe/tune/internal/text.hpp"
#include "troupe/tune/views/report.hpp"

namespace troupe::tune {
namespace {

constexpr double kWidth = 960;
constexpr double kLane = 26;
constexpr double kLeft = 92;
constexpr double kRight = kWidth - 150;
constexpr double kTop = 62;
constexpr std::size_t kChangeLimit = 2000;  ///< copies that are drawn, the latest ones
constexpr std::size_t kRingLimit = 200;     ///< restarts that are drawn in one lane

struct Change {
  double seconds;
  std::size_t place;  ///< of the trial in Board::trials
  const Copy* copy;
};

std::vector<Change> changes_of(const Board& board) {
  std::vector<Change> changes;
  for (std::size_t i = 0; i < board.trials.size(); ++i) {
    for (const Copy& c : board.trials[i].copies) changes.push_back({c.seconds, i, &c});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.seconds < b.seconds; });
  return changes;
}

std::string segment(double x1, double x2, double y, std::size_t shade) {
  return "<line x1=\"" + coordinate(x1) + "\" x2=\"" + coordinate(x2) + "\" y1=\"" + coordinate(y) +
         "\" y2=\"" + coordinate(y) + "\" stroke=\"" + colour(shade) +
         "\" stroke-width=\"5\" stroke-linecap=\"round\"/>";
}

std::string copy_words(const Board& board, const Change& change) {
  const Copy& c = *change.copy;
  std::string text = "trial " + std::to_string(board.trials[change.place].number) +
                     " copied trial " + std::to_string(c.donor) + " at step " +
                     std::to_string(c.donor_step) +
                     (c.proven ? ", equal hashes " + c.hash : std::string(", not compared"));
  return text + "; now " + board.space.show(c.params);
}

double end_of(const TrialInfo& t) {
  return t.history.empty() ? t.created : t.history.back().seconds;
}

/// Draws a ring where an attempt failed and was retried.
std::string restarts(const TrialInfo& t, const Axis& x, double y) {
  std::string out;
  for (std::size_t i = 0; i < t.retries.size() && i < kRingLimit; ++i) {
    out += "<circle cx=\"" + coordinate(x.at(t.retries[i])) + "\" cy=\"" + coordinate(y) +
           "\" r=\"5\" fill=\"var(--bg)\" stroke=\"#c94d4d\" stroke-width=\"2.5\"><title>" +
           "began again" + "</title></circle>";
  }
  return out;
}

/// Draws the times without a process as gaps in the lane. Gaps too narrow to see are left out.
std::string gaps(const TrialInfo& t, const Axis& x, double y) {
  constexpr double kNarrow = 1.5;
  std::string out;
  const double end = end_of(t);
  for (const Pause& p : t.pauses) {
    const double from = x.at(std::min(p.from, end));
    const double to = x.at(p.to < 0 ? end : std::min(p.to, end));
    if (!(to - from >= kNarrow)) continue;
    out += "<line class=\"gap\" x1=\"" + coordinate(from) + "\" x2=\"" + coordinate(to) +
           "\" y1=\"" + coordinate(y) + "\" y2=\"" + coordinate(y) +
           "\" stroke=\"var(--bg)\" stroke-width=\"7\"><title>without a process</title></line>";
  }
  return out;
}

}  // namespace

std::string lineage_svg(const Board& board) {
  std::vector<int> rows = ranking(board);
  const std::vector<std::size_t> shade = shades(board);
  if (rows.size() > 40) rows.resize(40);
  std::vector<double> y_of(board.trials.size(), -1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    y_of[static_cast<std::size_t>(rows[i])] = kTop + kLane * (static_cast<double>(i) + 0.7);
  }
  const double bottom = kTop + kLane * static_cast<double>(rows.size()) + 10;
  std::string out = svg_open(kWidth, bottom + 46, board.name + ": who copied whom");
  out +=
      "<defs><marker id=\"from\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
      "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"var(--ink)\"/>"
      "</marker></defs>";
  out += svg_text(kLeft, 26, "Who copied whom", "start", "class=\"h\"");
  out += svg_text(kLeft, 45,
                  "a lane per trial, best first; its colour is the trial whose weights it "
                  "carries; a gap: a pause; a red ring: it failed and began again",
                  "start", "class=\"soft\"");
  const Axis x{0, std::max(board.seconds, 1e-3), false, kLeft, kRight};
  for (const double v : ticks(0, x.high, 8, false)) {
    out += "<line class=\"grid\" x1=\"" + coordinate(x.at(v)) + "\" x2=\"" + coordinate(x.at(v)) +
           "\" y1=\"" + coordinate(kTop) + "\" y2=\"" + coordinate(bottom) + "\"/>" +
           svg_text(x.at(v), bottom + 20, v < 60 ? number(v) + "s" : duration_text(v), "middle",
                    "class=\"soft\"");
  }
  std::vector<std::size_t> root(board.trials.size());
  std::vector<double> since(board.trials.size());
  for (std::size_t i = 0; i < board.trials.size(); ++i) {
    root[i] = i;
    since[i] = board.trials[i].created;
  }
  std::string arrows;
  const std::vector<Change> changes = changes_of(board);
  std::size_t hidden = changes.size() - std::min(changes.size(), kChangeLimit);
  for (const Change& change : changes) {
    const std::size_t i = change.place;
    const std::optional<std::size_t> donor = place_of(board, change.copy->donor);
    const double at = x.at(change.seconds);
    const bool shown = hidden == 0;
    if (!shown) --hidden;
    if (y_of[i] >= 0 && shown) out += segment(x.at(since[i]), at, y_of[i], shade[root[i]]);
    if (donor) root[i] = root[*donor];
    since[i] = change.seconds;
    if (!shown || y_of[i] < 0 || !donor || y_of[*donor] < 0) continue;
    const double gap = y_of[i] > y_of[*donor] ? -5 : 5;
    arrows += "<line x1=\"" + coordinate(at) + "\" x2=\"" + coordinate(at) + "\" y1=\"" +
              coordinate(y_of[*donor]) + "\" y2=\"" + coordinate(y_of[i] + gap) +
              "\" stroke=\"var(--ink)\" stroke-width=\"1.3\" marker-end=\"url(#from)\"><title>" +
              escape(copy_words(board, change)) + "</title></line><circle cx=\"" + coordinate(at) +
              "\" cy=\"" + coordinate(y_of[*donor]) + "\" r=\"2.6\" fill=\"var(--ink)\"/>\n";
  }
  for (const int row : rows) {
    const auto i = static_cast<std::size_t>(row);
    const TrialInfo& t = board.trials[i];
    out += segment(x.at(since[i]), x.at(std::max(since[i], end_of(t))), y_of[i], shade[root[i]]);
    out += gaps(t, x, y_of[i]) + restarts(t, x, y_of[i]);
    out += svg_text(kLeft - 12, y_of[i] + 4, "trial " + std::to_string(t.number), "end",
                    t.number == board.best ? "font-weight=\"700\"" : "");
    out += svg_text(
        kRight + 14, y_of[i] + 4,
        (t.history.empty() ? "" : number(t.score()) + "  ") + std::string(name_of(t.state)),
        "start", "class=\"soft\"");
  }
  return out + arrows + "</svg>\n";
}

}  // namespace troupe::tune
