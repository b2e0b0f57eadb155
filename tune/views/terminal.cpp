#include "troupe/tune/views/terminal.hpp"

#include "troupe/tune/internal/ranking.hpp"
#include "troupe/tune/internal/text.hpp"

#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace troupe::tune {
namespace {

struct Column {
  std::string title;
  std::vector<std::string> cells;
  bool left = false;    ///< left-aligned
  bool sticky = false;  ///< shown even without a value
  std::size_t width = 0;
};

const char* colour_of(TrialState s) {
  switch (s) {
    case TrialState::running: return "\x1b[36m";
    case TrialState::completed: return "\x1b[32m";
    case TrialState::failed: return "\x1b[31m";
    case TrialState::stopped: return "\x1b[2m";
    default: return "\x1b[33m";
  }
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string shown = fit(text, width);
  const std::string blank(width - std::min(width, columns(shown)), ' ');
  return left ? shown + blank : blank + shown;
}

std::string counts(const Board& board) {
  int n[8] = {};
  n[static_cast<int>(TrialState::completed)] = board.gone.completed;
  n[static_cast<int>(TrialState::stopped)] = board.gone.stopped;
  n[static_cast<int>(TrialState::failed)] = board.gone.failed;
  for (const TrialInfo& t : board.trials) ++n[static_cast<int>(t.state)];
  n[static_cast<int>(TrialState::running)] +=
      std::exchange(n[static_cast<int>(TrialState::leaving)], 0);
  std::string text;
  for (const TrialState s :
       {TrialState::running, TrialState::holding, TrialState::waiting, TrialState::paused,
        TrialState::completed, TrialState::stopped, TrialState::failed}) {
    const int k = n[static_cast<int>(s)];
    if (k > 0)
      text += (text.empty() ? "" : ", ") + std::to_string(k) + " " + std::string(name_of(s));
  }
  const int unborn = board.planned - board.created();
  if (unborn > 0 && !board.over)
    text += (text.empty() ? "" : ", ") + std::to_string(unborn) + " to come";
  return text;
}

std::string best_words(const Board& board) {
  if (board.best < 0) return "no score yet";
  const Point& params = board.best_params();
  return "best trial " + std::to_string(board.best) + ": " + board.metric + " " +
         number(board.best_score()) + (params.empty() ? "" : ", " + board.space.show(params));
}

/// Returns the trial's donors in order, such as `0 3 1`; only the last four.
std::string lineage(const TrialInfo& t) {
  std::string text;
  const std::size_t from = t.copies.size() > 4 ? t.copies.size() - 4 : 0;
  if (from > 0) text = "…";
  for (std::size_t i = from; i < t.copies.size(); ++i) {
    text += (text.empty() ? "" : " ") + std::to_string(t.copies[i].donor);
  }
  return text;
}

std::vector<Column> make_columns(const Board& board, const std::vector<int>& rows, bool unicode) {
  std::vector<Column> all = {{"trial", {}, false, true},
                             {"state", {}, true, true},
                             {"step", {}, false, true},
                             {board.metric, {}, false, true},
                             {"curve", {}, true}};
  const std::size_t first_param = all.size();
  for (const Parameter& p : board.space.parameters) all.push_back({p.name, {}});
  all.push_back({"copied", {}, true});
  all.push_back({"failures", {}});
  for (const int row : rows) {
    const TrialInfo& t = board.trials[static_cast<std::size_t>(row)];
    all[0].cells.push_back(std::to_string(t.number) + (t.number == board.best ? "*" : " "));
    const bool leaving = t.state == TrialState::leaving;
    all[1].cells.emplace_back(leaving ? "running" : name_of(t.state));
    all[2].cells.push_back(t.history.empty() ? "" : std::to_string(t.step()));
    all[3].cells.push_back(t.history.empty() ? "" : number(t.score()));
    all[4].cells.push_back(unicode && t.history.size() > 1 ? sparkline(t.history, 12) : "");
    for (std::size_t i = 0; i < board.space.size(); ++i) {
      all[first_param + i].cells.push_back(show(board.space.parameters[i].domain, t.params[i]));
    }
    all[all.size() - 2].cells.push_back(lineage(t));
    all.back().cells.push_back(t.failures > 0 ? std::to_string(t.failures) : "");
  }
  std::vector<Column> shown;
  for (Column& c : all) {
    const bool empty = std::all_of(c.cells.begin(), c.cells.end(),
                                   [](const std::string& cell) { return cell.empty(); });
    if (empty && !c.sticky) continue;
    c.width = columns(c.title);
    for (const std::string& cell : c.cells) c.width = std::max(c.width, columns(cell));
    c.width = std::min<std::size_t>(c.width, 20);
    shown.push_back(std::move(c));
  }
  return shown;
}

/// Leaves out columns from the right until a line fits, and returns how many are left out.
std::size_t fit_columns(std::vector<Column>& all, std::size_t width) {
  std::size_t used = 0;
  std::size_t keep = 0;
  std::size_t needed = 0;
  for (std::size_t c = 0; c < all.size(); ++c) needed += all[c].width + (c ? 2 : 0);
  if (needed > width) width -= 5;  // room for a count such as "  +12" in the title line
  while (keep < all.size() && used + all[keep].width + (keep ? 2 : 0) <= width) {
    used += all[keep].width + (keep ? 2 : 0);
    ++keep;
  }
  const std::size_t hidden = all.size() - keep;
  all.resize(keep);
  return hidden;
}

std::string table_row(const std::vector<Column>& all, std::size_t row, const TrialInfo& t,
                      const Terminal& terminal, bool best) {
  std::string line;
  for (std::size_t c = 0; c < all.size(); ++c) {
    if (c > 0) line += "  ";
    const std::string cell = padded(all[c].cells[row], all[c].width, all[c].left);
    const bool paint = terminal.colour && all[c].title == "state";
    line += paint ? colour_of(t.state) + cell + "\x1b[0m" + (best ? "\x1b[1m" : "") : cell;
  }
  while (!terminal.colour && !line.empty() && line.back() == ' ') line.pop_back();
  return terminal.colour && best ? "\x1b[1m" + line + "\x1b[0m" : line;
}

std::string ascii(std::string text) {
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"…", "~"}, {"→", "->"}, {"·", "|"}}) {
    for (std::size_t at; (at = text.find(from)) != std::string::npos;) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

}  // namespace

std::string sparkline(const std::vector<Sample>& history, std::size_t width) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::vector<double> values;
  const std::size_t n = history.size();
  const std::size_t shown = std::min(n, width);
  for (std::size_t i = 0; i < shown; ++i) {  // a bar is the mean of one of `shown` equal shares
    double sum = 0;
    int count = 0;
    for (std::size_t k = i * n / shown; k < (i + 1) * n / shown; ++k) {
      if (std::isfinite(history[k].score)) ++count;
    }
    for (std::size_t k = i * n / shown; k < (i + 1) * n / shown; ++k) {
      // Divided before it is added, so that the sum cannot overflow.
      if (std::isfinite(history[k].score)) sum += history[k].score / count;
    }
    values.push_back(count ? sum : std::nan(""));
  }
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  for (const double v : values) {
    if (std::isnan(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  std::string text;
  for (const double v : values) {
    const double at = high > low ? (v / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
    text += !std::isfinite(v) || !std::isfinite(at)
                ? " "
                : kBars[std::clamp(static_cast<int>(at * 7.999), 0, 7)];
  }
  return text;
}

/// Lines at the head of table() that show progress and the best trial. finish() leaves them out,
/// since the summary shows the same.
constexpr std::size_t kTableHead = 2;

std::vector<std::string> table(const Board& board, const Terminal& terminal) {
  const auto width = static_cast<std::size_t>(std::max(terminal.width, 20));
  std::vector<int> rows = ranking(board);
  const auto total = static_cast<std::size_t>(board.created());
  const auto limit = static_cast<std::size_t>(std::max(terminal.max_rows, 1));
  if (rows.size() > limit) rows.resize(limit);
  std::vector<Column> all = make_columns(board, rows, terminal.unicode);
  const std::size_t hidden = fit_columns(all, width);
  std::vector<std::string> lines;
  lines.push_back(
      fit(board.name + " · " + duration_text(board.seconds) + " · " + counts(board), width));
  lines.push_back(fit(best_words(board), width));
  std::string title;
  for (std::size_t c = 0; c < all.size(); ++c) {
    title += (c ? "  " : "") + padded(all[c].title, all[c].width, all[c].left);
  }
  if (hidden > 0) title = fit(title + "  +" + std::to_string(hidden), width);
  lines.push_back(terminal.colour ? "\x1b[4m" + title + "\x1b[0m" : title);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const TrialInfo& t = board.trials[static_cast<std::size_t>(rows[r])];
    lines.push_back(table_row(all, r, t, terminal, t.number == board.best));
  }
  if (total > rows.size()) {
    lines.push_back(fit("… " + std::to_string(total - rows.size()) + " more trials", width));
  }
  if (!terminal.unicode) {
    for (std::string& line : lines) line = ascii(std::move(line));
  }
  return lines;
}

std::string progress_line(const Board& board) {
  std::string text = duration_text(board.seconds) + " · " + counts(board);
  if (board.reports == 0) return text;  // there is no score yet
  return text + " · " + std::to_string(board.reports) + " reports · " + best_words(board);
}

std::string summary(const Board& board) {
  std::string text = board.name + ": " + (board.over ? board.why_over : "running") + " after " +
                     duration_text(board.seconds) + ", " + counts(board) + "\n";
  if (board.best < 0) return text + "no trial reported a score\n";
  text += "best: trial " + std::to_string(board.best) + ", " + board.metric + " " +
          number(board.best_score()) + " at step " + std::to_string(board.best_step()) + "\n";
  for (std::size_t i = 0; i < board.space.size() && i < board.best_params().size(); ++i) {
    const Parameter& p = board.space.parameters[i];
    text += "  " + p.name + " = " + show(p.domain, board.best_params()[i]) + "\n";
  }
  return text;
}

Terminal terminal_of(int fd) {
  Terminal t;
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::strcmp(term, "dumb") == 0;
  t.live = isatty(fd) != 0 && !dumb;
  const char* no_colour = std::getenv("NO_COLOR");
  t.colour = t.live && (no_colour == nullptr || *no_colour == '\0');
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (locale.empty() && value != nullptr) locale = value;
  }
  t.unicode = locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  winsize size{};
  if (t.live && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    t.width = size.ws_col;
    if (size.ws_row > 8) t.max_rows = std::min(t.max_rows, size.ws_row - 6);
  }
  return t;
}

constexpr std::size_t kLineLimit = 1000;  ///< lines of trials that wait for update()
constexpr std::size_t kLineWidth = 2000;

LiveView::LiveView(Terminal terminal, Duration every) : terminal_(terminal), every_(every) {}

std::string LiveView::line_of(double seconds, const std::string& what) const {
  std::string line = duration_text(seconds) + "  " + fit(what, 2000);
  return (terminal_.unicode ? line : ascii(std::move(line))) + "\n";
}

std::string LiveView::new_events(const Board& board) {
  const auto fresh = static_cast<std::size_t>(
      std::min<std::uint64_t>(board.events_seen - events_seen_, board.events.size()));
  events_seen_ = board.events_seen;
  std::string out;
  for (std::size_t i = board.events.size() - fresh; i < board.events.size(); ++i) {
    const Event& e = board.events[i];
    const bool quiet = e.kind == Event::Kind::created || e.kind == Event::Kind::exploit ||
                       e.kind == Event::Kind::best || e.kind == Event::Kind::over;
    if (quiet) continue;  // the table, the copy itself and the summary show these
    out += line_of(e.seconds(), plain_words(e, board.space, board.metric));
  }
  for (const std::string& note : std::exchange(notes_, {})) out += line_of(board.seconds, note);
  return out;
}

void LiveView::line(int trial, std::string_view text) {
  lines_.push_back("t" + std::to_string(trial) + ": " + fit(text, kLineWidth) + "\n");
  if (lines_.size() <= kLineLimit) return;
  lines_.pop_front();
  ++lines_lost_;
}

std::string LiveView::new_lines() {
  std::string out;
  if (lines_lost_ > 0)
    out = "… " + std::to_string(std::exchange(lines_lost_, 0)) + " lines of trials are left out\n";
  for (const std::string& line : std::exchange(lines_, {})) out += line;
  return terminal_.unicode ? out : ascii(std::move(out));
}

std::string LiveView::erase() {
  if (drawn_ == 0) return {};
  return "\x1b[" + std::to_string(std::exchange(drawn_, 0)) + "A\x1b[J";
}

std::string LiveView::draw(const Board& board) {
  std::string out;
  for (const std::string& line : table(board, terminal_)) {
    out += line + "\n";
    ++drawn_;
  }
  const auto width = static_cast<std::size_t>(std::max(terminal_.width, 20));
  for (const std::string& line : standing_) {
    const std::string shown = fit(line, width);
    out += (terminal_.unicode ? shown : ascii(shown)) + "\n";
    ++drawn_;
  }
  return out;
}

std::string LiveView::update(const Board& board, Time now) {
  if (terminal_.live) {
    if (last_ && now - *last_ < std::chrono::milliseconds(100)) return {};
    last_ = now;
    std::string out = erase();
    out += new_lines() + new_events(board);
    return out + draw(board);
  }
  std::string out = new_lines() + new_events(board);
  if (last_ && now - *last_ < every_) return out;
  last_ = now;
  std::string line = progress_line(board);
  for (const std::string& each : standing_) line += " · " + fit(each, 200);
  line += "\n";
  return out + (terminal_.unicode ? line : ascii(line));
}

std::string LiveView::finish(const Board& board) {
  std::string out = terminal_.live ? erase() : "";
  out += new_lines() + new_events(board);
  const std::vector<std::string> lines = table(board, terminal_);
  for (std::size_t i = kTableHead; i < lines.size(); ++i) out += lines[i] + "\n";
  std::string text = summary(board);
  return out + (terminal_.unicode ? text : ascii(std::move(text)));
}

}  // namespace troupe::tune
