/// The state machine behind Experiment: inputs are events, so that the log can be replayed.
#pragma once

#include "troupe/tune/experiment.hpp"

#include <set>

namespace troupe::tune {

struct Experiment::Core {
  Core(SearchSpace space, ExperimentOptions options);

  void apply(const Event& event);  ///< an input; appends it and what follows to the log
  std::int64_t micros(Time now);
  std::string header() const;

  ExperimentOptions options;
  Board board;
  std::vector<Command> commands;
  std::vector<std::string> log;
  Time epoch{};
  std::int64_t now = 0;  ///< microseconds of the event in hand

 private:
  enum class Next { wait, pause, restart, complete, stop };
  /// What the core knows of a trial beyond the board.
  struct Control {
    bool in_report = false;  ///< waits for a Reply
    bool can_save = false;   ///< the last report offered a model
    bool saving = false;     ///< a Save is on its way
    bool kill_sent = false;
    bool urgent = false;     ///< a retry: before new trials
    Next next = Next::stop;  ///< after the present attempt
    std::string why;         ///< for next = stop or complete
    std::string restores;    ///< the hash that this attempt is to load
    int donor = -1;          ///< an exploit that waits for the donor's save
    int copying = -1;        ///< index in copies, until the restore proves it
    long reports_since_save = 0;
  };

  void on_begin();
  void on_report(const Event& e);
  void on_save(const Event& e);
  void on_restore(const Event& e);
  void on_end(const Event& e);
  void on_interrupt();
  void add_sample(TrialInfo& t, const Event& e);
  void update_best(int trial);
  void carry_out(const Decision& d);
  void do_exploit(const Decision& d);
  void set_source(int trial, const Checkpoint& source);
  void ask_to_save(int trial);
  void reply(int trial, bool go_on);
  void leave(int trial, Next next, std::string why);
  void after_attempt(int trial);
  void attempt_failed(int trial, const std::string& error);
  void close_trial(int trial, TrialState state, const std::string& why);
  void donor_gone(int donor);
  void stop_waiting_for_donor(int trial);
  void adopt(int trial, const Checkpoint& checkpoint);
  bool create_trial();
  bool may_create() const;
  bool others_wait() const;
  void make_room();
  void start(int trial);
  void schedule();
  void end_all(const std::string& why);
  void finish_if_done();
  Event note(Event::Kind kind, int trial = -1) const;
  void record(const Event& event);
  TrialInfo& info(int trial) { return board.trials[static_cast<std::size_t>(trial)]; }
  Control& control(int trial) { return controls_[static_cast<std::size_t>(trial)]; }
  bool current(const Event& e) const;

  std::unique_ptr<Searcher> searcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Control> controls_;
  std::vector<int> waiting_;
  std::vector<int> copiers_;                    ///< trials whose donor's save is on its way
  std::set<int> holders_;                       ///< trials that hold (or leave a hold)
  std::map<std::string, int> checkpoint_uses_;  ///< by key: trials that would restore it
  std::size_t next_start_ = 0;                  ///< of options.starts
  int used_slots_ = 0;
  bool space_used_up_ = false;
  bool ending_ = false;
  bool begun_ = false;
  double best_score_ = std::numeric_limits<double>::quiet_NaN();
  std::vector<Decision> decisions_;
};

}  // namespace troupe::tune
