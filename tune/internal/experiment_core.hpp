/// The state machine behind Experiment: inputs are events, so that the log can be replayed.
#pragma once

#include "troupe/tune/experiment.hpp"

#include <set>

namespace troupe::tune {

/// Microseconds that no experiment lasts: longer durations mean that something never happens.
constexpr std::int64_t never = std::int64_t{100} * 365 * 24 * 3600 * 1'000'000;

/// A trial in this state has processes.
inline bool occupies_slot(TrialState s) {
  return s == TrialState::running || s == TrialState::holding || s == TrialState::leaving;
}

struct Experiment::Core {
  Core(SearchSpace space, ExperimentOptions options);

  void apply(const Event& event);  ///< an input; appends it and what follows to the log
  /// Why this report cannot be taken: steps that fall or repeat. Empty: it can.
  std::string refusal(const Event& report) const;
  /// When a tick will have an effect, in microseconds.
  std::optional<std::int64_t> next_tick() const;
  bool begun() const noexcept { return begun_; }
  std::int64_t micros(Time now);
  std::string header() const;

  ExperimentOptions options;
  Board board;
  std::vector<Command> commands;
  std::vector<Event> log;
  bool keep_log = true;
  bool header_due = true;  ///< the log has no first line yet
  Time epoch{};
  std::int64_t now = 0;  ///< microseconds of the event in hand

 private:
  enum class Next { wait, pause, restart, complete, stop };
  /// What the core knows of a trial beyond the board.
  struct Control {
    bool in_report = false;  ///< waits for a Reply
    bool can_save = false;   ///< the last report offered a model
    bool saving = false;     ///< a Save is on its way
    bool told = false;       ///< to return from its function
    bool kill_sent = false;
    bool overdue = false;     ///< it was told to return and did not
    bool urgent = false;      ///< a retry: before new trials
    bool copy_ready = false;  ///< the next attempt starts from the donor's weights
    Next next = Next::stop;   ///< after the present attempt
    std::string why;          ///< for next = stop or complete
    std::string restores;     ///< the hash that this attempt is to load
    int donor = -1;           ///< an exploit that waits for the donor's save
    int copying = -1;         ///< index in copies, until the restore proves it
    long last_step = 0;       ///< that this attempt reported
    long furthest = 0;        ///< that any attempt reported since the last copy
    bool advanced = false;    ///< this attempt came further than those before
    long reports_since_save = 0;
    std::optional<BestReport> candidate;  ///< the state that the Save on its way holds
    std::int64_t kill_at = never;         ///< this attempt, when it has not returned by then
    std::int64_t retry_at = 0;
    int fruitless = 0;  ///< attempts in a row that failed and came no further
    int alike = 0;      ///< of these, with the same error
    std::string last_error;
  };

  // experiment_core.cpp: what comes in
  bool late(const Event& e) const;
  bool timer_due(std::int64_t micros);
  bool timer_valid(std::int64_t at, int trial) const;
  void run_timers();
  void on_report(const Event& e);
  void on_save(const Event& e);
  void on_restore(const Event& e);
  void on_end(const Event& e);
  void on_interrupt();
  void add_sample(TrialInfo& t, const Event& e);
  bool would_be_best(double score) const;
  void reported_best(BestReport state);
  void saved_best(BestReport state);
  void new_best(BestReport state);
  Event note(Event::Kind kind, int trial = -1) const;
  void record(const Event& event);
  bool current(const Event& e) const;

  // experiment_decisions.cpp: what the scheduler wants
  void carry_out(const Decision& d);
  void do_exploit(const Decision& d);
  void set_source(int trial, const Checkpoint& source);
  void stop_waiting_for_donor(int trial);
  void forget_copy(int trial);
  void donor_gone(int donor);
  void use(const Checkpoint& checkpoint);
  void release(const Checkpoint& checkpoint);
  void adopt(int trial, const Checkpoint& checkpoint);
  void ask_to_save(int trial, bool due = true);
  void reply(int trial, bool go_on);
  void leave(int trial, Next next, std::string why);

  // experiment_trials.cpp: trials come and go
  bool may_create() const;
  bool others_wait() const;
  bool create_trial();
  void start(int trial);
  void schedule();
  void make_room();
  void after_attempt(int trial);
  void attempt_failed(int trial, const std::string& error);
  void failed_for_good(int trial, const std::string& error);
  void close_trial(int trial, TrialState state, const std::string& why);
  void end_all(const std::string& why);
  void finish_if_done();

  TrialInfo& info(int trial) { return board.trials[static_cast<std::size_t>(trial)]; }
  Control& control(int trial) { return controls_[static_cast<std::size_t>(trial)]; }

  std::unique_ptr<Searcher> searcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Control> controls_;
  std::vector<int> waiting_;
  std::vector<int> copiers_;                    ///< trials whose donor's save is on its way
  std::set<int> holders_;                       ///< trials that hold (or leave a hold)
  std::map<std::string, int> checkpoint_uses_;  ///< by key: who would restore it, and the best
  /// Times at which an attempt that does not return is killed or a retry may start, with its trial.
  std::set<std::pair<std::int64_t, int>> timers_;
  std::size_t next_start_ = 0;  ///< of options.starts
  int used_slots_ = 0;
  bool space_used_up_ = false;
  bool ending_ = false;
  bool begun_ = false;
};

}  // namespace troupe::tune
