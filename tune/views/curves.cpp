#include "troupe/tune/internal/ranking.hpp"
#include "troupe/tune/internal/svg.hpp"
#include "troupe/tune/internal/text.hpp"
#include "troupe/tune/views/report.hpp"

namespace troupe::tune {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 500;
constexpr double kLeft = 74;
constexpr double kRight = kWidth - 178;
constexpr double kTop = 62;
constexpr double kBottom = kHeight - 52;
constexpr std::size_t kNamed = 12;
constexpr std::size_t kDrawn = 200;       ///< trials that are drawn, best first
constexpr std::size_t kArrowLimit = 500;  ///< copies of these trials that get an arrow

struct Frame {
  Axis x;
  Axis y;
  bool empty = true;
};

Frame frame_of(const Board& board) {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  long last = 1;
  for (const TrialInfo& t : board.trials) {
    for (const Sample& s : t.history) {
      if (!std::isfinite(s.score)) continue;
      low = std::min(low, s.score);
      high = std::max(high, s.score);
      last = std::max(last, s.step);
    }
  }
  Frame f;
  f.x = {0, static_cast<double>(last), false, kLeft, kRight};
  if (low > high) return f;
  f.empty = false;
  const bool log = low > 0 && high / 30 > low;
  const double pad = 0.04 * (high > low ? high - low : std::abs(high) + 1);
  f.y = {log ? low / 1.1 : low - pad, log ? high * 1.1 : high + pad, log, kBottom, kTop};
  // Near the largest and smallest doubles the padding overflows or underflows: draw without it.
  if (!std::isfinite(f.y.low) || !std::isfinite(f.y.high) || (log && !(f.y.low > 0)))
    f.y = {low, high, log, kBottom, kTop};
  return f;
}

std::string axes(const Board& board, const Frame& f) {
  std::string out;
  for (const double v : ticks(f.y.low, f.y.high, 6, f.y.log)) {
    const double y = f.y.at(v);
    out += "<line class=\"grid\" x1=\"" + coordinate(kLeft) + "\" x2=\"" + coordinate(kRight) +
           "\" y1=\"" + coordinate(y) + "\" y2=\"" + coordinate(y) + "\"/>" +
           svg_text(kLeft - 8, y + 4, number(v), "end", "class=\"soft\"");
  }
  for (const double v : ticks(f.x.low, f.x.high, 9, false)) {
    if (v != std::floor(v)) continue;  // steps are whole
    out += svg_text(f.x.at(v), kBottom + 20, number(v), "middle", "class=\"soft\"");
  }
  out += "<line class=\"grid\" x1=\"" + coordinate(kLeft) + "\" x2=\"" + coordinate(kRight) +
         "\" y1=\"" + coordinate(kBottom) + "\" y2=\"" + coordinate(kBottom) +
         "\" style=\"stroke:var(--soft)\"/>";
  out += svg_text((kLeft + kRight) / 2, kHeight - 12, "step", "middle", "class=\"soft\"");
  const std::string middle = coordinate((kTop + kBottom) / 2);
  out += svg_text(18, (kTop + kBottom) / 2, board.metric + (f.y.log ? " (log scale)" : ""),
                  "middle", "class=\"soft\" transform=\"rotate(-90 18 " + middle + ")\"");
  return out + "\n";
}

/// Returns the last score that a trial had reported by this time for this step or an earlier one.
double score_at(const TrialInfo& t, long step, double seconds) {
  double score = std::nan("");
  for (const Sample& s : t.history) {
    if (s.step <= step && s.seconds <= seconds + 1e-6) score = s.score;
  }
  return score;
}

std::string curve_path(const Board& board, const TrialInfo& t, const Frame& f) {
  std::string d;
  int attempt = 0;
  std::size_t copy = 0;
  const std::size_t stride = t.history.size() / 800 + 1;
  for (std::size_t i = 0; i < t.history.size(); ++i) {
    const Sample& s = t.history[i];
    const bool fresh = s.attempt != attempt;
    if (!std::isfinite(s.score) || (!fresh && i % stride != 0 && i + 1 < t.history.size()))
      continue;
    attempt = s.attempt;
    bool joined = !fresh && !d.empty();
    if (fresh && copy < t.copies.size() && t.copies[copy].seconds <= s.seconds) {
      while (copy + 1 < t.copies.size() && t.copies[copy + 1].seconds <= s.seconds) ++copy;
      const Copy& c = t.copies[copy++];
      const TrialInfo* donor = board.find(c.donor);
      const double from =
          donor == nullptr ? std::nan("") : score_at(*donor, c.donor_step, c.seconds);
      if (std::isfinite(from)) {  // the curve goes on from the donor's point
        d += "M" + coordinate(f.x.at(static_cast<double>(c.donor_step))) + " " +
             coordinate(f.y.at(from));
        joined = true;
      }
    }
    d += (joined ? "L" : "M") + coordinate(f.x.at(static_cast<double>(s.step))) + " " +
         coordinate(f.y.at(s.score));
  }
  return d;
}

/// Draws arrows for the latest copies of a trial, at most `room` of them, and lowers `room`.
std::string copy_arrows(const Board& board, const TrialInfo& t, const Frame& f,
                        const std::string& stroke, std::size_t& room) {
  std::string out;
  for (std::size_t i = t.copies.size() - std::min(room, t.copies.size()); i < t.copies.size();
       ++i, --room) {
    const Copy& c = t.copies[i];
    const double from = score_at(t, c.own_step, c.seconds);
    const TrialInfo* donor = board.find(c.donor);
    if (donor == nullptr) continue;
    const double to = score_at(*donor, c.donor_step, c.seconds);
    if (!std::isfinite(from) || !std::isfinite(to)) continue;
    const double x1 = f.x.at(static_cast<double>(c.own_step));
    const double y1 = f.y.at(from);
    const double x2 = f.x.at(static_cast<double>(c.donor_step));
    const double y2 = f.y.at(to);
    const double bend = 10 + std::abs(y2 - y1) / 6;
    out += "<path class=\"line\" d=\"M" + coordinate(x1) + " " + coordinate(y1) + "Q" +
           coordinate(std::max(x1, x2) + bend) + " " + coordinate((y1 + y2) / 2) + " " +
           coordinate(x2) + " " + coordinate(y2) + "\" stroke=\"" + stroke +
           "\" stroke-width=\"1.4\" stroke-dasharray=\"4 3\" marker-end=\"url(#copy)\"><title>" +
           escape("trial " + std::to_string(t.number) + " copied trial " + std::to_string(c.donor) +
                  " at step " + std::to_string(c.donor_step)) +
           "</title></path>\n";
  }
  return out;
}

std::string legend(const Board& board, const std::vector<int>& order,
                   const std::vector<std::size_t>& shade) {
  std::string out =
      svg_text(kRight + 18, kTop + 4, "trial, last " + board.metric, "start", "class=\"soft\"");
  double y = kTop + 26;
  for (std::size_t i = 0; i < order.size() && i < kNamed; ++i, y += 20) {
    const TrialInfo& t = board.trials[static_cast<std::size_t>(order[i])];
    out += "<line x1=\"" + coordinate(kRight + 18) + "\" x2=\"" + coordinate(kRight + 38) +
           "\" y1=\"" + coordinate(y - 4) + "\" y2=\"" + coordinate(y - 4) + "\" stroke=\"" +
           colour(shade[static_cast<std::size_t>(order[i])]) + "\" stroke-width=\"" +
           (t.number == board.best ? "4" : "2.5") + "\"/>";
    const std::string words =
        "trial " + std::to_string(t.number) + ": " + (t.history.empty() ? "–" : number(t.score()));
    out += svg_text(kRight + 46, y, words, "start",
                    t.number == board.best ? "font-weight=\"700\"" : "");
  }
  if (order.size() > kNamed) {
    out += svg_text(kRight + 18, y,
                    std::to_string(std::min(order.size(), kDrawn) - kNamed) + " more in grey",
                    "start", "class=\"soft\"");
    y += 20;
  }
  const auto all = static_cast<std::size_t>(board.created());
  const std::size_t drawn = std::min(order.size(), kDrawn);
  if (all > drawn) {
    out += svg_text(kRight + 18, y, std::to_string(all - drawn) + " not drawn", "start",
                    "class=\"soft\"");
    y += 20;
  }
  for (const TrialInfo& t : board.trials) {
    if (t.copies.empty()) continue;
    out += "<path class=\"line\" d=\"M" + coordinate(kRight + 18) + " " + coordinate(y + 6) +
           "h18\" "
           "stroke=\"var(--soft)\" stroke-width=\"1.4\" stroke-dasharray=\"4 3\" "
           "marker-end=\"url(#copy)\"/>" +
           svg_text(kRight + 46, y + 10, "copies weights", "start", "class=\"soft\"");
    break;
  }
  return out;
}

}  // namespace

std::string curves_svg(const Board& board) {
  std::string out = svg_open(kWidth, kHeight, board.name + ": " + board.metric + " over steps");
  out +=
      "<defs><marker id=\"copy\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
      "markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0L8 4L0 8z\" "
      "fill=\"var(--soft)\"/></marker></defs>";
  out += svg_text(kLeft, 26, fit(board.name, 80), "start", "class=\"h\"");
  out += svg_text(
      kLeft, 45,
      fit(board.metric + " of every trial (" + (board.goal.larger() ? "larger" : "smaller") +
              " is better) · " + board.scheduler,
          118),
      "start", "class=\"soft\"");
  const Frame f = frame_of(board);
  if (f.empty) {
    out += svg_text(kWidth / 2, kHeight / 2, "no trial has reported a score yet", "middle",
                    "class=\"soft\"");
    return out + "</svg>\n";
  }
  out += axes(board, f);
  const std::vector<int> order = ranking(board);
  const std::vector<std::size_t> shade = shades(board);
  std::string arrows;
  std::size_t room = kArrowLimit;
  for (std::size_t i = std::min(order.size(), kDrawn);
       i-- > 0;) {  // the best one is drawn last, on top
    const TrialInfo& t = board.trials[static_cast<std::size_t>(order[i])];
    if (t.history.empty()) continue;
    const bool grey = i >= kNamed;
    const std::string stroke =
        grey ? "var(--soft)" : colour(shade[static_cast<std::size_t>(order[i])]);
    const bool best = t.number == board.best;
    out += "<path class=\"line\" d=\"" + curve_path(board, t, f) + "\" stroke=\"" + stroke +
           "\" stroke-width=\"" +
           (best   ? "3.2"
            : grey ? "1"
                   : "1.7") +
           "\" opacity=\"" +
           (best   ? "1"
            : grey ? "0.35"
                   : "0.8") +
           "\"><title>" +
           escape("trial " + std::to_string(t.number) + ": " + board.space.show(t.params)) +
           "</title></path>\n";
    const Sample& end = t.history.back();
    if (!grey && std::isfinite(end.score)) {
      out += "<circle cx=\"" + coordinate(f.x.at(static_cast<double>(end.step))) + "\" cy=\"" +
             coordinate(f.y.at(end.score)) + "\" r=\"" + (best ? "4.5" : "2.5") + "\" fill=\"" +
             stroke + "\"/>";
    }
    arrows += copy_arrows(board, t, f, stroke, room);
  }
  return out + arrows + legend(board, order, shade) + "</svg>\n";
}

}  // namespace troupe::tune
