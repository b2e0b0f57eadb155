/// The core of an experiment: a plain state machine between the trials and a searcher and
/// scheduler.
///
///     Experiment core(space.search(), options);
///     core.begin(now);
///     for (const Command& c : core.take_commands()) carry_out(c);   // starts trials
///     core.reported(trial, attempt, report, now);                   // what trials say …
///     for (const std::string& line : core.take_log()) file << line; // … and what is on record
///
/// It starts no thread and reads no clock: whoever runs the trials hands in what happened with the
/// time, and carries out the commands in their order. The log rebuilds it (restore()).
///
/// The life of a trial's attempt: Start → (reported → [Save → saved] → Reply)* → ended. A trial
/// inside report() waits for the Reply; a Save that comes first asks it to save its model there.
/// A report that offers a model and is the best so far is saved always. An attempt that was told to
/// return and does not is killed after Options::stop_grace; its reports change nothing.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/tune/board.hpp"
#include "troupe/tune/scheduler.hpp"
#include "troupe/tune/searcher.hpp"

#include <memory>
#include <span>
#include <variant>

namespace troupe::tune {

/// What to try and when to stop. S is the scheduler's own option struct, or any of them.
template <class S = AnyScheduler>
struct Options {
  Goal goal;  ///< required: minimize or maximize
  int trials = 1;
  S scheduler = {};
  AnySearcher searcher = {};
  /// Trials that run at a time. 0: all; in optimize() as many as the cluster has CPUs.
  int concurrent = 0;
  /// Retries of a trial whose attempt failed; -1: endless. Attempts that come no further than those
  /// before wait longer each time: up to 1 s when they reported something, up to 30 s when not.
  int max_failures = 0;
  bool fail_fast = false;             ///< the first trial that fails for good ends the experiment
  long max_steps = 0;                 ///< a trial that reports this step is complete; 0: no limit
  std::optional<double> target = {};  ///< a score at least as good ends the experiment
  Duration time_limit = {};           ///< of the whole experiment; 0: none
  long save_every = 0;       ///< reports between checkpoints; 0: only when the scheduler asks
  bool save_at_end = false;  ///< every trial that completes keeps its last model, not only the best
  std::uint64_t seed = 0;
  std::string name = "experiment";
  std::string metric = "score";    ///< how the score is called, for people
  std::vector<Point> starts = {};  ///< points to try first (Space::starts())
  bool show = true;                ///< optimize(): a live table, or a line now and then
  /// optimize(): a folder of this experiment's own for log, pictures, page; empty: none.
  std::string results = {};
  /// A trial that was told to return and has not after this long is killed; forever: never.
  Duration stop_grace = std::chrono::seconds(5);

  /// The same with the scheduler's type erased.
  Options<AnyScheduler> any() const {
    return {goal,      trials, scheduler,  searcher,   concurrent,  max_failures, fail_fast,
            max_steps, target, time_limit, save_every, save_at_end, seed,         name,
            metric,    starts, show,       results,    stop_grace};
  }
};
using ExperimentOptions = Options<>;

/// Start an attempt; `from` holds weights to restore and `from->step` the step to go on from.
struct Start {
  int trial = 0;
  int attempt = 0;
  Point params;
  std::optional<Checkpoint> from;
};
/// The trial, inside report(), saves its model; saved() follows.
struct Save {
  int trial = 0;
  int attempt = 0;
};
/// report() returns; false asks the trial to return too, and ended() follows.
struct Reply {
  int trial = 0;
  int attempt = 0;
  bool go_on = false;
};
/// End the attempt now, wherever it is; ended() follows.
struct Kill {
  int trial = 0;
  int attempt = 0;
};
/// Nobody will ask for this checkpoint again.
struct Drop {
  Checkpoint checkpoint;
};
/// All trials are over; nothing follows.
struct Finished {
  std::string why;
};
using Command = std::variant<Start, Save, Reply, Kill, Drop, Finished>;

struct TrialReport {
  long step = 0;  ///< at least 1
  double score = 0;
  std::map<std::string, double> metrics = {};
  bool can_save = false;  ///< the trial offered a model
};

class TROUPE_API Experiment {
 public:
  /// Throws InvalidArgument when an option is out of its range or a start point is.
  Experiment(SearchSpace space, ExperimentOptions options);
  ~Experiment();
  Experiment(Experiment&&) noexcept;
  Experiment& operator=(Experiment&&) noexcept;

  /// An experiment as its log describes it. The first line must describe these very options and
  /// this space; a torn last line is ignored, and a log that was cut anywhere is one that ended
  /// there: what is missing of the last record's consequences comes out of take_log(). Without a
  /// whole first line it is a new experiment. InvalidArgument with the line's number when the log
  /// is damaged or was written by other options or another algorithm. Commands of the past are
  /// gone: call interrupted() to start what was running again from its last checkpoints.
  static Result<Experiment> restore(SearchSpace space, ExperimentOptions options,
                                    std::span<const std::string> lines);

  /// Starts the first trials. Once, before everything else.
  void begin(Time now);
  // What trials say. Unknown trials and past attempts are ignored: late messages do no harm.
  void reported(int trial, int attempt, const TrialReport& report, Time now);
  void saved(int trial, int attempt, const Checkpoint& checkpoint, Time now);
  /// The attempt loaded weights with this hash; it must be the one that was saved.
  void restored(int trial, int attempt, const std::string& hash, Time now);
  /// The attempt is gone: its function returned (no error), threw, or its processes died.
  void ended(int trial, int attempt, const std::string& error, Time now);
  /// Checks the time limit, attempts that do not return and retries that wait; next_tick() says
  /// when there will be something to do, about once a second is enough as well.
  void tick(Time now);
  std::optional<Time> next_tick() const;
  void cancel(Time now);
  /// After restore(): every attempt of the log is gone. Begins an experiment that had not begun.
  void interrupted(Time now);

  /// What to do, in order; each command is given once.
  std::vector<Command> take_commands();
  /// Lines to append to the log, without newlines; the first describes the experiment.
  std::vector<std::string> take_log();
  /// Before begin(): nobody will ask for the log, so no line is kept.
  void without_log();
  bool over() const noexcept;
  const Board& board() const noexcept;
  /// Brings Board::seconds up to date, for views.
  void set_clock(Time now);

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace troupe::tune
