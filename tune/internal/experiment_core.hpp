/// The state machine behind Experiment. Its inputs are Events, so that a log can be replayed into
/// it.
#pragma once

#include "troupe/tune/experiment.hpp"
#include "troupe/tune/internal/answers.hpp"
#include "troupe/tune/internal/settings.hpp"
#include "troupe/tune/study/study_batch.hpp"

#include <set>

namespace troupe::tune {

/// 100 years in microseconds. A time this late or later means "never"; the limit also keeps sums of
/// times from overflowing.
constexpr std::int64_t kNever = std::int64_t{100} * 365 * 24 * 3600 * 1'000'000;

/// Of the trials that are over, a study keeps so many in memory: the best ones, and the latest
/// ones.
constexpr std::size_t kBestOver = 100;
constexpr std::size_t kLatestOver = 100;

constexpr const char* kProgram = "program";  ///< who changed options: the call of optimize()

/// Whether a trial in this state has a process and counts against Board::slots.
inline bool occupies_slot(TrialState s) {
  return s == TrialState::running || s == TrialState::holding || s == TrialState::leaving;
}

struct Experiment::Core {
  Core(SearchSpace space, ExperimentOptions options);

  /// Takes an input: appends it and its consequences to the log, and the commands that follow. In a
  /// replay the answers of searcher and scheduler are those of the event.
  void apply(Event event, bool replayed = false);
  std::optional<Error> replay(const NextLine& next);
  /// Takes line `number` of the log. Sets `torn` if it is the last one and was cut off by a crash.
  std::optional<Error> replay_line(const std::string& text, std::size_t number, bool last,
                                   bool& torn);
  /// Returns why the log with this first line does not belong to these options, or an empty text.
  std::string why_not(const std::string& header_line) const;
  std::optional<Point> next_point() const;
  /// Applies an input, and the ends that waited for it.
  void feed(Event event);
  /// Whether this end may be applied only after a file is stored.
  bool end_waits(const Event& end) const;
  /// Whether this attempt has ended and its end waits for a file.
  bool has_ended(int trial, int attempt) const;
  /// Returns the checkpoint of this key, if anybody needs it.
  std::optional<Checkpoint> known(const std::string& key) const;
  bool is_stored(const Checkpoint& checkpoint) const;
  StudyBatch take_batch();
  std::string fingerprint() const;
  /// Returns why this report is refused (its step does not rise), or an empty text.
  std::string refusal(const Event& report) const;
  /// Returns when a tick will next have an effect, in microseconds since the beginning.
  std::optional<std::int64_t> next_tick() const;
  bool begun() const noexcept { return begun_; }
  std::int64_t micros(Time now);
  std::string header() const;

  ExperimentOptions options;
  Settings first_settings;  ///< for the log's first line
  Settings program;         ///< what the program set last, whatever a verb set since
  Settings new_settings;    ///< of a restored experiment: what this call has changed
  Board board;
  std::vector<Command> commands;
  std::vector<Event> log;
  bool keep_log = true;
  bool replays = false;      ///< an input of the log is applied: the store has its rows
  std::string due;           ///< replay: the text of a record, to compare
  std::size_t expected = 0;  ///< replay: how many records of `log` were found in the file
  bool same_space = true;    ///< replay: the log has this very space, so that texts are equal
  bool header_due = true;    ///< the log has no first line yet
  bool durable = false;      ///< checkpoints have files: the rules of a study hold
  std::string build;         ///< of the program that ran last; empty: not known
  std::string described;     ///< replay: the header that was found, which stays
  bool mixed = false;        ///< a call had another space than the header's
  bool running = false;      ///< begun or continued: `epoch` holds
  StudyBatch batch;          ///< rows that changed
  std::vector<Event> waiting_ends_;  ///< ends of attempts that wait for a file
  std::uint64_t next_event = 1;      ///< the number of the first record of `log`
  std::int64_t wall_zero = 0;        ///< microseconds of the Unix epoch at Time{}; 0: not known
  Time epoch{};                      ///< the zero of the experiment's time
  std::int64_t now = 0;  ///< time of the input that is being applied, microseconds since epoch
  Answers answers_;

 private:
  /// The future of a trial that leaves, once its present attempt has ended: it queues for a slot,
  /// pauses until the scheduler decides, restarts from its donor, or is over.
  enum class Next { wait, pause, restart, complete, stop };
  /// A checkpoint that a trial may start from, with the parameters that belong to it.
  struct Held {
    Checkpoint checkpoint;
    Point params;
    std::size_t copies = 0;  ///< how many of TrialInfo::copies came before it
    bool due = false;        ///< scheduler or save_every asked for it, or it was copied
  };
  /// Who needs a checkpoint: trials and best reports.
  struct Use {
    int count = 0;
    bool stored = false;      ///< its file is on disk
    int saver = -1;           ///< the trial that saved it
    std::vector<int> trials;  ///< those that hold it, in a study
    Checkpoint checkpoint;
  };
  /// The state of a trial that the board does not show.
  struct Control {
    bool in_report = false;   ///< the trial is inside report() and waits for a Reply
    bool can_save = false;    ///< the last report offered a model
    bool saving = false;      ///< a Save was sent and saved() has not come yet
    bool saving_due = false;  ///< that Save is due, not for the best report alone
    bool reply_due = false;   ///< the Reply waits for a file
    bool told = false;        ///< a Reply told the attempt to return
    bool kill_sent = false;
    bool overdue = false;     ///< stop_grace is over and the attempt has not returned
    bool urgent = false;      ///< a retry, which starts before new trials
    bool copy_ready = false;  ///< an exploit's checkpoint is set; the next attempt starts from it
    Next next = Next::stop;   ///< after the present attempt
    std::string why;          ///< for next = stop or complete
    std::string restores;     ///< hash of the checkpoint that this attempt was started from
    int donor = -1;           ///< exploit: the donor whose save this trial waits for; -1: none
    int copying = -1;         ///< index in TrialInfo::copies, until a restore proves that copy
    long last_step = 0;       ///< highest step that this attempt reported
    long decided = 0;         ///< highest step since the last copy after which the trial went on
    std::map<long, Decision> given;  ///< decisions that a repeated step gets again
    long furthest = 0;               ///< highest step that any attempt reported since the last copy
    bool advanced = false;           ///< this attempt raised `furthest`
    long reports_since_save = 0;
    std::optional<BestReport> candidate;  ///< the report whose model the Save in progress holds
    std::int64_t kill_at = kNever;        ///< when this attempt is killed if it has not returned
    std::int64_t retry_at = 0;            ///< the trial starts no attempt before this time
    int fruitless = 0;  ///< failed attempts in a row that did not raise `furthest`
    int losses = 0;     ///< attempts in a row lost with their node without a further step
    int alike = 0;      ///< how many of the latest of these had the same error
    std::string last_error;
    Point first_params;      ///< those of a start without a checkpoint
    std::vector<Held> held;  ///< in a study: oldest first; the last one is TrialInfo::checkpoint
  };

  // experiment_core.cpp: inputs
  bool late(const Event& e) const;
  bool timer_due(std::int64_t micros);
  bool timer_valid(std::int64_t at, int trial) const;
  void run_timers();
  void on_report(const Event& e);
  void on_save(const Event& e);
  void on_restore(const Event& e);
  void on_end(const Event& e);
  void on_lost(const Event& e);
  void attempt_gone(int trial);
  void on_interrupt();
  void on_set(const Event& e);
  void on_add(const Event& e);
  void on_stop(int trial);
  void on_pause(int trial, bool paused);
  void show_settings();
  std::int64_t wall_at(std::int64_t micros) const;
  void add_sample(TrialInfo& t, const Event& e);
  bool would_be_best(double score) const;
  void reported_best(BestReport state);
  void saved_best(BestReport state);
  void new_best(BestReport state);
  Event note(Event::Kind kind, int trial = -1) const;
  void record(const Event& event);
  bool current(const Event& e) const;

  // experiment_decisions.cpp: decisions of the scheduler, and checkpoints
  void carry_out(const Decision& d);
  void do_exploit(const Decision& d);
  void set_source(int trial, const Checkpoint& source);
  void stop_waiting_for_donor(int trial);
  void forget_copy(int trial);
  void donor_gone(int donor);
  void ask_to_save(int trial, bool due = true);
  /// Whether the trial is to go on only after the user resumes it, or the study.
  bool waits_for_user(const TrialInfo& t) const noexcept {
    return board.paused || t.paused_by_user;
  }
  void wait_for_user(int trial);
  void reply(int trial, bool go_on);
  void leave(int trial, Next next, std::string why);

  // experiment_files.cpp: checkpoints and their files
  void use(const Checkpoint& checkpoint);
  void release(const Checkpoint& checkpoint);
  void adopt(int trial, const Checkpoint& checkpoint, bool due);
  void let_go(int trial, std::size_t place);
  void trim(int trial);
  bool blocked(int trial) const;
  void on_stored(const Event& e);
  void on_missing(const Event& e);
  void keep_best();
  void back_to_row(int trial);
  void back_to_files();
  void settle_ends(std::int64_t micros);
  void release_all(int trial, bool but_last);

  // experiment_rows.cpp: rows of the store
  bool keeps_rows() const noexcept { return durable && !replays; }
  std::string trial_row(int trial) const;
  void put_report(const Event& e);
  void put_row(int trial, const Held& held);
  void put_best_row(const BestReport& best);
  void delete_best_row(const Checkpoint& checkpoint);
  void delete_row(int trial, const Checkpoint& checkpoint);

  // experiment_memory.cpp: which trials stay in memory
  void forget_trials();
  std::vector<bool> needed_trials() const;

  // experiment_trials.cpp: beginning and end of trials and attempts
  bool may_create() const;
  int places() const;
  bool others_wait() const;
  bool create_trial();
  void start(int trial);
  void schedule();
  void make_room();
  void pause_holders();
  void after_attempt(int trial);
  void attempt_failed(int trial, const std::string& error);
  void queue_again(int trial);
  void pause(int trial);
  void failed_for_good(int trial, const std::string& error);
  void close_trial(int trial, TrialState state, const std::string& why);
  void end_all(const std::string& why);
  void finish_if_done();

  // The trials in memory. The others are over, and only Board::gone counts them.
  bool has(int trial) const { return board.find(trial) != nullptr; }
  /// Returns the place of a trial that is in memory, in Board::trials and in `controls_`.
  std::size_t place(int trial) const {
    return static_cast<std::size_t>(board.find(trial) - board.trials.data());
  }
  TrialInfo& info(int trial) { return board.trials[place(trial)]; }
  const TrialInfo& info(int trial) const { return board.trials[place(trial)]; }
  Control& control(int trial) { return controls_[place(trial)]; }
  const Control& control(int trial) const { return controls_[place(trial)]; }

  std::vector<Control> controls_;          ///< of Board::trials, at the same places
  std::deque<int> latest_over_;            ///< the latest trials that are over, in this order
  std::size_t forget_above_ = 1000;        ///< trials in memory that begin forget_trials()
  std::vector<int> waiting_;               ///< trials in state waiting, in queue order
  std::vector<int> copiers_;               ///< trials with Control::donor set
  std::set<int> holders_;                  ///< trials that hold, or are leaving a hold
  std::map<std::string, Use> uses_;        ///< by key
  std::optional<BestReport> stored_best_;  ///< the best report whose model has a file
  std::set<int> touched_;                  ///< trials whose rows have changed
  /// Time and trial of every Control::kill_at and retry_at. An entry whose cause is gone stays
  /// until it is due; timer_valid() tells them apart.
  std::set<std::pair<std::int64_t, int>> timers_;
  std::deque<Point> added_;     ///< points of the user that no trial has yet
  std::size_t next_start_ = 0;  ///< index in options.starts
  int used_slots_ = 0;
  bool space_used_up_ = false;  ///< the searcher has no further point
  bool ending_ = false;         ///< end_all() was called: no attempt starts any more
  bool begun_ = false;
  std::int64_t wall_now_ = 0;  ///< of the input that is being applied
};

}  // namespace troupe::tune
