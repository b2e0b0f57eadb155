/// Which checkpoint a study writes next, which files it needs, and which it may delete: a plain
/// state machine. CheckpointFiles carries it out.
///
///     plan.save({.key = "t3-20", .trial = 3, .step = 20, .why = CheckpointSave::Why::due});
///     while (auto next = plan.next()) files.write(*next);        // two at a time
///     plan.written(key);  batch.checkpoints = …;                  // from a file that is on disk
///     for (key : plan.take_drops()) batch.checkpoints.push_back({key, {}});
///     plan.recorded();                                           // the batch is written
///     files.remove(plan.take_deletions());
///
/// A live trial needs its two newest checkpoints, a paused one its newest, and the study the best
/// report's. A checkpoint from which a trial starts counts as the trial's, whoever saved it.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::tune {

/// A model in the object store that is to become a file, or is one.
struct CheckpointSave {
  /// due: a report waits for it. end: a trial's end waits for it. best: the score alone.
  enum class Why : std::uint8_t { due, end, best };
  std::string key;  ///< names the file; letters, digits, '-', '_' and '.'
  std::uint32_t trial = 0;
  long step = 0;
  std::string hash = {};  ///< of the model's bytes, hexadecimal
  std::uint64_t bytes = 0;
  Why why = Why::due;
};

/// Returns a hash as CheckpointSave::hash has it: 16 hexadecimal digits.
TROUPE_API std::string hash_text(std::uint64_t hash);

class CheckpointPlan {
 public:
  /// Models that are in this process's memory at a time.
  static constexpr int kMostAtOnce = 2;

  // Inputs. Those that name an unknown key change nothing.

  /// A trial has saved. A waiting save for the best score alone gives way to a newer one.
  void save(CheckpointSave wanted);
  /// After a restart: a file that the store names. Call it in the order of the saves, then
  /// starts_from(), and the states of the trials last.
  void restored(const CheckpointSave& file);
  /// The file is on disk under its name.
  void written(const std::string& key);
  /// The model could not be pulled or written, or its file is gone or altered.
  void lost(const std::string& key);
  /// The trial's next attempt starts from this checkpoint, its own or a donor's.
  void starts_from(std::uint32_t trial, const std::string& key);
  void paused(std::uint32_t trial) { set_most(trial, 1); }
  void live(std::uint32_t trial) { set_most(trial, 2); }
  /// The trial is over. `keep`: its newest checkpoint stays (save_at_end).
  void closed(std::uint32_t trial, bool keep) { set_most(trial, keep ? 1 : 0); }
  /// The study's best report has this checkpoint.
  void best(const std::string& key);
  /// The store has the batch with the rows that take_drops() returned.
  void recorded();

  // Outputs.

  /// Returns the save to write next: one that a report or an end waits for, else one for the score.
  /// Nothing while kMostAtOnce are being written.
  std::optional<CheckpointSave> next();
  /// Returns the saves that will never be files, once each.
  std::vector<std::string> take_given_up();
  /// Returns the checkpoints whose rows the next batch deletes; the same ones again until
  /// recorded().
  std::vector<std::string> take_drops();
  /// Returns the files to delete. Their rows are gone.
  std::vector<std::string> take_deletions();
  /// Returns the trial's newest checkpoint that is a file; nothing when there is none.
  std::optional<CheckpointSave> newest(std::uint32_t trial) const;
  bool is_file(const std::string& key) const;
  /// Returns the keys that are needed, in order. For tests and messages.
  std::set<std::string> needed() const;

 private:
  enum class State : std::uint8_t { waiting, writing, file };
  struct Entry {
    CheckpointSave save;
    std::uint64_t order = 0;
    State state = State::waiting;
  };
  /// A trial's checkpoints from the oldest on, and how many files of them it needs.
  struct Trial {
    std::vector<std::string> keys;
    std::size_t most = 2;
  };

  void set_most(std::uint32_t trial, std::size_t most);
  void add_to(std::uint32_t trial, const std::string& key);
  void forget(const std::string& key);
  void give_up(const std::string& key);
  bool is_waited_for(const std::string& key) const;

  std::map<std::string, Entry> entries_;
  std::map<std::uint32_t, Trial> trials_;
  std::set<std::string> copied_;  ///< from which another trial starts
  std::string best_;
  std::uint64_t saves_ = 0;
  int writing_ = 0;
  bool changed_ = false;
  std::vector<std::string> given_up_, dropping_, deletable_;
  std::size_t taken_ = 0;  ///< of `dropping_`, by the batch that is being written
};

/// Returns the line that warns when the checkpoints of all trials will not fit; empty when they
/// will.
std::string why_not_all_fit(std::uint64_t bytes_of_one, std::uint64_t trials,
                            std::uint64_t free_bytes);

}  // namespace troupe::tune
