// The rows of a study's store: what one input changed, as JSON texts.
#include "troupe/tune/internal/event_text.hpp"
#include "troupe/tune/internal/experiment_core.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>
#include <concepts>

namespace troupe::tune {
namespace {

constexpr std::size_t kDonorLimit = 20;  ///< donors that a trial's row lists, the latest ones

/// Writes one object, field by field.
class Row {
 public:
  explicit Row(const SearchSpace& space) : space_(space) { json_.open('{'); }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  ~Row() = default;

  template <std::integral T>
  void whole(const char* name, T value) {
    json_.name(name);
    json_.whole(value);
  }
  void number(const char* name, double value) {
    json_.name(name);
    event_text::put_number(json_, value);
  }
  void text(const char* name, std::string_view value) {
    json_.name(name);
    json_.text(value);
  }
  void yes(const char* name) {
    json_.name(name);
    json_.flag(true);
  }
  void point(const char* name, const Point& point) {
    json_.name(name);
    event_text::put_point(json_, point, space_);
  }
  void numbers(const char* name, const std::map<std::string, double>& numbers) {
    json_.name(name);
    event_text::put_numbers(json_, numbers);
  }
  void donors(const std::vector<Copy>& copies) {
    json_.name("donors");
    json_.open('[');
    for (std::size_t i = copies.size() - std::min(copies.size(), kDonorLimit); i < copies.size();
         ++i)
      json_.whole(copies[i].donor);
    json_.close(']');
  }
  /// Ends the row. Nothing may be written afterwards.
  std::string take() {
    json_.close('}');
    return std::move(out_);
  }

 private:
  const SearchSpace& space_;
  std::string out_;
  JsonWriter json_{out_};
};

/// Names the row of a trial's checkpoint. A copy has a row of its own beside
/// the donor's.
std::string row_key(int trial, int saver, const std::string& key) {
  return trial == saver ? key : key + "@" + std::to_string(trial);
}

}  // namespace

std::string Experiment::Core::trial_row(int trial) const {
  const TrialInfo& t = info(trial);
  const bool waits = waits_for_user(t) && t.state == TrialState::waiting;
  Row row(board.space);
  row.whole("trial", t.number);
  row.text("state", name_of(waits ? TrialState::paused : t.state));
  row.whole("attempt", t.attempt);
  row.whole("failures", t.failures);
  row.point("params", t.params);
  row.whole("step", t.step());
  row.number("score", t.score());
  row.numbers("metrics", t.metrics);
  row.whole("reports", t.history.size());
  row.whole("copies", t.copies.size());
  if (!t.copies.empty()) row.donors(t.copies);
  row.number("created", t.created);
  row.number("seconds", t.history.empty() ? t.created : t.history.back().seconds);
  if (t.checkpoint) row.text("checkpoint", t.checkpoint->key);
  if (t.paused_by_user) row.yes("paused_by_user");
  if (board.best == trial) row.yes("best");
  if (!t.note.empty()) row.text("note", t.note);
  return row.take();
}

void Experiment::Core::put_report(const Event& e) {
  if (!keeps_rows()) return;
  Row row(board.space);
  row.whole("trial", e.trial);
  row.whole("step", e.step);
  row.number("score", e.score);
  row.number("t", e.seconds());
  if (e.wall != 0) row.number("time", static_cast<double>(e.wall) / 1e6);
  row.whole("attempt", e.attempt);
  row.numbers("metrics", e.metrics);
  batch.reports.push_back(
      {static_cast<std::uint32_t>(e.trial), static_cast<std::uint64_t>(e.step), row.take()});
}

void Experiment::Core::put_row(int trial, const Held& held) {
  if (!keeps_rows()) return;
  const int saver = uses_[held.checkpoint.key].saver;
  Row row(board.space);
  row.whole("trial", trial);
  row.whole("step", held.checkpoint.step);
  row.text("file", held.checkpoint.key);
  row.text("hash", held.checkpoint.hash);
  row.whole("bytes", held.checkpoint.bytes);
  row.point("params", held.params);
  if (saver != trial) row.whole("source", saver);
  batch.checkpoints.push_back({row_key(trial, saver, held.checkpoint.key), row.take()});
}

void Experiment::Core::delete_row(int trial, const Checkpoint& checkpoint) {
  if (!keeps_rows()) return;
  const int saver = uses_[checkpoint.key].saver;
  batch.checkpoints.push_back({row_key(trial, saver, checkpoint.key), std::nullopt});
}

void Experiment::Core::put_best_row(const BestReport& best) {
  if (!keeps_rows()) return;
  Row row(board.space);
  row.yes("best");
  row.whole("trial", best.trial);
  row.whole("step", best.step);
  row.number("score", best.score);
  row.text("file", best.checkpoint->key);
  row.text("hash", best.checkpoint->hash);
  row.whole("bytes", best.checkpoint->bytes);
  row.point("params", best.params);
  batch.checkpoints.push_back({best.checkpoint->key + "@best", row.take()});
}

void Experiment::Core::delete_best_row(const Checkpoint& checkpoint) {
  if (!keeps_rows()) return;
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
  std::string text =
      std::to_string(now) + " " + std::to_string(board.best) + " " + exact(board.best_score()) +
      (board.over ? " over" : "") + (board.paused ? " paused" : "") + (ending_ ? " ending" : "") +
      " " + std::to_string(used_slots_) + " created " + std::to_string(board.created()) + "\n";
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
