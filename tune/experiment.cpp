#include "troupe/tune/experiment.hpp"

#include "troupe/tune/internal/experiment_core.hpp"
#include "troupe/tune/internal/json.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

[[noreturn]] void reject(const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, "tune: " + why);
}

void check(const SearchSpace& space, const ExperimentOptions& o) {
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

Experiment::Core::Core(SearchSpace space, ExperimentOptions o) : options(std::move(o)) {
  check(space, options);
  board.name = options.name;
  board.metric = options.metric;
  board.goal = options.goal;
  board.space = std::move(space);
  board.scheduler = show(options.scheduler);
  board.searcher = show(options.searcher);
  board.seed = options.seed;
  board.planned = options.trials;
  board.slots =
      options.concurrent > 0 ? std::min(options.concurrent, options.trials) : options.trials;
  board.max_steps = options.max_steps;
  std::uint64_t seed = options.seed;
  searcher_ = make_searcher(options.searcher, board.space, options.goal, splitmix64(seed));
  scheduler_ = make_scheduler(options.scheduler, {board.space, options.goal, options.trials,
                                                  splitmix64(seed), options.max_steps});
}

std::string Experiment::Core::header() const {
  Json out;
  out["event"] = "experiment";
  out["version"] = 2;
  out["name"] = board.name;
  out["metric"] = board.metric;
  out["goal"] = options.goal.larger() ? "maximize" : "minimize";
  Json& parameters = out["space"] = Json::array();
  for (const Parameter& p : board.space.parameters)
    parameters.push_back({{"name", p.name}, {"domain", show(p.domain)}});
  out["trials"] = options.trials;
  out["scheduler"] = board.scheduler;
  out["searcher"] = board.searcher;
  out["concurrent"] = options.concurrent;
  out["max_failures"] = options.max_failures;
  out["fail_fast"] = options.fail_fast;
  out["max_steps"] = options.max_steps;
  if (options.target) out["target"] = *options.target;
  out["time_limit"] = std::chrono::duration<double>(options.time_limit).count();
  out["stop_grace"] = std::chrono::duration<double>(options.stop_grace).count();
  out["save_every"] = options.save_every;
  out["save_at_end"] = options.save_at_end;
  out["seed"] = options.seed;
  out["starts"] = options.starts;
  return json_line(out);
}

std::int64_t Experiment::Core::micros(Time time) {
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
  core_->apply(input(Event::Kind::begin, -1, 0));
}

void Experiment::reported(int trial, int attempt, const TrialReport& report, Time now) {
  Event e = input(Event::Kind::report, trial, attempt);
  e.micros = core_->micros(now);
  e.step = report.step;
  e.score = report.score;
  for (const auto& [name, value] : report.metrics) e.metrics[valid_utf8(name)] = value;
  e.can_save = report.can_save;
  const std::string refusal = core_->refusal(e);
  if (refusal.empty()) return core_->apply(e);
  core_->commands.emplace_back(Kill{trial, attempt});
  ended(trial, attempt, refusal, now);
}

void Experiment::saved(int trial, int attempt, const Checkpoint& checkpoint, Time now) {
  Event e = input(Event::Kind::save, trial, attempt);
  e.micros = core_->micros(now);
  e.checkpoint = {valid_utf8(checkpoint.key), valid_utf8(checkpoint.hash), checkpoint.bytes,
                  checkpoint.step};
  core_->apply(e);
}

void Experiment::restored(int trial, int attempt, const std::string& hash, Time now) {
  Event e = input(Event::Kind::restore, trial, attempt);
  e.micros = core_->micros(now);
  e.checkpoint.hash = valid_utf8(hash);
  core_->apply(e);
}

void Experiment::ended(int trial, int attempt, const std::string& error, Time now) {
  Event e = input(Event::Kind::end, trial, attempt);
  e.micros = core_->micros(now);
  e.ok = error.empty();
  e.text = valid_utf8(error);
  core_->apply(e);
}

void Experiment::lost(int trial, int attempt, const std::string& why, Time now) {
  Event e = input(Event::Kind::lost, trial, attempt);
  e.micros = core_->micros(now);
  e.text = valid_utf8(why);
  core_->apply(e);
}

void Experiment::room(int trials, Time now) {
  Event e = input(Event::Kind::room, -1, 0);
  e.micros = core_->begun() ? core_->micros(now) : 0;
  e.room = std::max(trials, 0);
  core_->apply(e);
}

void Experiment::tick(Time now) {
  Event e = input(Event::Kind::tick, -1, 0);
  e.micros = core_->micros(now);
  core_->board.seconds = e.seconds();
  core_->apply(e);
}

std::optional<Time> Experiment::next_tick() const {
  const auto at = core_->next_tick();
  if (!at || core_->board.over) return std::nullopt;
  return core_->epoch + std::chrono::microseconds(*at);
}

void Experiment::cancel(Time now) {
  Event e = input(Event::Kind::cancel, -1, 0);
  e.micros = core_->micros(now);
  core_->apply(e);
}

void Experiment::interrupted(Time now) {
  if (!core_->begun()) return begin(now);
  // The experiment's time continues from the last record: the downtime does not count.
  core_->epoch = now - std::chrono::microseconds(core_->now);
  Event e = input(Event::Kind::interrupt, -1, 0);
  e.micros = core_->now;
  core_->apply(e);
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
  for (const Event& event : std::exchange(core_->log, {})) lines.push_back(to_json(event));
  return lines;
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

Result<Experiment> Experiment::restore(SearchSpace space, ExperimentOptions options,
                                       std::span<const std::string> lines) {
  Experiment experiment(std::move(space), std::move(options));
  Core& core = *experiment.core_;
  auto bad = [](std::size_t line, const std::string& why) {
    return Error(Code::invalid_argument,
                 "the experiment's log, line " + std::to_string(line + 1) + ": " + why);
  };
  const std::string header = core.header();
  if (lines.empty()) return experiment;
  if (lines[0] != header) {
    if (lines.size() == 1 && header.starts_with(lines[0])) return experiment;  // torn by a crash
    return bad(0, "it describes another experiment: " + lines[0] + " is not " + header);
  }
  core.header_due = false;
  std::size_t expected = 0;  // how many records of core.log have been found in the file
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (expected < core.log.size()) {
      const std::string line = to_json(core.log[expected]);
      if (line != lines[i]) {
        if (i + 1 == lines.size() && line.starts_with(lines[i])) break;  // torn by a crash
        return bad(i, "replay gives " + line + ", the log says " + lines[i]);
      }
      ++expected;
      continue;
    }
    const auto event = event_from_json(lines[i]);
    if (!event && i + 1 == lines.size()) break;
    if (!event) return bad(i, event.error().message());
    if (!is_input(event->kind)) return bad(i, "nothing before it leads to " + lines[i]);
    if (event->micros < core.now) return bad(i, "time runs backwards");
    core.log.clear();
    core.apply(*event);
    expected = 1;
    if (core.log.empty()) return bad(i, "it has no effect: " + lines[i]);
    if (to_json(core.log[0]) != lines[i])
      return bad(i, "replay reads it as " + to_json(core.log[0]));
  }
  core.log.erase(core.log.begin(), core.log.begin() + static_cast<std::ptrdiff_t>(expected));
  core.commands.clear();
  return experiment;
}

}  // namespace troupe::tune
