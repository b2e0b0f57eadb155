/// An experiment as data for other tools: CSV, JSON lines and TensorBoard.
///
///     std::ofstream("progress.csv") << progress_csv(experiment.board());
///     std::ofstream(tensorboard_file_name(now, "node1", 42), std::ios::binary)
///         << tensorboard_events(board.trials[3], board, unix_seconds);
///
/// Pure functions of the board.
#pragma once

#include "troupe/tune/board.hpp"

namespace troupe::tune {

/// One row per report: trial, attempt, step, seconds, score. Text is quoted (RFC 4180). A name of
/// the user's that is another column's gets a prefix, `metrics/` or `config/`, here and in
/// trials_jsonl().
TROUPE_API std::string progress_csv(const Board& board);
/// Its first line, and the line of one report, with their newlines.
TROUPE_API std::string progress_csv_header(const Board& board);
TROUPE_API std::string progress_csv_row(int trial, const Sample& sample);
/// One row per trial: state, steps, score, parameters, failures, copies, note.
TROUPE_API std::string trials_csv(const Board& board);
/// One JSON object per trial and line, in the names of Ray's result.json where they mean the same.
TROUPE_API std::string trials_jsonl(const Board& board);

/// A file whose directory TensorBoard shows as a run: `events.out.tfevents.<seconds>.<host>.<pid>`.
TROUPE_API std::string tensorboard_file_name(double unix_seconds, std::string_view host, int pid);
/// The first record of an event file.
TROUPE_API std::string tensorboard_header(double unix_seconds);
/// One scalar; records may be appended in any number.
TROUPE_API std::string tensorboard_scalar(double unix_seconds, long step, std::string_view tag,
                                          float value);
/// A whole event file: the header and the trial's scores. The experiment began at `began`.
TROUPE_API std::string tensorboard_events(const TrialInfo& trial, const Board& board, double began);

/// CRC-32C (Castagnoli) of bytes, as the record format wants it.
TROUPE_API std::uint32_t crc32c(std::string_view bytes) noexcept;

}  // namespace troupe::tune
