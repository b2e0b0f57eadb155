#include "troupe/tune/optimize.hpp"

#include "troupe/actors/loop_actor/loop_controller.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/tune/internal/text.hpp"
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

constexpr const char* kLog = "/experiment.jsonl";
constexpr std::size_t kNoteLimit = 10'000;
/// How often the live view is updated when no trial reports.
constexpr Duration kRepaint = std::chrono::milliseconds(100);

std::string hexadecimal(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

/// Sets `concurrent` to the number of the cluster's CPUs (at least 1) if it is 0.
ExperimentOptions with_slots(ExperimentOptions options, const Context& ctx) {
  if (options.concurrent != 0) return options;
  double cpus = 0;
  for (const NodeInfo& node : ctx.cluster().nodes) cpus += node.cpus;
  options.concurrent =
      std::clamp(static_cast<int>(std::min(cpus, 1e6)), 1, std::max(options.trials, 1));
  return options;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
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
      : ctx_(ctx),
        options_(with_slots(options, ctx)),
        spawn_(spawn),
        experiment_(space, options_),
        view_(terminal_of(STDOUT_FILENO)) {
    if (options.results.empty()) {
      experiment_.without_log();
    } else {
      log_.emplace(options.results + kLog, LogFile::Mode::create);
    }
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {
    for (const auto& [number, attempt] : running_) attempt.trial.kill();
  }

  Outcome run() {
    const double began = unix_seconds();
    experiment_.begin(steady_now());
    while (settle()) watch();
    const Board& board = experiment_.board();
    const std::string no_model = why_no_model(board);
    if (!no_model.empty()) add_note(no_model);
    if (log_) write_files(board, began);
    if (options_.show) print(view_.finish(board));
    if (!board.error.empty()) throw InvalidArgument(Code::invalid_argument, "tune: " + board.error);
    Outcome outcome{board, {}, no_model, {}, {notes_.begin(), notes_.end()}};
    if (no_model.empty()) outcome.model = stored_.at(board.best_report->checkpoint->key);
    for (const TrialInfo& t : board.trials) {
      if (t.checkpoint) outcome.models[t.number] = stored_.at(t.checkpoint->key);
    }
    return outcome;
  }

 private:
  using Heard = LoopController<TrialMessage>::Heard;
  struct Attempt {
    int number = 0;
    TrialHandle trial;
    long step = 0;
  };

  /// Carries out the commands that follow from the last inputs, appends to the log and updates the
  /// view. Returns false when the experiment is over.
  bool settle() {
    experiment_.tick(steady_now());
    say_what_repeats();
    for (const Command& command : experiment_.take_commands()) carry_out(command);
    const std::vector<std::string> lines = experiment_.take_log();
    if (log_ && !lines.empty()) log_->append(lines);
    if (options_.show) {
      experiment_.set_clock(steady_now());
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
      if (is_running(end->trial, end->attempt)) finish(end->trial, "killed");
    } else if (const auto* drop = std::get_if<Drop>(&command)) {
      stored_.erase(drop->checkpoint.key);
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
    if (start.from) {
      const auto found = stored_.find(start.from->key);
      if (found == stored_.end())
        return experiment_.ended(start.trial, start.attempt,
                                 "checkpoint " + start.from->key + " is lost", steady_now());
      setup.start = found->second;
    }
    Attempt attempt;
    attempt.number = start.attempt;
    attempt.trial = spawn_(setup, start.params);
    loops_.follow(start.trial, attempt.trial.take);
    running_[start.trial] = std::move(attempt);
  }

  template <class To>
  void reply(const To& to, Verdict verdict) {
    if (is_running(to.trial, to.attempt)) running_[to.trial].trial.reply(verdict);
  }

  /// Ends an attempt: kills its actor and tells the experiment. The process may live a moment
  /// longer.
  void finish(int trial, const std::string& error) {
    const Attempt attempt = std::move(running_[trial]);
    running_.erase(trial);
    loops_.forget(trial);
    attempt.trial.kill();
    experiment_.ended(trial, attempt.number, error, steady_now());
  }

  /// Blocks until a message of any trial arrives or a tick is due, then feeds all messages that are
  /// there to the experiment.
  void watch() {
    Time until = options_.show ? steady_now() + kRepaint : Time::max();
    if (const auto due = experiment_.next_tick()) until = std::min(until, *due);
    hear(loops_.next(until));
    while (hear(loops_.next({}))) {
    }
  }

  bool hear(const std::optional<Heard>& heard) {
    if (!heard) return false;
    const auto found = running_.find(heard->from);
    if (found == running_.end()) return true;
    if (heard->death) {
      finish(heard->from, heard->death->message());
      return true;
    }
    for (const TrialMessage& message : heard->events)
      if (!happened(heard->from, found->second, message)) break;
    return true;
  }

  /// Feeds one message to the experiment. Returns false when it was the attempt's last one.
  bool happened(int trial, Attempt& attempt, const TrialMessage& message) {
    using Kind = TrialMessage::Kind;
    const Time now = steady_now();
    switch (message.kind) {
      case Kind::restored:
        experiment_.restored(trial, attempt.number, hexadecimal(message.hash), now);
        break;
      case Kind::reported:
        attempt.step = message.metrics.step;
        experiment_.reported(
            trial, attempt.number,
            {message.metrics.step, message.metrics.loss, message.metrics.extra, message.can_save},
            now);
        break;
      case Kind::saved: {
        const std::string key = "trial-" + std::to_string(trial) + "-" +
                                std::to_string(attempt.number) + "-" +
                                std::to_string(message.saved.step);
        stored_[key] = message.saved;
        experiment_.saved(
            trial, attempt.number,
            {key, hexadecimal(message.saved.hash), message.saved.bytes, message.saved.step}, now);
        break;
      }
      case Kind::noted: noted(trial, message.error); break;
      case Kind::ended: finish(trial, message.error); return false;
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
  void write_files(const Board& board, double began) {
    try {
      write_results(options_.results, board, began, options_.results + kLog);
    } catch (const Error& error) {
      add_note("not all of the results were written: " + error.message());
      complain(notes_.back());
    }
  }

  /// Copies `repeated` events to the notes, and to stderr when there is no live view that shows
  /// them.
  void say_what_repeats() {
    const Board& board = experiment_.board();
    const std::uint64_t fresh =
        std::min<std::uint64_t>(board.events_seen - events_seen_, board.events.size());
    events_seen_ = board.events_seen;
    for (auto e = board.events.end() - static_cast<std::ptrdiff_t>(fresh); e != board.events.end();
         ++e) {
      if (e->kind != Event::Kind::repeated) continue;
      notes_.push_back(plain_words(*e, board.space, board.metric));
      if (!options_.show) complain("tune: " + notes_.back());
    }
  }

  /// Returns why Best::restore() has nothing to load, or an empty text.
  std::string why_no_model(const Board& board) const {
    if (!board.best_report) return "no trial reported a score, so there is no model";
    if (board.best_report->checkpoint && stored_.count(board.best_report->checkpoint->key) > 0)
      return {};
    return "no report came with a model that was saved (the best one is trial " +
           std::to_string(board.best) + "'s at step " + std::to_string(board.best_step()) +
           "), so there is none to restore: call t.report(score, model), or w.checkpoint(model) "
           "before w.report() in a gang";
  }

  Context ctx_;
  const ExperimentOptions options_;
  const SpawnTrial& spawn_;
  Experiment experiment_;
  LiveView view_;
  std::deque<std::string> notes_;
  std::uint64_t events_seen_ = 0;
  std::optional<LogFile> log_;
  std::map<int, Attempt> running_;
  LoopController<TrialMessage> loops_;
  std::map<std::string, train::SavedModel> stored_;
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
