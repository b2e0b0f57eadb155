#include "troupe/tune/views/tables.hpp"

#include "troupe/tune/internal/json.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::tune {
namespace {

std::string csv_text(std::string_view raw) {
  std::string text = valid_utf8(raw);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string value_text(const Domain& domain, double value) {
  return domain.kind == Domain::Kind::choice ? show(domain, value) : exact(value);
}

/// The names of columns, all different: a name of the user's that is already taken gets a prefix.
class Header {
 public:
  explicit Header(std::vector<std::string> own) : names_(std::move(own)) {}
  void add(std::string_view raw, const std::string& prefix,
           std::size_t at = std::numeric_limits<std::size_t>::max()) {
    std::string name = valid_utf8(raw);
    while (std::find(names_.begin(), names_.end(), name) != names_.end()) name.insert(0, prefix);
    names_.insert(names_.begin() + static_cast<std::ptrdiff_t>(std::min(at, names_.size())), name);
  }
  std::string line() const {
    std::string text;
    for (const std::string& name : names_) text += (text.empty() ? "" : ",") + csv_text(name);
    return text + "\n";
  }

 private:
  std::vector<std::string> names_;
};

}  // namespace

std::string progress_csv_header(const Board& board) {
  Header header({"trial", "attempt", "step", "seconds"});
  header.add(board.metric, "metrics/");
  return header.line();
}

std::string progress_csv_row(int trial, const Sample& s) {
  return std::to_string(trial) + "," + std::to_string(s.attempt) + "," + std::to_string(s.step) +
         "," + number(s.seconds) + "," + exact(s.score) + "\n";
}

std::string progress_csv(const Board& board) {
  std::string out = progress_csv_header(board);
  for (const TrialInfo& t : board.trials) {
    for (const Sample& s : t.history) out += progress_csv_row(t.number, s);
  }
  return out;
}

std::string trials_csv_header(const Board& board) {
  Header header({"trial", "state", "step", "failures", "copied", "note"});
  header.add(board.metric, "metrics/", 3);
  for (std::size_t i = 0; i < board.space.size(); ++i)
    header.add(board.space.parameters[i].name, "config/", 4 + i);
  return header.line();
}

std::string trials_csv_row(const Board& board, const TrialInfo& t) {
  std::string out = std::to_string(t.number) + "," + std::string(name_of(t.state)) + "," +
                    std::to_string(t.step()) + "," + (t.history.empty() ? "" : exact(t.score()));
  for (std::size_t i = 0; i < board.space.size(); ++i)
    out += "," + csv_text(value_text(board.space.parameters[i].domain, t.params[i]));
  std::string copied;
  for (const Copy& c : t.copies) copied += (copied.empty() ? "" : " ") + std::to_string(c.donor);
  return out + "," + std::to_string(t.failures) + "," + copied + "," + csv_text(t.note) + "\n";
}

std::string trials_csv(const Board& board) {
  std::string out = trials_csv_header(board);
  for (const TrialInfo& t : board.trials) out += trials_csv_row(board, t);
  return out;
}

namespace {

/// Adds a field with a name of the user's; a name that is already taken gets a prefix.
template <class T>
void add_field(Json& row, std::string name, const std::string& prefix, const T& value) {
  while (row.find(name) != nullptr) name.insert(0, prefix);
  row[name] = value;  // NaN and infinities are written as null
}

bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

/// Adds the score under its name, and the other metrics.
void add_scores(Json& row, const Board& board, double score,
                const std::map<std::string, double>& metrics) {
  add_field(row, valid_utf8(board.metric), "metrics/", score);
  for (const auto& [key, value] : metrics) {
    if (key == board.metric && same(value, score)) continue;  // this is the score above
    add_field(row, valid_utf8(key), "metrics/", value);
  }
}

}  // namespace

std::string trials_jsonl_row(const Board& board, const TrialInfo& t) {
  Json row;
  row["trial_id"] = std::to_string(t.number);
  row["state"] = name_of(t.state);
  Json& config = row["config"] = Json::object();
  for (std::size_t i = 0; i < board.space.size(); ++i) {
    const Parameter& p = board.space.parameters[i];
    if (p.domain.kind == Domain::Kind::choice) {
      add_field(config, valid_utf8(p.name), "config/", valid_utf8(show(p.domain, t.params[i])));
    } else {
      add_field(config, valid_utf8(p.name), "config/", t.params[i]);
    }
  }
  row["training_iteration"] = t.step();
  row["time_total_s"] = t.history.empty() ? 0 : t.history.back().seconds - t.created;
  row["failures"] = t.failures;
  row["done"] = is_over(t.state);
  Json& copies = row["copies"] = Json::array();
  for (const Copy& c : t.copies) {
    copies.push_back({{"donor", c.donor},
                      {"step", c.own_step},
                      {"donor_step", c.donor_step},
                      {"hash", c.hash},
                      {"proven", c.proven}});
  }
  add_scores(row, board, t.score(), t.metrics);
  return json_line(row) + "\n";
}

std::string trials_jsonl(const Board& board) {
  std::string out;
  for (const TrialInfo& t : board.trials) out += trials_jsonl_row(board, t);
  return out;
}

std::string progress_jsonl_row(const Board& board, const Event& report) {
  Json row;
  row["trial_id"] = std::to_string(report.trial);
  row["attempt"] = report.attempt;
  row["training_iteration"] = report.step;
  row["seconds"] = report.seconds();
  if (report.wall != 0) row["timestamp"] = static_cast<double>(report.wall) / 1e6;
  add_scores(row, board, report.score, report.metrics);
  return json_line(row) + "\n";
}

}  // namespace troupe::tune
