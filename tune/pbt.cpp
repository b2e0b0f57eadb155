#include "troupe/tune/internal/schedulers.hpp"
#include "troupe/tune/internal/streams.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::tune {
namespace {

void check(const Pbt& o, const SchedulerSetup& setup) {
  if (o.perturb_every < 1) refuse("Pbt", "perturb_every must be at least 1 step");
  if (o.burn_in < 0) refuse("Pbt", "burn_in must not be negative");
  if (!(o.quantile > 0 && o.quantile <= 0.5))
    refuse("Pbt", "quantile must be above 0 and at most 0.5");
  if (!(o.resample >= 0 && o.resample <= 1)) refuse("Pbt", "resample is a probability");
  if (!(o.grow > 0 && o.shrink > 0 && std::isfinite(o.grow) && std::isfinite(o.shrink)))
    refuse("Pbt", "the factors grow and shrink must be numbers above 0");
  if (setup.trials < 2) refuse("Pbt", "a population needs at least 2 trials");
}

/// Makes the decision that refuses the program: it would have to copy a trial that reports without
/// a model.
Decision without_model(int reporter, int trial, long step) {
  Decision decision{.trial = reporter, .action = Decision::Action::refuse};
  decision.why = "population-based training copies models, and trial " + std::to_string(trial) +
                 " reported step " + std::to_string(step) +
                 " without one: call t.report(score, model), or w.checkpoint(model) before "
                 "w.report() in a gang";
  return decision;
}

}  // namespace

PbtScheduler::PbtScheduler(const Pbt& options, const SchedulerSetup& setup)
    : options_(options),
      space_(setup.space),
      goal_(setup.goal),
      population_(setup.trials),
      seed_(setup.seed) {
  check(options, setup);
  next_sync_ = std::max(options.perturb_every, options.burn_in);
}

void PbtScheduler::created(int trial, const Point& params) {
  members_[trial].params = params;
}

void PbtScheduler::observe(const Report& report) {
  Member& me = members_[report.trial];
  me.can_save = report.can_save;
  me.offered |= report.can_save;
  me.last_step = report.step;
  me.sick = std::isnan(report.score);
  // A step that a retry repeats lies before the barrier that the member has passed.
  me.due = options_.synchronous ? report.step >= next_sync_ && report.step > me.last_perturb
                                : report.step >= options_.burn_in &&
                                      report.step - me.last_perturb >= options_.perturb_every;
  if (!me.due) return;
  me.has_score = true;
  me.gain = me.sick ? -std::numeric_limits<double>::infinity() : goal_.gain(report.score);
  if (!options_.synchronous || !me.offered) return;
  me.held = true;
  me.saved = me.can_save && !me.sick;
}

void PbtScheduler::decide(const Report& report, std::vector<Decision>& out) const {
  const Member& me = members_.at(report.trial);
  if (!me.due) return out.push_back({.trial = report.trial});
  if (!options_.synchronous) return decide_alone(report, out);
  if (!me.offered) return out.push_back(without_model(report.trial, report.trial, report.step));
  out.push_back({.trial = report.trial, .action = Decision::Action::hold, .save = me.can_save});
  decide_holds(out);
}

void PbtScheduler::decided(const std::vector<Decision>& decisions) {
  using Action = Decision::Action;
  for (const Decision& d : decisions) {
    if (!options_.synchronous || (d.action != Action::resume && d.action != Action::exploit))
      continue;
    barrier_passed();
    break;
  }
  for (const Decision& d : decisions) {
    Member& me = members_[d.trial];
    if (d.action == Action::exploit) {
      const Member& from = members_[d.donor];
      me.params = d.params;
      me.last_perturb = from.last_perturb;
      me.last_step = from.last_step;
      me.saved = me.sick = false;
    } else if (me.due && !options_.synchronous) {
      me.last_perturb = me.last_step;
      me.saved = d.save;
    }
    me.due = false;
  }
}

/// Decides about one trial in the asynchronous mode, as Ray's _checkpoint_or_exploit. A sick member
/// exploits a donor whatever its own quantile is.
void PbtScheduler::decide_alone(const Report& report, std::vector<Decision>& out) const {
  const int trial = report.trial;
  const Member& me = members_.at(trial);
  const Quantiles q = quantiles();
  Decision decision{.trial = trial};
  const bool top = std::find(q.top.begin(), q.top.end(), trial) != q.top.end();
  const bool bottom = std::find(q.bottom.begin(), q.bottom.end(), trial) != q.bottom.end();
  if (bottom && !me.offered) return out.push_back(without_model(trial, trial, report.step));
  if (bottom && !q.top.empty() && std::none_of(q.top.begin(), q.top.end(), [this](int donor) {
        return members_.at(donor).offered;
      })) {
    return out.push_back(without_model(trial, q.top.front(), members_.at(q.top.front()).last_step));
  }
  if ((bottom || me.sick) && exploit(trial, q.top, decision)) {
    out.push_back(std::move(decision));
    return;
  }
  decision.save = me.can_save && (top || options_.save_all) && !me.sick;
  if (report.others_wait && me.can_save) decision.action = Decision::Action::yield;
  out.push_back(std::move(decision));
}

/// Returns the best and the worst q of the n live members with a score, each best first. q is
/// ceil(n * quantile), or n / 2 when that would be more than half.
PbtScheduler::Quantiles PbtScheduler::quantiles() const {
  std::vector<std::pair<double, int>> best_first;
  for (const auto& [trial, m] : members_) {
    if (m.has_score && !m.done) best_first.emplace_back(-m.gain, trial);
  }
  std::sort(best_first.begin(), best_first.end());
  std::vector<int> order;
  for (const auto& [loss, trial] : best_first) order.push_back(trial);
  const std::size_t n = order.size();
  if (n <= 1) return {};
  auto q = static_cast<std::size_t>(std::ceil(static_cast<double>(n) * options_.quantile));
  if (2 * q > n) q = n / 2;
  return {{order.begin(), order.begin() + static_cast<std::ptrdiff_t>(q)},
          {order.end() - static_cast<std::ptrdiff_t>(q), order.end()}};
}

/// Returns the members of `top` that may be donors: their gain is finite, and with save_all they
/// have a checkpoint.
std::vector<int> PbtScheduler::donors(const std::vector<int>& top) const {
  std::vector<int> fit;
  for (const int trial : top) {
    const Member& m = members_.at(trial);
    if (!m.sick && std::isfinite(m.gain) && (m.saved || !options_.save_all)) fit.push_back(trial);
  }
  return fit;
}

/// Draws a donor and fills the decision with an exploit. Returns false, with the decision
/// unchanged, when no donor can be copied. As in Ray, the draw may choose a donor without a
/// checkpoint (only without save_all); the trial then goes on.
bool PbtScheduler::exploit(int trial, const std::vector<int>& top, Decision& decision) const {
  const std::vector<int> fit = donors(top);
  if (fit.empty()) return false;
  const Member& me = members_.at(trial);
  Random random = stream(seed_, Purpose::exploit, static_cast<std::uint64_t>(trial),
                         static_cast<std::uint64_t>(me.last_step));
  const int donor = fit[random.below(fit.size())];
  const Member& from = members_.at(donor);
  if (!from.saved || !me.offered || donor == trial) return false;
  decision.action = Decision::Action::exploit;
  decision.donor = donor;
  decision.donor_params = from.params;
  decision.params = explore(from.params, random);
  decision.why =
      (me.sick ? "its score is no number, trial "
               : "score " + number(goal_.gain(me.gain)) + " is in the bottom quantile, trial ") +
      std::to_string(donor) + " has " + number(goal_.gain(from.gain));
  return true;
}

/// Multiplies a number by `grow` or `shrink`. In a domain with steps it moves by at least one step,
/// since rounding would otherwise undo the change of a small whole number.
double PbtScheduler::moved(const Domain& domain, double value, Random& random) const {
  const double factor = random.chance(0.5) ? options_.grow : options_.shrink;
  const double exact = value * factor;
  const double next = domain.kind == Domain::Kind::integer ? std::trunc(exact) : exact;
  if (!options_.clamp) return next;
  const double kept = clamp(domain, next);
  if (domain.step <= 0 || exact == value || kept != clamp(domain, value)) return kept;
  return clamp(domain, value + (exact > value ? domain.step : -domain.step));
}

Point PbtScheduler::explore(const Point& donor, Random& random) const {
  Point params = donor;
  for (std::size_t i = 0; i < space_.size(); ++i) {
    const Domain& domain = space_.parameters[i].domain;
    const bool anew = random.chance(options_.resample);
    if (anew) {
      params[i] = sample(domain, random);
    } else if (domain.kind == Domain::Kind::choice) {
      params[i] = clamp(domain, params[i] + (random.chance(0.5) ? 1 : -1));
    } else {
      params[i] = moved(domain, params[i], random);
    }
  }
  return params;
}

void PbtScheduler::observe(const TrialOver& end) {
  Member& me = members_[end.trial];
  me.done = true;
  me.held = false;
}

/// Lowers the number of trials that the barrier waits for, and may open it thereby.
void PbtScheduler::observe_population(int trials) {
  population_ = trials;
}

/// Decides again at the next interval after the step.
void PbtScheduler::kept(int trial, const Point& params, long step) {
  Member& me = members_[trial];
  me.params = params;
  me.last_step = step;
  me.last_perturb = std::min(me.last_perturb, step);
}

/// Opens the barrier of the synchronous mode if every trial of the population is on hold or done,
/// and at least one is on hold.
void PbtScheduler::decide_holds(std::vector<Decision>& out) const {
  if (!options_.synchronous) return;
  int present = 0;
  bool anybody = false;
  for (const auto& [trial, m] : members_) {
    present += m.done || m.held;
    anybody |= m.held;
  }
  if (anybody && present >= population_) pass_barrier(out);
}

/// Decides about all members on hold. Exploits come after all other decisions, as in Ray.
void PbtScheduler::pass_barrier(std::vector<Decision>& out) const {
  const Quantiles q = quantiles();
  std::vector<Decision> copies;
  for (const auto& [trial, me] : members_) {
    if (!me.held) continue;
    Decision decision{.trial = trial, .action = Decision::Action::resume};
    const bool bottom = std::find(q.bottom.begin(), q.bottom.end(), trial) != q.bottom.end();
    if ((bottom || me.sick) && exploit(trial, q.top, decision)) {
      copies.push_back(std::move(decision));
    } else {
      out.push_back(std::move(decision));
    }
  }
  out.insert(out.end(), copies.begin(), copies.end());
}

void PbtScheduler::barrier_passed() {
  long furthest = 0;
  for (auto& [trial, m] : members_) {
    if (!m.held) continue;
    m.held = false;
    m.last_perturb = m.last_step;
    furthest = std::max(furthest, m.last_step);
  }
  const long last = std::numeric_limits<long>::max();
  const long next =
      next_sync_ > last - options_.perturb_every ? last : next_sync_ + options_.perturb_every;
  next_sync_ = std::max(next, furthest);
}

/// Returns the waiting member that has trained least.
int PbtScheduler::pick(const std::vector<int>& waiting) const {
  return *std::min_element(waiting.begin(), waiting.end(), [this](int a, int b) {
    return members_.at(a).last_step < members_.at(b).last_step;
  });
}

}  // namespace troupe::tune
