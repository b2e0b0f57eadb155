/// What one input of a study writes: events and rows that go to the store together or not at all.
///
///     StudyBatch batch{.first_event = 8, .events = {line}};
///     batch.trials.push_back({3, row});
///     store.write(batch);                        // StudyStore
///
/// All values are JSON texts. The store keeps them as they are, and looks only for "schema" or
/// "version" in the description. `troupe tune list` and `show` read these fields where there are
/// such:
///
///     meta   {"schema": 3, "name", "metric", "goal": "minimize", "trials", "over", "paused"}
///     trial  {"state", "attempt", "step", "score", "params": {NAME: VALUE}, "note"}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

/// What an answer waits for. process: the kernel has the batch, so that it survives the end of this
/// process. power: the disk has it.
enum class StudyDurability : std::uint8_t { process, power };

/// The row of a trial. It replaces the trial's former row.
struct TrialRow {
  std::uint32_t trial = 0;
  std::string json;
  friend bool operator==(const TrialRow&, const TrialRow&) = default;
};
/// A report of a trial. It replaces a former report of the same step.
struct ReportRow {
  std::uint32_t trial = 0;
  std::uint64_t step = 0;
  std::string json;
  friend bool operator==(const ReportRow&, const ReportRow&) = default;
};
/// The row of a stored checkpoint. Without a value the row is deleted.
struct CheckpointRow {
  std::string key;
  std::optional<std::string> json;
  friend bool operator==(const CheckpointRow&, const CheckpointRow&) = default;
};
/// The number and the answer of a client's last call.
struct ClientRow {
  std::string client;
  std::string json;
  friend bool operator==(const ClientRow&, const ClientRow&) = default;
};
/// How far an exporter has come.
struct ExporterRow {
  std::string exporter;
  std::string json;
  friend bool operator==(const ExporterRow&, const ExporterRow&) = default;
};

struct StudyBatch {
  /// The number of the first of `events`: one more than the store's last event. Events are numbered
  /// from 1. Without events it is not looked at.
  std::uint64_t first_event = 1;
  std::vector<std::string> events;
  std::vector<TrialRow> trials;
  std::vector<ReportRow> reports;
  std::vector<CheckpointRow> checkpoints;
  std::vector<ClientRow> clients;
  std::vector<ExporterRow> exporters;
  std::optional<std::string> meta;  ///< replaces the study's description

  bool empty() const noexcept {
    return events.empty() && trials.empty() && reports.empty() && checkpoints.empty() &&
           clients.empty() && exporters.empty() && !meta;
  }
};

}  // namespace troupe::tune
