/// One exporter: a plain state machine that turns events into bytes for files.
#pragma once

#include "troupe/runtime/base/json.hpp"
#include "troupe/tune/board.hpp"
#include "troupe/tune/export/internal/growing_files.hpp"

#include <functional>
#include <memory>
#include <string>

namespace troupe::tune::internal {

/// What an exporter takes: an event, and on demand the row of its trial.
struct Exported {
  const Event& event;
  /// Reads the trial as its row shows it. Once the trial is over, the row stays as it is.
  std::function<TrialInfo()> trial;
};

/// Whether the event is the end of a trial.
bool is_close(Event::Kind kind) noexcept;

class Exporter {
 public:
  Exporter() = default;
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;
  virtual ~Exporter() = default;
  virtual const char* name() const = 0;
  /// The path of a file below the exports' folder.
  virtual std::string path_of(const std::string& file) const = 0;
  /// Whether a file that somebody deleted is left out from then on. Otherwise all is written anew.
  virtual bool may_lack_files() const { return false; }
  /// Adds what follows from the event. The same events give the same bytes.
  virtual void take(const Exported& exported, GrowingFiles& files) = 0;
  /// What take() needs to know of earlier events.
  virtual Json state() const { return Json::object(); }
  /// `state` is null before the first event.
  virtual void restore(const Json& state) { (void)state; }
};

// `board` has metric, goal and space, and outlives the exporter.
std::unique_ptr<Exporter> csv_exporter(const Board& board);
std::unique_ptr<Exporter> jsonl_exporter(const Board& board);
std::unique_ptr<Exporter> tensorboard_exporter(const Board& board, std::size_t most_runs);

}  // namespace troupe::tune::internal
