// The rows of a study's store: what one input changed, as JSON texts.
#include "troupe/tune/internal/experiment_core.hpp"
#include "troupe/tune/internal/json.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

constexpr std::size_t kDonorLimit = 20;  ///< donors that a trial's row lists, the latest ones

Json metrics_json(const std::map<std::string, double>& metrics) {
  Json out = Json::object();
  for (const auto& [name, value] : metrics) out[name] = json_number(value);
  return out;
}

/// Names the row of a trial's checkpoint. A copy has a row of its own beside
/// the donor's.
std::string row_key(int trial, int saver, const std::string& key) {
  return trial == saver ? key : key + "@" + std::to_string(trial);
}

}  // namespace

std::string Experiment::Core::trial_row(int trial) const {
  const TrialInfo& t = info(trial);
  Json out;
  out["trial"] = t.number;
  out["state"] = name_of(t.state);
  out["attempt"] = t.attempt;
  out["failures"] = t.failures;
  out["params"] = point_json(t.params, board.space);
  out["step"] = t.step();
  out["score"] = json_number(t.score());
  out["metrics"] = metrics_json(t.metrics);
  out["reports"] = t.history.size();
  out["copies"] = t.copies.size();
  if (!t.copies.empty()) {
    Json& donors = out["donors"] = Json::array();
    for (std::size_t i = t.copies.size() - std::min(t.copies.size(), kDonorLimit);
         i < t.copies.size(); ++i)
      donors.push_back(t.copies[i].donor);
  }
  out["created"] = t.created;
  out["seconds"] = t.history.empty() ? t.created : t.history.back().seconds;
  if (t.checkpoint) out["checkpoint"] = t.checkpoint->key;
  if (board.best == trial) out["best"] = true;
  if (!t.note.empty()) out["note"] = t.note;
  return json_line(out);
}

void Experiment::Core::put_report(const Event& e) {
  if (!durable) return;
  Json out;
  out["trial"] = e.trial;
  out["step"] = e.step;
  out["score"] = json_number(e.score);
  out["t"] = e.seconds();
  if (e.wall != 0) out["time"] = static_cast<double>(e.wall) / 1e6;
  out["attempt"] = e.attempt;
  out["metrics"] = metrics_json(e.metrics);
  batch.reports.push_back(
      {static_cast<std::uint32_t>(e.trial), static_cast<std::uint64_t>(e.step), json_line(out)});
}

void Experiment::Core::put_row(int trial, const Held& held) {
  const int saver = uses_[held.checkpoint.key].saver;
  Json out;
  out["trial"] = trial;
  out["step"] = held.checkpoint.step;
  out["file"] = held.checkpoint.key;
  out["hash"] = held.checkpoint.hash;
  out["bytes"] = held.checkpoint.bytes;
  out["params"] = point_json(held.params, board.space);
  if (saver != trial) out["source"] = saver;
  batch.checkpoints.push_back({row_key(trial, saver, held.checkpoint.key), json_line(out)});
}

void Experiment::Core::delete_row(int trial, const Checkpoint& checkpoint) {
  const int saver = uses_[checkpoint.key].saver;
  batch.checkpoints.push_back({row_key(trial, saver, checkpoint.key), std::nullopt});
}

void Experiment::Core::put_best_row(const BestReport& best) {
  Json out;
  out["best"] = true;
  out["trial"] = best.trial;
  out["step"] = best.step;
  out["score"] = json_number(best.score);
  out["file"] = best.checkpoint->key;
  out["hash"] = best.checkpoint->hash;
  out["bytes"] = best.checkpoint->bytes;
  out["params"] = point_json(best.params, board.space);
  batch.checkpoints.push_back({best.checkpoint->key + "@best", json_line(out)});
}

void Experiment::Core::delete_best_row(const Checkpoint& checkpoint) {
  batch.checkpoints.push_back({checkpoint.key + "@best", std::nullopt});
}

StudyBatch Experiment::Core::take_batch() {
  StudyBatch out = std::exchange(batch, {});
  if (header_due && !log.empty()) {
    header_due = false;
    out.meta = header();
  }
  out.first_event = next_event;
  next_event += log.size();
  for (const Event& event : std::exchange(log, {}))
    out.events.push_back(to_json(event, board.space));
  for (const int trial : std::exchange(touched_, {}))
    out.trials.push_back({static_cast<std::uint32_t>(trial), trial_row(trial)});
  return out;
}

std::string Experiment::Core::fingerprint() const {
  std::string text = std::to_string(now) + " " + std::to_string(board.best) + " " +
                     exact(board.best_score()) + (board.over ? " over" : "") +
                     (ending_ ? " ending" : "") + " " + std::to_string(used_slots_) + " created " +
                     std::to_string(board.created()) + "\n";
  for (const TrialInfo& t : board.trials) {
    const Control& c = control(t.number);
    text += trial_row(t.number) + " next " + std::to_string(static_cast<int>(c.next)) + " donor " +
            std::to_string(c.donor) + " copying " + std::to_string(c.copying) + " decided " +
            std::to_string(c.decided) + " furthest " + std::to_string(c.furthest) + " flags " +
            std::to_string(c.in_report) + std::to_string(c.saving) + std::to_string(c.copy_ready) +
            std::to_string(c.urgent) + " held";
    for (const Held& h : c.held)
      text += " " + h.checkpoint.key + (is_stored(h.checkpoint) ? "+" : "-") +
              board.space.show(h.params);
    text += "\n";
  }
  text += "waiting";
  for (const int trial : waiting_) text += " " + std::to_string(trial);
  text += " kept";
  for (const auto& [key, u] : uses_) text += " " + key + ":" + std::to_string(u.count);
  return text;
}

}  // namespace troupe::tune
