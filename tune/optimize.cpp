#include "troupe/tune/optimize.hpp"

#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/words.hpp"
#include "troupe/tune/internal/interrupt.hpp"
#include "troupe/tune/internal/study_session.hpp"
#include "troupe/tune/internal/text.hpp"
#include "troupe/tune/internal/trial_hosts.hpp"
#include "troupe/tune/internal/trial_lines.hpp"
#include "troupe/tune/views/files.hpp"
#include "troupe/tune/views/terminal.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <thread>

namespace troupe::tune::internal {
namespace {

constexpr std::size_t kNoteLimit = 10'000;
/// How often the live view is updated when no trial reports, and how often Ctrl-C and verbs are
/// looked for.
constexpr Duration kRepaint = std::chrono::milliseconds(100);
/// How often the files of what trials print are looked at: each look opens one a running trial.
constexpr Duration kLinesEvery = std::chrono::milliseconds(50);
/// How long trials have to return after Ctrl-C.
constexpr Duration kCancelWithin = std::chrono::seconds(1);
/// How long files that are being written have to be complete after Ctrl-C.
constexpr Duration kFilesWithin = std::chrono::milliseconds(500);
/// How long the last lines of trials may take to arrive from other nodes, and after Ctrl-C.
constexpr Duration kLastLines = std::chrono::seconds(5);
constexpr Duration kLinesAtCancel = std::chrono::milliseconds(300);
/// How long the pages of the results may take after Ctrl-C.
constexpr Duration kPagesAtCancel = std::chrono::seconds(1);
/// How often the end of a study looks for them, and how long it waits after each look.
constexpr int kLastLooks = 100;
constexpr Duration kLookAgain = std::chrono::milliseconds(10);
/// A trial is shown as silent from this time on, or from half of Options::silence.
constexpr Duration kShownSilence = std::chrono::seconds(30);
constexpr Duration kShownWait = std::chrono::seconds(1);
constexpr std::size_t kLineWidth = 4000;  ///< of a line that a trial prints
constexpr std::size_t kMostStanding = 5;  ///< lines of the view on trials that wait or are silent

/// Sets `concurrent`, if it is 0, to all trials, since the room limits them. Trials that reserve
/// nothing take as many slots as the cluster has CPUs.
ExperimentOptions with_slots(ExperimentOptions options, const Admission& admission) {
  if (options.concurrent != 0) return options;
  const PerTrial& need = options.per_trial;
  const bool limited = need.cpus > 0 || need.gpus > 0;
  const int trials = std::max(options.trials, 1);
  options.concurrent = limited ? trials : std::min(admission.slots(), trials);
  return options;
}

void print(const std::string& text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Prints a line to stderr. fit() removes control characters, since the text comes from outside
/// (TU-7).
void complain(const std::string& what) {
  log_line("%s", fit(what, 2000).c_str());
}

/// Carries out an experiment's commands on trial actors and feeds their messages back as inputs.
class Runner {
 public:
  Runner(Context ctx, const SearchSpace& space, const ExperimentOptions& options,
         const SpawnTrial& spawn)
      : hosts_(ctx, options, spawn),
        options_(with_slots(options, hosts_.admission())),
        study_(ctx, options_, complain,
               [this] { return interrupt_ != nullptr && interrupt_->came(); }),
        experiment_(study_.experiment(space, options_)),
        view_(terminal_of(STDOUT_FILENO)) {
    if (study_.in_folder())
      lines_.emplace(ctx, study_.logs_path());
    else if (options.show && terminal_of(STDOUT_FILENO).live)
      lines_.emplace(ctx, std::string());
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() = default;

  Outcome run() {
    const InterruptWatch interrupt;
    interrupt_ = &interrupt;
    if (study_.is_new()) tell_room();  // a study has the room of its last record until it goes on
    events_seen_ = experiment_.board().events_seen;  // those of an earlier run were told there
    study_.start(experiment_, steady_now());
    const bool cancelled = !run_or_cancel(interrupt);
    if (cancelled) study_.end_soon();
    if (!disk_hangs_) end_lines(cancelled ? kLinesAtCancel : kLastLines);
    const Board& board = experiment_.board();
    const std::string no_model = why_no_model(board);
    if (!no_model.empty()) add_note(no_model);
    if (study_.in_folder() && !disk_hangs_) write_files(board, cancelled);
    if (options_.show) print(view_.finish(board));
    if (cancelled) throw Cancelled(Code::cancelled, cancelled_words(board));
    if (!board.error.empty()) throw InvalidArgument(Code::invalid_argument, "tune: " + board.error);
    Outcome outcome{board, {}, no_model, {}, {notes_.begin(), notes_.end()}};
    if (no_model.empty()) load_best(outcome);
    for (const TrialInfo& t : board.trials)
      if (t.checkpoint) outcome.models.add(t.number, study_.loader(t.checkpoint->key));
    return outcome;
  }

 private:
  struct Attempt {
    int number = 0;
    Time began{};
    /// Since when the attempt is to report; max while it waits for room or inside report().
    Time quiet_since = Time::max();
  };

  /// Does the same as run_trials(). A batch that finds no room after Ctrl-C is given up: nothing of
  /// it was answered, and the study goes on from the one before.
  bool run_or_cancel(const InterruptWatch& interrupt) {
    try {
      return run_trials(interrupt);
    } catch (const Cancelled& error) {
      if (!interrupt.came()) throw;
      disk_hangs_ = error.maybe_executed();
      if (disk_hangs_) complain(error.message());
      return false;
    }
  }

  /// Runs the trials until all are over. Returns false after Ctrl-C. Then a study stays as it is,
  /// for the next call, once the files that are being written are complete.
  bool run_trials(const InterruptWatch& interrupt) {
    Time cancelled = Time::max();
    Duration within = kCancelWithin;
    while (settle() && steady_now() - within < cancelled) {
      if (cancelled != Time::max() && study_.in_folder() &&
          study_.next_files(steady_now()) == Time::max())
        break;
      watch();
      if (!interrupt.came() || cancelled != Time::max()) continue;
      cancelled = steady_now();
      if (study_.in_folder())
        within = kFilesWithin;
      else
        experiment_.cancel(cancelled);
    }
    show_lines();
    return cancelled == Time::max();
  }

  /// Writes what follows from the last inputs, carries out the commands and updates the view.
  /// Returns false when the experiment is over.
  bool settle() {
    hosts_.look(steady_now());
    end_silent();
    tell_room();
    study_.take_files(experiment_, steady_now());
    study_.hear_verbs(experiment_, steady_now());
    experiment_.tick(steady_now());
    for (;;) {
      study_.write(experiment_);
      const std::vector<Command> commands = experiment_.take_commands();
      if (commands.empty()) break;
      for (const Command& command : commands) carry_out(command);
    }
    tell_events();
    if (steady_now() >= lines_due_) show_lines();
    if (options_.show) {
      experiment_.set_clock(steady_now());
      view_.standing(standing());
      print(view_.update(experiment_.board(), steady_now()));
    }
    return !experiment_.over();
  }

  void carry_out(const Command& command) {
    if (const auto* start = std::get_if<Start>(&command)) return begin(*start);
    if (const auto* save = std::get_if<Save>(&command)) return reply(*save, Verdict::save);
    if (const auto* answer = std::get_if<Reply>(&command))
      return reply(*answer, answer->go_on ? Verdict::go_on : Verdict::stop);
    if (const auto* end = std::get_if<Kill>(&command)) {
      if (is_running(end->trial, end->attempt)) finish(end->trial, "killed", false);
    } else if (const auto* drop = std::get_if<Drop>(&command)) {
      study_.drop(drop->checkpoint.key);
    }
  }

  bool is_running(int trial, int attempt) const {
    const auto found = running_.find(trial);
    return found != running_.end() && found->second.number == attempt;
  }

  void begin(const Start& start) {
    TrialSetup setup;
    setup.number = start.trial;
    setup.attempt = start.attempt;
    if (lines_) setup.output = lines_->place_of(start.trial);
    begins_ = true;
    std::optional<NodeId> prefer;
    if (start.from) {
      try {
        setup.start = study_.model(start.from->key);
      } catch (const Error& error) {
        return no_start(start, error);
      }
      prefer = study_.node_of(start.from->key);
    }
    const bool runs = hosts_.begin(std::move(setup), start.params, prefer);
    Attempt& attempt = running_[start.trial] = Attempt{start.attempt, steady_now()};
    if (runs) listen_to(start.trial, attempt);
  }

  /// Ends an attempt whose checkpoint cannot be had. One whose file is bad is no failure: the trial
  /// goes on from the checkpoint before.
  void no_start(const Start& start, const Error& error) {
    if (!study_.in_folder() || error.code() != Code::invalid_argument)
      return experiment_.ended(start.trial, start.attempt, error.message(), steady_now());
    add_note(error.message());
    complain(error.message());
    experiment_.missing(start.from->key, error.message(), steady_now());
    experiment_.lost(start.trial, start.attempt, error.message(), steady_now());
  }

  /// From now on the attempt is to report, unless it still waits for its gang.
  void listen_to(int trial, Attempt& attempt) const {
    if (!hosts_.waits(trial)) attempt.quiet_since = steady_now();
  }

  template <class To>
  void reply(const To& to, Verdict verdict) {
    if (!is_running(to.trial, to.attempt)) return;
    hosts_.reply(to.trial, verdict);
    if (verdict == Verdict::go_on) running_[to.trial].quiet_since = steady_now();
  }

  /// Ends an attempt and tells the experiment. `keeps`: its process may run another one. Otherwise
  /// it is killed; it may live a moment longer.
  void finish(int trial, const std::string& error, bool keeps) {
    const int attempt = running_.at(trial).number;
    running_.erase(trial);
    hosts_.end(trial, keeps);
    if (lines_) lines_->ended(trial);
    experiment_.ended(trial, attempt, error, steady_now());
  }

  /// Tells the experiment how many attempts fit, when that has changed.
  void tell_room() {
    const int room = hosts_.admission().room(steady_now());
    if (room != room_) experiment_.room(room, steady_now());
    room_ = room;
  }

  void end_silent() {
    if (options_.silence <= Duration::zero()) return;
    std::vector<int> silent;
    for (const auto& [trial, attempt] : running_)
      if (steady_now() - options_.silence >= attempt.quiet_since) silent.push_back(trial);
    for (const int trial : silent)
      finish(
          trial,
          "it has not reported for " + words(options_.silence) + ", the limit of Options::silence",
          false);
  }

  static std::string words(Duration time) {
    return duration_text(std::chrono::duration<double>(time).count());
  }

  /// Returns lines on what holds trials up.
  std::vector<std::string> standing() const {
    std::vector<std::string> lines;
    const Duration shown = options_.silence > Duration::zero()
                               ? std::min(kShownSilence, options_.silence / 2)
                               : kShownSilence;
    const Time now = steady_now();
    if (experiment_.board().paused)
      lines.push_back("the study is paused: `troupe tune resume " + options_.results +
                      "` lets it go on");
    for (const auto& [trial, attempt] : running_) {
      const std::string who = "trial " + std::to_string(trial);
      if (hosts_.waits(trial) && now - attempt.began >= kShownWait)
        lines.push_back(who + " waits for " + hosts_.admission().needs());
      else if (now - shown >= attempt.quiet_since)
        lines.push_back(who + " has been silent for " + words(now - attempt.quiet_since));
      if (lines.size() == kMostStanding) break;
    }
    return lines;
  }

  /// A file that was altered costs the model, not the result.
  void load_best(Outcome& outcome) {
    try {
      outcome.model = study_.model(outcome.board.best_report->checkpoint->key);
    } catch (const InvalidArgument& error) {
      outcome.no_model = error.message();
      outcome.notes.push_back(error.message());
    }
  }

  std::string cancelled_words(const Board& board) const {
    std::string text = "tune: interrupted";
    if (board.best >= 0)
      text += "; the best so far is trial " + std::to_string(board.best) + " with " + board.metric +
              " " + number(board.best_score());
    if (study_.in_folder()) text += "; the same call goes on with the study " + options_.results;
    return text;
  }

  /// Blocks until a message of any trial arrives or a tick is due, then feeds all messages that are
  /// there to the experiment.
  void watch() {
    const bool looks = options_.show || interrupt_->watches() || study_.in_folder();
    Time until = looks ? steady_now() + kRepaint : Time::max();
    until = std::min({until, hosts_.next_look(), study_.next_files(steady_now())});
    if (const auto due = experiment_.next_tick()) until = std::min(until, *due);
    if (options_.silence > Duration::zero())
      for (const auto& [trial, attempt] : running_)
        if (attempt.quiet_since != Time::max())
          until = std::min(until, attempt.quiet_since + options_.silence);
    hear(hosts_.next(until));
    while (hear(hosts_.next({}))) {
    }
  }

  bool hear(const std::optional<TrialHosts::Heard>& heard) {
    if (!heard) return false;
    const int trial = heard->trial;
    const auto found = running_.find(trial);
    if (found == running_.end() || found->second.number != heard->attempt) return true;
    for (const TrialMessage& message : heard->messages)
      if (!happened(trial, found->second, message)) return true;
    if (!heard->death) return true;
    const int attempt = found->second.number;
    running_.erase(found);
    if (lines_) lines_->ended(trial);
    if (heard->node_lost) {
      experiment_.lost(trial, attempt, heard->death->message(), steady_now());
    } else if (heard->death->code() == Code::infeasible) {
      raise(*heard->death);  // no later attempt fits either
    } else {
      experiment_.ended(trial, attempt, heard->death->message(), steady_now());
    }
    return true;
  }

  /// Feeds one message to the experiment. Returns false when it was the attempt's last one.
  bool happened(int trial, Attempt& attempt, const TrialMessage& message) {
    using Kind = TrialMessage::Kind;
    const Time now = steady_now();
    switch (message.kind) {
      case Kind::ready:
      case Kind::gathered: listen_to(trial, attempt); break;
      case Kind::restored:
        experiment_.restored(trial, attempt.number, hash_text(message.hash), now);
        break;
      case Kind::reported:
        attempt.quiet_since = Time::max();
        experiment_.reported(
            trial, attempt.number,
            {message.metrics.step, message.score, message.metrics.extra, message.can_save}, now);
        break;
      case Kind::saved: {
        const std::string key = "trial-" + std::to_string(trial) + "-" +
                                std::to_string(attempt.number) + "-" +
                                std::to_string(message.saved.step);
        const CheckpointSave save{.key = key,
                                  .trial = static_cast<std::uint32_t>(trial),
                                  .step = message.saved.step,
                                  .hash = hash_text(message.saved.hash),
                                  .bytes = message.saved.bytes};
        study_.save(save, message.saved, hosts_.node_of(trial), experiment_.board().slots);
        experiment_.saved(trial, attempt.number, {key, save.hash, save.bytes, save.step}, now);
        break;
      }
      case Kind::noted: noted(trial, message.error); break;
      case Kind::ended: finish(trial, message.error, message.reusable); return false;
    }
    return true;
  }

  void noted(int trial, const std::string& what) {
    add_note("trial " + std::to_string(trial) + ": " + what);
  }

  void add_note(std::string note) {
    if (options_.show) view_.note(note);
    notes_.push_back(std::move(note));
    if (notes_.size() > kNoteLimit) notes_.pop_front();
  }

  /// Writes pictures and tables. A failure becomes a note and no exception, so that the caller
  /// still gets the outcome.
  void write_files(const Board& board, bool cancelled) {
    try {
      if (cancelled) return write_last_pages(board);  // the exports go on from their cursors
      study_.finish();
      write_pages(options_.results, board);
    } catch (const Error& error) {
      add_note("not all of the results were written: " + error.message());
      complain(notes_.back());
    }
  }

  void write_last_pages(const Board& board) {
    if (write_pages_within(options_.results, board, kPagesAtCancel)) return;
    add_note("the pages in " + options_.results + " were not written: the disk does not answer");
    complain("tune: " + notes_.back() + "; the same call writes them when it goes on");
  }

  /// Shows what trials have printed: above the live table, or as it is. Returns whether that is
  /// all of those that are over. `last`: shows lines without an end, too.
  bool show_lines(bool last = false) {
    if (!lines_) return true;
    lines_due_ = steady_now() + kLinesEvery;
    const TrialLines::Taken taken = lines_->take(last);
    for (const auto& [trial, text] : taken.lines) {
      if (options_.show)
        view_.line(trial, text);
      else
        print("t" + std::to_string(trial) + ": " + fit(text, kLineWidth) + "\n");
    }
    return taken.all;
  }

  /// Shows the last lines. Lines that pipes take come later than what trials say, and a process may
  /// print until it is gone.
  void end_lines(Duration within) {
    if (!lines_) return;
    const Time until = steady_now() + within;
    try {
      if (begins_) lines_->finish(until);
    } catch (const Unavailable& error) {
      add_note("the last lines of trials may be missing: " + error.message());
    }
    for (int look = 1; !show_lines() && look < kLastLooks && steady_now() < until; ++look)
      std::this_thread::sleep_for(kLookAgain);
    show_lines(true);
  }

  void tell_of(const Event& event) {
    using Kind = Event::Kind;
    const bool failed = event.kind == Kind::failed;
    if (lines_ && (failed || event.kind == Kind::stopped || event.kind == Kind::completed))
      lines_->over(event.trial, failed);
    if (!options_.on_event) return;
    try {
      options_.on_event(event);
    } catch (...) {
      add_note("Options::on_event threw: " + words_of_current_exception());
    }
  }

  /// Tells of new events. Copies `repeated` ones to the notes, and to stderr when there is no live
  /// view that shows them.
  void tell_events() {
    const Board& board = experiment_.board();
    const std::uint64_t fresh =
        std::min<std::uint64_t>(board.events_seen - events_seen_, board.events.size());
    events_seen_ = board.events_seen;
    for (auto e = board.events.end() - static_cast<std::ptrdiff_t>(fresh); e != board.events.end();
         ++e) {
      tell_of(*e);
      if (e->kind != Event::Kind::repeated) continue;
      notes_.push_back(plain_words(*e, board.space, board.metric));
      if (!options_.show) complain("tune: " + notes_.back());
    }
  }

  /// Returns why Best::restore() has nothing to load, or an empty text.
  std::string why_no_model(const Board& board) const {
    if (!board.best_report) return "no trial reported a score, so there is no model";
    if (board.best_report->checkpoint && study_.has(board.best_report->checkpoint->key)) return {};
    return "no report came with a model that was saved (the best one is trial " +
           std::to_string(board.best) + "'s at step " + std::to_string(board.best_step()) +
           "), so there is none to restore: call t.report(score, model), or w.checkpoint(model) "
           "before w.report() in a gang";
  }

  TrialHosts hosts_;
  const ExperimentOptions options_;
  StudySession study_;
  Experiment experiment_;
  LiveView view_;
  std::deque<std::string> notes_;
  std::uint64_t events_seen_ = 0;
  std::optional<TrialLines> lines_;
  Time lines_due_{};
  std::map<int, Attempt> running_;
  bool begins_ = false;      ///< an attempt has begun
  bool disk_hangs_ = false;  ///< a batch was given up
  int room_ = -1;
  const InterruptWatch* interrupt_ = nullptr;  ///< while run() does
};

}  // namespace

void limit(ExperimentOptions& options) {
  if (options.max_steps != 0 || options.target || options.time_limit != Duration::zero()) return;
  if (const auto* halving = std::get_if<AsyncHyperBand>(&options.scheduler))
    if (halving->stop_at_max) return;
  options.max_steps = kDefaultSteps;
  log_line("tune: no max_steps, target or time_limit: trials end at step %ld", kDefaultSteps);
}

Outcome run_experiment(Context ctx, const SearchSpace& space, const ExperimentOptions& options,
                       const SpawnTrial& spawn) {
  return Runner(ctx, space, options, spawn).run();
}

}  // namespace troupe::tune::internal
