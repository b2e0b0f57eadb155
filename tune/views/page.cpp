#include "troupe/tune/internal/ranking.hpp"
#include "troupe/tune/internal/svg.hpp"
#include "troupe/tune/internal/text.hpp"
#include "troupe/tune/views/report.hpp"

namespace troupe::tune {
namespace {

constexpr std::size_t kTableLimit = 100;
constexpr std::size_t kDonorLimit = 20;  ///< donors that a trial's row lists, the latest ones

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#667085;--line:#e4e7ec;
--good:#1a7f4b;--bad:#b42318;--accent:#2563b8}
@media (prefers-color-scheme:dark){:root{--bg:#0e1116;--card:#14181f;--ink:#e6e9ef;--soft:#98a2b3;
--line:#2b323d;--good:#4ac585;--bad:#f2766b;--accent:#7db1f5}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',
'DejaVu Sans',sans-serif}
main{max-width:1040px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 2px}h2{font-size:18px;margin:32px 0 10px}
.soft{color:var(--soft)}.cards{display:flex;flex-wrap:wrap;gap:12px;margin-top:18px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 16px;
flex:1 1 170px}.card b{display:block;font-size:22px;line-height:1.3}
.box{background:var(--card);border:1px solid var(--line);border-radius:10px;overflow:auto}
.box svg{display:block;max-width:100%;height:auto;margin:0 auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600;position:sticky;top:0;background:var(--card)}
td.l,th.l{text-align:left}tr:last-child td{border-bottom:0}tr.best td{font-weight:700}
td.note{white-space:normal;min-width:180px;max-width:420px;text-align:left;color:var(--soft)}
.completed{color:var(--good)}.failed{color:var(--bad)}.stopped,.waiting,.paused{color:var(--soft)}
.running,.holding,.leaving{color:var(--accent)}
ol{list-style:none;margin:0;padding:8px 16px;max-height:420px;overflow:auto}
li{padding:3px 0;border-bottom:1px solid var(--line)}li:last-child{border:0}
time{display:inline-block;min-width:70px;color:var(--soft);font-variant-numeric:tabular-nums}
)";

std::string cell(const std::string& text, const char* kind = "") {
  return std::string("<td") + kind + ">" + escape(text) + "</td>";
}

std::string card(const std::string& value, const std::string& words) {
  return "<div class=\"card\"><b>" + escape(value) + "</b><span class=\"soft\">" + escape(words) +
         "</span></div>";
}

std::string cards(const Board& board) {
  std::size_t copies = board.gone.copies;
  std::size_t proven = board.gone.proven;
  int failures = board.gone.failures;
  for (const TrialInfo& t : board.trials) {
    copies += t.copies.size();
    for (const Copy& c : t.copies) proven += c.proven;
    failures += t.failures;
  }
  std::string out = "<div class=\"cards\">";
  if (board.best >= 0) {
    out += card(number(board.best_score()), "best " + board.metric + ", trial " +
                                                std::to_string(board.best) + " at step " +
                                                std::to_string(board.best_step()));
  }
  out += card(std::to_string(board.created()), "trials of " + std::to_string(board.planned) + ", " +
                                                   std::to_string(board.slots) + " at a time");
  out += card(duration_text(board.seconds), board.over ? board.why_over : "so far");
  if (copies > 0) {
    out += card(std::to_string(copies),
                proven == copies
                    ? "weight copies, all proven by equal hashes"
                    : "weight copies, " + std::to_string(proven) + " proven by equal hashes");
  }
  if (failures > 0)
    out += card(std::to_string(failures), failures == 1 ? "attempt failed" : "attempts failed");
  return out + "</div>";
}

std::string trials_table(const Board& board) {
  std::vector<int> rows = ranking(board);
  const auto total = static_cast<std::size_t>(board.created());
  if (rows.size() > kTableLimit) rows.resize(kTableLimit);
  bool notes = false;
  bool copied = false;
  for (const TrialInfo& t : board.trials) {
    notes |= !t.note.empty() && t.state != TrialState::completed;
    copied |= !t.copies.empty();
  }
  std::string out =
      "<div class=\"box\"><table><thead><tr><th>trial</th><th class=\"l\">state</th>"
      "<th>step</th><th>" +
      escape(board.metric) + "</th>";
  for (const Parameter& p : board.space.parameters) out += "<th>" + escape(p.name) + "</th>";
  if (copied) out += "<th class=\"l\">copied trials</th>";
  if (notes) out += "<th class=\"l\">note</th>";
  out += "</tr></thead><tbody>\n";
  for (const int row : rows) {
    const TrialInfo& t = board.trials[static_cast<std::size_t>(row)];
    out += t.number == board.best ? "<tr class=\"best\">" : "<tr>";
    out += cell(std::to_string(t.number));
    out += "<td class=\"l " + std::string(name_of(t.state)) + "\">" +
           std::string(name_of(t.state)) + "</td>";
    out += cell(t.history.empty() ? "" : std::to_string(t.step()));
    out += cell(t.history.empty() ? "" : number(t.score()));
    for (std::size_t i = 0; i < board.space.size(); ++i) {
      out += cell(show(board.space.parameters[i].domain, t.params[i]));
    }
    std::string donors = t.copies.size() > kDonorLimit ? "\u2026" : "";
    for (std::size_t i = t.copies.size() - std::min(t.copies.size(), kDonorLimit);
         i < t.copies.size(); ++i)
      donors += (donors.empty() ? "" : ", ") + std::to_string(t.copies[i].donor);
    if (copied) out += cell(donors, " class=\"l\"");
    if (notes) out += cell(t.state == TrialState::completed ? "" : t.note, " class=\"note\"");
    out += "</tr>\n";
  }
  out += "</tbody></table></div>";
  if (total > rows.size()) {
    out += "<p class=\"soft\">" + std::to_string(total - rows.size()) + " more trials</p>";
  }
  return out;
}

std::string events_list(const Board& board) {
  std::string out;
  for (const Event& e : board.events) {
    if (e.kind == Event::Kind::exploit || e.kind == Event::Kind::best) continue;
    out += "<li><time>" + duration_text(e.seconds()) + "</time>" +
           escape(plain_words(e, board.space, board.metric)) + "</li>\n";
  }
  const std::uint64_t lost = board.events_seen - board.events.size();
  if (lost > 0) out = "<li class=\"soft\">" + std::to_string(lost) + " earlier events</li>" + out;
  return "<div class=\"box\"><ol>" + out + "</ol></div>";
}

}  // namespace

std::string report_html(const Board& board) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\"><title>" +
      escape(board.name) + "</title><style>" + kStyle + "</style></head><body><main>\n";
  out += "<h1>" + escape(board.name) + "</h1><div class=\"soft\">" +
         escape(std::string(board.goal.larger() ? "maximize " : "minimize ") + board.metric +
                " · " + board.scheduler + " · searcher " + board.searcher + " · seed " +
                std::to_string(board.seed)) +
         "</div>\n";
  out += cards(board);
  if (board.best >= 0) {
    out += "<p>Best parameters: <b>" + escape(board.space.show(board.best_params())) + "</b></p>\n";
  }
  out += "<h2>Curves</h2><div class=\"box\">" + curves_svg(board) + "</div>\n";
  bool copied = false;
  for (const TrialInfo& t : board.trials) copied |= !t.copies.empty();
  if (copied) out += "<h2>Lineage</h2><div class=\"box\">" + lineage_svg(board) + "</div>\n";
  if (board.space.size() > 0) {
    out += "<h2>Parameters</h2><div class=\"box\">" + parallel_svg(board) + "</div>\n";
  }
  out += "<h2>Trials</h2>" + trials_table(board);
  out += "<h2>Events</h2>" + events_list(board);
  return out + "</main></body></html>\n";
}

}  // namespace troupe::tune
