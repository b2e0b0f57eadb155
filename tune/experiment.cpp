#include "troupe/tune/experiment.hpp"

#include "troupe/tune/internal/experiment_core.hpp"
#include "troupe/tune/internal/json.hpp"

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
  if (o.target && !std::isfinite(*o.target)) reject("target must be a number");
  for (const Point& point : o.starts) space.check(point);
}

}  // namespace

std::string_view name_of(TrialState state) noexcept {
  static constexpr std::string_view names[] = {"waiting", "running",   "holding", "leaving",
                                               "paused",  "completed", "stopped", "failed"};
  return names[static_cast<std::size_t>(state)];
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
  scheduler_ = make_scheduler(options.scheduler,
                              {board.space, options.goal, options.trials, splitmix64(seed)});
}

std::string Experiment::Core::header() const {
  JsonObject out;
  out.text("event", "experiment").whole("version", 1).text("name", board.name);
  out.text("metric", board.metric).text("goal", options.goal.larger() ? "maximize" : "minimize");
  out.raw("space", json_array(board.space.parameters, [](const Parameter& p) {
            return JsonObject().text("name", p.name).text("domain", show(p.domain)).str();
          }));
  out.whole("trials", options.trials).text("scheduler", board.scheduler);
  out.text("searcher", board.searcher).whole("concurrent", options.concurrent);
  out.whole("max_failures", options.max_failures).flag("fail_fast", options.fail_fast);
  out.whole("max_steps", options.max_steps);
  if (options.target) out.number("target", *options.target);
  out.number("time_limit", std::chrono::duration<double>(options.time_limit).count());
  out.whole("save_every", options.save_every).flag("save_at_end", options.save_at_end);
  out.raw("seed", std::to_string(options.seed));
  out.raw("starts",
          json_array(options.starts, [](const Point& p) { return json_array(p, json_number); }));
  return out.str();
}

std::int64_t Experiment::Core::micros(Time time) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(time - epoch).count();
  return std::max<std::int64_t>(since, now);  // the log never goes back
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
  core_->epoch = now;
  core_->apply(input(Event::Kind::begin, -1, 0));
}

void Experiment::reported(int trial, int attempt, const TrialReport& report, Time now) {
  Event e = input(Event::Kind::report, trial, attempt);
  e.micros = core_->micros(now);
  e.step = report.step;
  e.score = report.score;
  e.metrics = report.metrics;
  e.can_save = report.can_save;
  core_->apply(e);
}

void Experiment::saved(int trial, int attempt, Checkpoint checkpoint, Time now) {
  Event e = input(Event::Kind::save, trial, attempt);
  e.micros = core_->micros(now);
  e.checkpoint = std::move(checkpoint);
  core_->apply(e);
}

void Experiment::restored(int trial, int attempt, const std::string& hash, Time now) {
  Event e = input(Event::Kind::restore, trial, attempt);
  e.micros = core_->micros(now);
  e.checkpoint.hash = hash;
  core_->apply(e);
}

void Experiment::ended(int trial, int attempt, const std::string& error, Time now) {
  Event e = input(Event::Kind::end, trial, attempt);
  e.micros = core_->micros(now);
  e.ok = error.empty();
  e.text = error;
  core_->apply(e);
}

void Experiment::tick(Time now) {
  Event e = input(Event::Kind::tick, -1, 0);
  e.micros = core_->micros(now);
  core_->board.seconds = e.seconds();
  core_->apply(e);
}

void Experiment::cancel(Time now) {
  Event e = input(Event::Kind::cancel, -1, 0);
  e.micros = core_->micros(now);
  core_->apply(e);
}

void Experiment::interrupted(Time now) {
  core_->epoch = now - std::chrono::microseconds(core_->now);  // the clock goes on where it stopped
  Event e = input(Event::Kind::interrupt, -1, 0);
  e.micros = core_->now;
  core_->apply(e);
}

std::vector<Command> Experiment::take_commands() {
  return std::exchange(core_->commands, {});
}
std::vector<std::string> Experiment::take_log() {
  return std::exchange(core_->log, {});
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
  if (lines.empty()) return bad(0, "the log is empty");
  if (lines[0] != core.header()) {
    return bad(0, "it describes another experiment: " + lines[0] + " is not " + core.header());
  }
  std::size_t expected = 0;  // of core.log: lines that replay has produced and the file must have
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (expected < core.log.size()) {
      if (core.log[expected++] == lines[i]) continue;
      if (i + 1 == lines.size() && !event_from_json(lines[i])) break;  // torn by a crash
      return bad(i, "replay gives " + core.log[expected - 1] + ", the log says " + lines[i]);
    }
    const auto event = event_from_json(lines[i]);
    if (!event && i + 1 == lines.size()) break;
    if (!event) return bad(i, event.error().message());
    if (!is_input(event->kind)) return bad(i, "nothing before it leads to " + lines[i]);
    if (event->micros < core.now) return bad(i, "time runs backwards");
    core.log.clear();
    core.apply(*event);
    if (i == 1 && !core.log.empty()) core.log.erase(core.log.begin());  // the header
    if (core.log.empty()) return bad(i, "it has no effect: " + lines[i]);
    if (core.log[0] != lines[i]) return bad(i, "replay reads it as " + core.log[0]);
    expected = 1;
  }
  core.log.erase(core.log.begin(), core.log.begin() + static_cast<std::ptrdiff_t>(expected));
  core.commands.clear();
  return experiment;
}

}  // namespace troupe::tune
