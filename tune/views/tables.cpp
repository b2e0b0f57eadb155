#include "troupe/tune/views/tables.hpp"

#include "troupe/tune/internal/json.hpp"

namespace troupe::tune {
namespace {

std::string quoted(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string value_text(const Domain& domain, double value) {
  return domain.kind == Domain::Kind::choice ? show(domain, value) : exact(value);
}

}  // namespace

std::string progress_csv(const Board& board) {
  std::string out = "trial,attempt,step,seconds," + quoted(board.metric) + "\n";
  for (const TrialInfo& t : board.trials) {
    for (const Sample& s : t.history) {
      out += std::to_string(t.number) + "," + std::to_string(s.attempt) + "," +
             std::to_string(s.step) + "," + number(s.seconds) + "," + exact(s.score) + "\n";
    }
  }
  return out;
}

std::string trials_csv(const Board& board) {
  std::string out = "trial,state,step," + quoted(board.metric);
  for (const Parameter& p : board.space.parameters) out += "," + quoted(p.name);
  out += ",failures,copied,note\n";
  for (const TrialInfo& t : board.trials) {
    out += std::to_string(t.number) + "," + std::string(name_of(t.state)) + "," +
           std::to_string(t.step()) + "," + (t.history.empty() ? "" : exact(t.score()));
    for (std::size_t i = 0; i < board.space.size(); ++i) {
      out += "," + quoted(value_text(board.space.parameters[i].domain, t.params[i]));
    }
    std::string copied;
    for (const Copy& c : t.copies) copied += (copied.empty() ? "" : " ") + std::to_string(c.donor);
    out += "," + std::to_string(t.failures) + "," + copied + "," + quoted(t.note) + "\n";
  }
  return out;
}

std::string trials_jsonl(const Board& board) {
  std::string out;
  for (const TrialInfo& t : board.trials) {
    JsonObject config;
    for (std::size_t i = 0; i < board.space.size(); ++i) {
      const Parameter& p = board.space.parameters[i];
      if (p.domain.kind == Domain::Kind::choice) {
        config.text(p.name, show(p.domain, t.params[i]));
      } else {
        config.number(p.name, t.params[i]);
      }
    }
    JsonObject row;
    row.text("trial_id", std::to_string(t.number)).text("state", name_of(t.state));
    row.raw("config", config.str()).whole("training_iteration", t.step());
    row.number(board.metric, t.score());
    row.number("time_total_s", t.history.empty() ? 0 : t.history.back().seconds - t.created);
    for (const auto& [key, value] : t.metrics) {
      if (key != board.metric) row.number(key, value);
    }
    row.whole("failures", t.failures).flag("done", is_over(t.state));
    row.raw("copies", json_array(t.copies, [](const Copy& c) {
              JsonObject o;
              o.whole("donor", c.donor).whole("step", c.own_step).whole("donor_step", c.donor_step);
              return o.text("hash", c.hash).flag("proven", c.proven).str();
            }));
    out += row.str() + "\n";
  }
  return out;
}

}  // namespace troupe::tune
