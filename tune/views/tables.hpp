/// An experiment as data for other tools: CSV, JSON lines and TensorBoard.
///
///     std::ofstream("progress.csv") << progress_csv(experiment.board());
///     std::ofstream(tensorboard_file_name(now, "node1", 42), std::ios::binary)
///         << tensorboard_events(board.trials[3], board, unix_seconds);
///
/// These are pure functions of the board.
#pragma once

#include "troupe/tune/board.hpp"

namespace troupe::tune {

/// Returns one row per report: trial, attempt, step, seconds, score. Text is quoted (RFC 4180).
/// When a name that the user chose is already a column, it gets the prefix `metrics/` or `config/`,
/// here, in trials_csv() and in trials_jsonl().
TROUPE_API std::string progress_csv(const Board& board);
/// The parts of progress_csv(), with their newlines: its first line, and the line of one report.
TROUPE_API std::string progress_csv_header(const Board& board);
TROUPE_API std::string progress_csv_row(int trial, const Sample& sample);
/// Returns one row per trial: state, steps, score, parameters, failures, copies, note.
TROUPE_API std::string trials_csv(const Board& board);
/// The parts of trials_csv(), with their newlines. Of the board only metric and space count.
TROUPE_API std::string trials_csv_header(const Board& board);
TROUPE_API std::string trials_csv_row(const Board& board, const TrialInfo& trial);
/// Returns one line with a JSON object per trial. Fields have the names of Ray's result.json where
/// they mean the same.
TROUPE_API std::string trials_jsonl(const Board& board);
/// One line of trials_jsonl(). Of the board only metric and space count.
TROUPE_API std::string trials_jsonl_row(const Board& board, const TrialInfo& trial);
/// Returns a line with a JSON object for a report: its trial, step, times, score and metrics. Of
/// the board only the metric counts.
TROUPE_API std::string progress_jsonl_row(const Board& board, const Event& report);

/// Returns `events.out.tfevents.<seconds>.<host>.<pid>`. TensorBoard shows the directory of a file
/// with such a name as a run.
TROUPE_API std::string tensorboard_file_name(double unix_seconds, std::string_view host, int pid);
/// The first record of an event file.
TROUPE_API std::string tensorboard_header(double unix_seconds);
/// A record with one scalar. Any number of records may follow the header.
TROUPE_API std::string tensorboard_scalar(double unix_seconds, long step, std::string_view tag,
                                          float value);
/// Returns a whole event file: the header and the trial's scores. `began` is the experiment's start
/// in seconds of the Unix epoch.
TROUPE_API std::string tensorboard_events(const TrialInfo& trial, const Board& board, double began);

/// Computes the CRC-32C (Castagnoli) of bytes, which the TFRecord format uses.
TROUPE_API std::uint32_t crc32c(std::string_view bytes) noexcept;

}  // namespace troupe::tune
