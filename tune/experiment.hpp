/// The core of an experiment: a plain state machine that drives trials by the answers of a searcher
/// and a scheduler. A runner, optimize() or the Simulator, connects it to real or simulated trials.
///
///     Experiment core(space.search(), options);
///     core.begin(now);
///     for (const Command& c : core.take_commands()) carry_out(c);   // starts trials
///     core.reported(trial, attempt, report, now);                   // an input from a trial
///     for (const std::string& line : core.take_log()) file << line; // the records to append
///
/// The core starts no thread and reads no clock. The runner calls it with each input and the time,
/// and carries out its commands in their order. The log is enough to rebuild it (restore()).
///
/// The life of an attempt: Start → (reported → [Save → saved] → Reply)* → ended. A trial inside
/// report() waits for its Reply. A Save before that asks it to save its model there. A report that
/// offers a model and is the best so far is always saved. An attempt that was told to return is
/// killed after Options::stop_grace if it has not; its reports change nothing.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/tune/board.hpp"
#include "troupe/tune/per_trial.hpp"
#include "troupe/tune/scheduler.hpp"
#include "troupe/tune/searcher.hpp"
#include "troupe/tune/study/study_batch.hpp"

#include <functional>
#include <memory>
#include <span>
#include <variant>

namespace troupe::tune {

/// What optimize() does with the folder of Options::results. automatic: it continues a study that
/// is there, and starts one otherwise. never: it refuses a study that is there. required: it
/// refuses a folder without one.
enum class Resume : std::uint8_t { automatic, never, required };

/// The options of an experiment: what it tries and when it stops. S is the option struct of one
/// scheduler, or AnyScheduler.
template <class S = AnyScheduler>
struct Options {
  Goal goal;  ///< required: minimize or maximize
  int trials = 1;
  S scheduler = {};
  AnySearcher searcher = {};
  /// Trials that run at a time (slots). 0: all; in optimize() as many as the cluster has room for
  /// (per_trial), or has CPUs if trials reserve nothing.
  int concurrent = 0;
  /// Retries of a trial after failed attempts; -1: endless. A retry waits longer after each attempt
  /// in a row that came no further than those before it: up to 1 s if the attempt reported, up to
  /// 30 s if it did not.
  int max_failures = 0;
  bool fail_fast = false;             ///< the first trial without a retry left ends the experiment
  long max_steps = 0;                 ///< a trial that reports this step is complete; 0: no limit
  std::optional<double> target = {};  ///< a score at least as good ends the experiment
  Duration time_limit = {};           ///< of the whole experiment; 0: none
  /// Reports between checkpoints of a trial; 0: only those that the scheduler asks for, and the
  /// best report's.
  long save_every = 0;
  bool save_at_end = false;  ///< keep the last model of every trial that completes
  PerTrial per_trial = {};   ///< optimize(): what each running trial reserves
  /// optimize(): Placement::spread, each attempt on the node with the least use, or
  /// Placement::pack. A next attempt prefers the node with its checkpoint.
  Placement placement = Placement::spread;
  /// optimize(): an attempt that has not reported for so long is ended, as a failure. The time that
  /// it waits for room or inside report() does not count. 0: no limit.
  Duration silence = {};
  /// optimize(): a process of its own for each attempt. Otherwise a process runs up to 1,000
  /// attempts, one after the other, so that statics and caches stay; with GPUs it runs one.
  bool fresh_process = false;
  std::uint64_t seed = 0;
  std::string name = "experiment";
  /// The name of the score. A plain number that a trial reports is the score under any name. Of
  /// train::Metrics "score" and "loss" mean the loss, and another name one of Metrics::extra.
  std::string metric = "score";
  std::vector<Point> starts = {};  ///< points to try first (Space::starts())
  bool show = true;                ///< optimize(): a live table, or a line now and then
  /// optimize(): the folder of this study: store, checkpoints, pictures and page. A call with the
  /// folder of a study continues it, or returns its result. Empty: nothing is written, and the
  /// experiment ends with the driver.
  std::string results = {};
  Resume resume = Resume::automatic;  ///< optimize(): whether results may, or must, hold a study
  /// optimize(): what an answer to a trial waits for. process: it survives the end of the driver.
  /// power: it survives a power failure, too.
  StudyDurability durability = StudyDurability::process;
  /// optimize(): called on its thread with each event that plain_words() describes: starts, ends,
  /// copies, failures, new best reports. An exception becomes a note.
  std::function<void(const Event&)> on_event = {};
  /// How long an attempt has to return once it was told to; then it is killed. Forever: never.
  Duration stop_grace = std::chrono::seconds(5);

  /// Returns the same options with the scheduler's type erased.
  Options<AnyScheduler> any() const {
    return {goal,      trials,        scheduler,  searcher,   concurrent,  max_failures, fail_fast,
            max_steps, target,        time_limit, save_every, save_at_end, per_trial,    placement,
            silence,   fresh_process, seed,       name,       metric,      starts,       show,
            results,   resume,        durability, on_event,   stop_grace};
  }
};
using ExperimentOptions = Options<>;

// Commands: what the runner is to do.

/// Start an attempt with these parameters, from the weights and the step of `from` if there is one.
struct Start {
  int trial = 0;
  int attempt = 0;
  Point params;
  std::optional<Checkpoint> from;
};
/// Ask the trial, which waits inside report(), to save its model. Call saved() afterwards.
struct Save {
  int trial = 0;
  int attempt = 0;
};
/// Let report() return `go_on`. False asks the trial's function to return; call ended() once it
/// has.
struct Reply {
  int trial = 0;
  int attempt = 0;
  bool go_on = false;
};
/// End the attempt's processes now. Call ended() afterwards.
struct Kill {
  int trial = 0;
  int attempt = 0;
};
/// Delete the checkpoint: no later command names it.
struct Drop {
  Checkpoint checkpoint;
};
/// All trials are over. This is the last command.
struct Finished {
  std::string why;
};
using Command = std::variant<Start, Save, Reply, Kill, Drop, Finished>;

/// One report of a trial.
struct TrialReport {
  long step = 0;  ///< at least 1
  double score = 0;
  std::map<std::string, double> metrics = {};
  bool can_save = false;  ///< the trial offered a model
};

class TROUPE_API Experiment {
 public:
  /// Throws InvalidArgument when an option is out of its range, or a start point outside the space.
  Experiment(SearchSpace space, ExperimentOptions options);
  ~Experiment();
  Experiment(Experiment&&) noexcept;
  Experiment& operator=(Experiment&&) noexcept;

  /// Rebuilds an experiment by replaying the inputs of its log, with the answers that they hold: no
  /// algorithm computes one again. Goal, scheduler, seed, metric and the parameters' names and
  /// kinds must be those of the first line. Another searcher is told everything. A torn last line
  /// is ignored. A log without a whole first line gives a new experiment. A log may end after any
  /// record: take_log() then returns the consequences that are missing. Returns InvalidArgument
  /// with the line's number when the log is damaged or comes from another experiment. No command of
  /// the past is repeated: call interrupted() next. It sets the options that have changed and
  /// restarts the trials that were running from their last checkpoints.
  static Result<Experiment> restore(SearchSpace space, ExperimentOptions options,
                                    std::span<const std::string> lines);
  /// The same from a source that returns the next line, and nothing after the last one.
  using NextLine = std::function<std::optional<std::string>()>;
  static Result<Experiment> restore(SearchSpace space, ExperimentOptions options,
                                    const NextLine& next);

  /// Takes the next record of a log that another core writes, so that this one stays equal to it.
  /// Returns InvalidArgument when the record does not follow.
  Result<void> follow(const std::string& line);

  /// Says what the wall clock shows: later records have its time, too.
  void wall_clock(Time now, std::int64_t unix_micros);
  /// Says that checkpoints get files and that records and rows go to a store. Call it before
  /// begin(); restore() finds it in the log. From then on the rules of a study hold:
  /// - a report is answered only once the due checkpoint before the trial's last has a file;
  /// - the end of a trial counts only once the files that are needed afterwards are there: the best
  ///   report's, with save_at_end its own, and those that other trials copy;
  /// - interrupted() goes back to the newest checkpoints, parameters and best report with a file.
  /// The runner carries out commands only after take_batch() has been written.
  ///
  /// `build` is the program's; the description keeps it. After restore() another one replaces it.
  /// Returns the former one, empty if there was none.
  std::string with_store(const std::string& build = {});
  /// Starts the first trials. Call it once, before any other input.
  void begin(Time now);
  // Inputs from trials. Those of unknown trials and past attempts are ignored (TU-6), so that late
  // messages do no harm.
  void reported(int trial, int attempt, const TrialReport& report, Time now);
  void saved(int trial, int attempt, const Checkpoint& checkpoint, Time now);
  /// The attempt loaded weights with this hash. If the hash is not that of the checkpoint it was
  /// started from, the attempt is killed (TU-4).
  void restored(int trial, int attempt, const std::string& hash, Time now);
  /// The file of this checkpoint is on disk, complete and synced.
  void stored(const std::string& key, Time now);
  /// Whether anybody needs the file of this checkpoint. After restore() the runner deletes the
  /// files that nobody needs: the driver may have died before it could.
  bool needs(const std::string& key) const;
  /// The file of this checkpoint cannot be read. Its trials go on from the one before, or from
  /// nothing. Call it between restore() and interrupted(), or at any time later.
  void missing(const std::string& key, const std::string& why, Time now);
  /// The attempt is over: its function returned (`error` is empty) or threw, or its process died.
  void ended(int trial, int attempt, const std::string& error, Time now);
  /// The attempt's node was lost. That is no failure of the trial: it goes on from its newest
  /// checkpoint. Only three losses in a row without a further step count as one failure.
  void lost(int trial, int attempt, const std::string& why, Time now);
  /// At most so many attempts fit on the cluster now, those that run included. Attempts that run
  /// go on, and no other starts beyond the number. Until the first call there is no such limit.
  void room(int trials, Time now);
  /// Checks the time limit, kills attempts that have not returned in time and starts retries whose
  /// pause is over. Call it at next_tick(), or about once a second.
  void tick(Time now);
  /// Returns when tick() will next have an effect, if ever.
  std::optional<Time> next_tick() const;
  // What a user does to an experiment that runs. Each returns InvalidArgument, and changes nothing,
  // when it cannot be done.
  /// Changes options: trials, concurrent, max_failures, fail_fast, max_steps, target (NaN: none),
  /// time_limit and stop_grace (microseconds), save_every, save_at_end. More trials or a later
  /// limit reopen an experiment that is over. The values hold until the program changes its own.
  Result<void> change(const std::map<std::string, double>& options, Time now);
  /// Tries this point next. If no further trial would begin, there is one more.
  Result<void> add(const Point& point, Time now);
  /// Ends a trial early.
  Result<void> stop(int trial, Time now);
  /// Holds a trial, or all of them: no attempt starts. One that runs gives its slot up at its next
  /// report, once its model is saved; without a model it waits inside report(). It lasts, also over
  /// a restart, until resume() of the same. Time limits go on.
  Result<void> pause(std::optional<int> trial, Time now);
  Result<void> resume(std::optional<int> trial, Time now);
  /// Ends the experiment; running trials are told to return, or killed.
  void cancel(Time now);
  /// Call it after restore(): treats every attempt of the log as gone and restarts its trial.
  /// Begins an experiment that had not begun.
  void interrupted(Time now);

  /// Returns the point that the next new trial would have: a start, or the searcher's suggestion.
  std::optional<Point> next_point() const;
  /// Returns the commands to carry out, in order; each is returned once.
  std::vector<Command> take_commands();
  /// Returns the lines to append to the log, without newlines; the first one describes the
  /// experiment.
  std::vector<std::string> take_log();
  /// Returns what to write to the store, in place of take_log(): records, numbered from 1 on, and
  /// the rows that changed.
  StudyBatch take_batch();
  /// Returns the whole state as text, to compare two cores.
  std::string fingerprint() const;
  /// Keeps no log lines. Call it before begin(), when take_log() will not be used.
  void without_log();
  bool over() const noexcept;
  const Board& board() const noexcept;
  /// Sets Board::seconds to this time, for views.
  void set_clock(Time now);

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace troupe::tune
