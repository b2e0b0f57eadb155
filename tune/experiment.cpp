#include "troupe/tune/experiment.hpp"

#include "troupe/tune/internal/experiment_core.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

[[noreturn]] void reject(const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, "tune: " + why);
}

void check(const SearchSpace& space, const ExperimentOptions& o) {
  if (space.size() == 0)
    reject("the space has no parameter: add one, as in Space<Hp>{}.with(&Hp::lr, uniform(0, 1))");
  if (o.trials < 1) reject("trials must be at least 1");
  if (o.concurrent < 0) reject("concurrent must not be negative");
  if (o.max_failures < -1) reject("max_failures is -1 (endless) or a count");
  if (o.max_steps < 0) reject("max_steps must not be negative");
  if (o.save_every < 0) reject("save_every must not be negative");
  if (o.time_limit < Duration::zero()) reject("time_limit must not be negative");
  if (o.stop_grace < Duration::zero()) reject("stop_grace must not be negative");
  if (o.silence < Duration::zero()) reject("silence must not be negative");
  if (o.target && !std::isfinite(*o.target)) reject("target must be a number");
  for (const Point& point : o.starts) space.check(point);
  const auto* halving = std::get_if<AsyncHyperBand>(&o.scheduler);
  if (halving != nullptr && halving->stop_at_max && halving->max_steps && o.max_steps > 0 &&
      *halving->max_steps != o.max_steps) {
    reject("max_steps is " + std::to_string(o.max_steps) + " and AsyncHyperBand::max_steps is " +
           std::to_string(*halving->max_steps) + ": give one of them, or the same to both");
  }
}

}  // namespace

std::string_view name_of(TrialState state) noexcept {
  static constexpr std::string_view kNames[] = {"waiting", "running",   "holding", "leaving",
                                                "paused",  "completed", "stopped", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

namespace {

/// Makes the algorithms of an experiment with seeds of their own.
Answers answers_of(const SearchSpace& space, const ExperimentOptions& o) {
  check(space, o);
  std::uint64_t seed = o.seed;
  auto searcher = make_searcher(o.searcher, space, o.goal, splitmix64(seed));
  auto scheduler =
      make_scheduler(o.scheduler, {space, o.goal, o.trials, splitmix64(seed), o.max_steps});
  return {std::move(searcher), std::move(scheduler), space};
}

}  // namespace

Experiment::Core::Core(SearchSpace space, ExperimentOptions o)
    : options(std::move(o)),
      first_settings(settings_of(options)),
      program(first_settings),
      answers_(answers_of(space, options)) {
  tune::adopt(program, options);  // as a replay reads them
  board.name = options.name;
  board.metric = options.metric;
  board.goal = options.goal;
  board.space = std::move(space);
  board.scheduler = show(options.scheduler);
  board.searcher = show(options.searcher);
  board.seed = options.seed;
  show_settings();
}

/// Copies the options that may change to the board.
void Experiment::Core::show_settings() {
  board.planned = options.trials;
  board.slots =
      options.concurrent > 0 ? std::min(options.concurrent, options.trials) : options.trials;
  board.max_steps = options.max_steps;
}

std::int64_t Experiment::Core::micros(Time time) {
  if (!running) return now;  // the experiment's time has no zero yet
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(time - epoch).count();
  return std::max(std::min<std::int64_t>(since, kNever), now);  // times in the log never decrease
}

Experiment::Experiment(SearchSpace space, ExperimentOptions options)
    : core_(std::make_unique<Core>(std::move(space), std::move(options))) {}
Experiment::~Experiment() = default;
Experiment::Experiment(Experiment&&) noexcept = default;
Experiment& Experiment::operator=(Experiment&&) noexcept = default;

namespace {
Event input(Event::Kind kind, int trial, int attempt) {
  Event e;
  e.kind = kind;
  e.trial = trial;
  e.attempt = attempt;
  return e;
}
}  // namespace

void Experiment::begin(Time now) {
  if (core_->begun()) return;
  core_->epoch = now;
  core_->running = true;
  core_->feed(input(Event::Kind::begin, -1, 0));
}

void Experiment::reported(int trial, int attempt, const TrialReport& report, Time now) {
  Event e = input(Event::Kind::report, trial, attempt);
  e.micros = core_->micros(now);
  e.step = report.step;
  e.score = report.score;
  for (const auto& [name, value] : report.metrics) e.metrics[valid_utf8(name)] = value;
  e.can_save = report.can_save;
  if (core_->has_ended(trial, attempt)) return;
  const std::string refusal = core_->refusal(e);
  if (refusal.empty()) return core_->feed(e);
  core_->commands.emplace_back(Kill{trial, attempt});
  ended(trial, attempt, refusal, now);
}

void Experiment::saved(int trial, int attempt, const Checkpoint& checkpoint, Time now) {
  Event e = input(Event::Kind::save, trial, attempt);
  e.micros = core_->micros(now);
  e.checkpoint = {valid_utf8(checkpoint.key), valid_utf8(checkpoint.hash), checkpoint.bytes,
                  checkpoint.step};
  core_->feed(e);
}

void Experiment::restored(int trial, int attempt, const std::string& hash, Time now) {
  Event e = input(Event::Kind::restore, trial, attempt);
  e.micros = core_->micros(now);
  e.checkpoint.hash = valid_utf8(hash);
  core_->feed(e);
}

void Experiment::ended(int trial, int attempt, const std::string& error, Time now) {
  Event e = input(Event::Kind::end, trial, attempt);
  e.micros = core_->micros(now);
  e.ok = error.empty();
  e.text = valid_utf8(error);
  if (core_->has_ended(trial, attempt)) return;
  if (core_->end_waits(e)) return core_->waiting_ends_.push_back(std::move(e));
  core_->feed(e);
}

void Experiment::stored(const std::string& key, Time now) {
  Event e = input(Event::Kind::stored, -1, 0);
  e.micros = core_->micros(now);
  if (const auto known = core_->known(valid_utf8(key))) {
    e.checkpoint = *known;
    return core_->feed(e);
  }
  e.checkpoint.key = key;
  core_->commands.emplace_back(Drop{e.checkpoint});  // nobody needs it any more
}

void Experiment::missing(const std::string& key, const std::string& why, Time now) {
  Event e = input(Event::Kind::missing, -1, 0);
  e.micros = core_->micros(now);
  const auto known = core_->known(valid_utf8(key));
  if (!known) return;
  e.checkpoint = *known;
  e.text = valid_utf8(why);
  core_->feed(e);
}

void Experiment::lost(int trial, int attempt, const std::string& why, Time now) {
  if (core_->has_ended(trial, attempt)) return;
  Event e = input(Event::Kind::lost, trial, attempt);
  e.micros = core_->micros(now);
  e.text = valid_utf8(why);
  if (core_->end_waits(e)) return core_->waiting_ends_.push_back(std::move(e));
  core_->feed(e);
}

void Experiment::room(int trials, Time now) {
  Event e = input(Event::Kind::room, -1, 0);
  e.micros = core_->micros(now);
  e.room = std::max(trials, 0);
  core_->feed(e);
}

void Experiment::wall_clock(Time now, std::int64_t unix_micros) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch());
  core_->wall_zero = unix_micros - since.count();
}

void Experiment::tick(Time now) {
  Event e = input(Event::Kind::tick, -1, 0);
  e.micros = core_->micros(now);
  core_->board.seconds = e.seconds();
  core_->feed(e);
}

std::optional<Time> Experiment::next_tick() const {
  const auto at = core_->next_tick();
  if (!at || core_->board.over) return std::nullopt;
  return core_->epoch + std::chrono::microseconds(*at);
}

Result<void> Experiment::change(const std::map<std::string, double>& options, Time now) {
  const Settings known = settings_of(core_->options);
  for (const auto& [name, value] : options) {
    if (known.count(name) == 0)
      return Error(Code::invalid_argument, "tune: " + valid_utf8(name) +
                                               " is no option that may change while a study runs");
    if (std::isnan(value) && name != "target")
      return Error(Code::invalid_argument, "tune: " + name + " must be a number");
  }
  const auto trials = options.find("trials");
  if (trials != options.end() && std::holds_alternative<Pbt>(core_->options.scheduler))
    return Error(Code::invalid_argument,
                 "tune: the size of a population stays: trials may not change");
  if (trials != options.end() && !(trials->second >= 1))
    return Error(Code::invalid_argument, "tune: trials must be at least 1");
  Event e = input(Event::Kind::set, -1, 0);
  e.micros = core_->micros(now);
  e.metrics = options;
  e.text = "user";
  core_->feed(e);
  return {};
}

Result<void> Experiment::add(const Point& point, Time now) {
  try {
    core_->board.space.check(point);
  } catch (const InvalidArgument& error) {
    return Error(Code::invalid_argument, error.message());
  }
  if (core_->board.over || !core_->begun())
    return Error(Code::invalid_argument,
                 "tune: the study does not run, so that no point can be added");
  if (core_->board.created() >= core_->options.trials &&
      std::holds_alternative<Pbt>(core_->options.scheduler))
    return Error(Code::invalid_argument, "tune: the population is complete: no point can be added");
  Event e = input(Event::Kind::add, -1, 0);
  e.micros = core_->micros(now);
  e.params = point;
  core_->feed(e);
  return {};
}

namespace {
/// Refuses a trial that never existed or is over.
Result<void> check_live(const Board& board, int trial) {
  const std::string who = "tune: trial " + std::to_string(trial);
  if (trial < 0 || trial >= board.created())
    return Error(Code::invalid_argument, who + " does not exist");
  const TrialInfo* t = board.find(trial);
  if (t == nullptr) return Error(Code::invalid_argument, who + " is over");
  if (is_over(t->state))
    return Error(Code::invalid_argument, who + " is over: it " + std::string(name_of(t->state)));
  return {};
}

/// Refuses a study that cannot be paused or resumed, or is so already.
Result<void> check_pause(const Board& board, bool begun, std::optional<int> trial, bool pause) {
  if (board.over) return Error(Code::invalid_argument, "tune: the study is over");
  if (!begun) return Error(Code::invalid_argument, "tune: the study does not run");
  if (trial)
    if (auto live = check_live(board, *trial); !live) return live;
  const bool paused = trial ? board.find(*trial)->paused_by_user : board.paused;
  if (paused != pause) return {};
  const std::string who = trial ? "trial " + std::to_string(*trial) : std::string("the study");
  if (pause) return Error(Code::invalid_argument, "tune: " + who + " is paused already");
  if (trial && board.paused)
    return Error(Code::invalid_argument,
                 "tune: " + who + " is not paused, but the study is: resume that");
  std::string paused_trials;
  if (!trial)
    for (const TrialInfo& t : board.trials)
      if (t.paused_by_user)
        paused_trials += (paused_trials.empty() ? "" : ", ") + std::to_string(t.number);
  return Error(Code::invalid_argument,
               "tune: " + who + " is not paused" +
                   (paused_trials.empty()
                        ? std::string()
                        : ", but of its trials " + paused_trials + ": resume these by number"));
}
}  // namespace

Result<void> Experiment::pause(std::optional<int> trial, Time now) {
  if (auto fine = check_pause(core_->board, core_->begun(), trial, true); !fine) return fine;
  Event e = input(Event::Kind::pause, trial.value_or(-1), 0);
  e.micros = core_->micros(now);
  core_->feed(std::move(e));
  return {};
}

Result<void> Experiment::resume(std::optional<int> trial, Time now) {
  if (auto fine = check_pause(core_->board, core_->begun(), trial, false); !fine) return fine;
  Event e = input(Event::Kind::resume, trial.value_or(-1), 0);
  e.micros = core_->micros(now);
  core_->feed(std::move(e));
  return {};
}

Result<void> Experiment::stop(int trial, Time now) {
  if (auto live = check_live(core_->board, trial); !live) return live;
  Event e = input(Event::Kind::stop, trial, 0);
  e.micros = core_->micros(now);
  core_->feed(e);
  return {};
}

void Experiment::cancel(Time now) {
  Event e = input(Event::Kind::cancel, -1, 0);
  e.micros = core_->micros(now);
  core_->feed(e);
}

void Experiment::interrupted(Time now) {
  // The experiment's time continues from the last record: the downtime does not count.
  core_->epoch = now - std::chrono::microseconds(core_->now);
  core_->running = true;
  if (!core_->new_settings.empty()) {
    Event change = input(Event::Kind::set, -1, 0);
    change.micros = core_->now;
    change.metrics = std::exchange(core_->new_settings, {});
    change.text = kProgram;
    core_->feed(change);
  }
  if (!core_->begun()) return begin(now);
  Event e = input(Event::Kind::interrupt, -1, 0);
  e.micros = core_->now;
  core_->feed(e);
}

std::optional<Point> Experiment::next_point() const {
  return core_->next_point();
}
std::vector<Command> Experiment::take_commands() {
  return std::exchange(core_->commands, {});
}
std::vector<std::string> Experiment::take_log() {
  std::vector<std::string> lines;
  if (core_->header_due && !core_->log.empty()) {
    core_->header_due = false;
    lines.push_back(core_->header());
  }
  core_->next_event += core_->log.size();
  for (const Event& event : std::exchange(core_->log, {}))
    lines.push_back(to_json(event, core_->board.space));
  return lines;
}
bool Experiment::needs(const std::string& key) const {
  const auto known = core_->known(key);
  return known && core_->is_stored(*known);
}
StudyBatch Experiment::take_batch() {
  return core_->take_batch();
}
std::string Experiment::fingerprint() const {
  return core_->fingerprint();
}
std::string Experiment::with_store(const std::string& build) {
  core_->durable = true;
  const bool newly_mixed = core_->mixed && core_->described.find("\"mixed\"") == std::string::npos;
  if (newly_mixed) core_->header_due = true;
  if (build.empty() || build == core_->build) return core_->build;
  core_->header_due = true;
  return std::exchange(core_->build, build);
}
void Experiment::without_log() {
  core_->keep_log = false;
}
bool Experiment::over() const noexcept {
  return core_->board.over;
}
const Board& Experiment::board() const noexcept {
  return core_->board;
}
void Experiment::set_clock(Time now) {
  core_->board.seconds = static_cast<double>(core_->micros(now)) * 1e-6;
}

}  // namespace troupe::tune
