#include "troupe/tune/internal/schedulers.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::tune {
namespace {

void check(const Pbt& o, const SchedulerSetup& setup) {
  if (o.perturb_every < 1) refuse("Pbt", "perturb_every must be at least 1 step");
  if (o.burn_in < 0) refuse("Pbt", "burn_in must not be negative");
  if (!(o.quantile > 0 && o.quantile <= 0.5))
    refuse("Pbt", "quantile must be above 0 and at most 0.5");
  if (!(o.resample >= 0 && o.resample <= 1)) refuse("Pbt", "resample is a probability");
  if (!(o.grow > 0 && o.shrink > 0)) refuse("Pbt", "the factors grow and shrink must be above 0");
  if (setup.trials < 2) refuse("Pbt", "a population needs at least 2 trials");
}

}  // namespace

PbtScheduler::PbtScheduler(const Pbt& options, const SchedulerSetup& setup)
    : options_(options),
      space_(setup.space),
      goal_(setup.goal),
      population_(setup.trials),
      random_(setup.seed) {
  check(options, setup);
  next_sync_ = std::max(options.perturb_every, options.burn_in);
}

void PbtScheduler::created(int trial, const Point& params) {
  members_[trial].params = params;
}

void PbtScheduler::reported(const Report& report, std::vector<Decision>& out) {
  Member& me = members_[report.trial];
  me.can_save = report.can_save;
  me.last_step = report.step;
  const bool due = options_.synchronous
                       ? report.step >= next_sync_
                       : report.step >= options_.burn_in &&
                             report.step - me.last_perturb >= options_.perturb_every;
  if (!due || std::isnan(report.score)) {
    const bool yield = due && report.others_wait && report.can_save;
    out.push_back({.trial = report.trial,
                   .action = yield ? Decision::Action::yield : Decision::Action::go_on});
    return;
  }
  me.has_score = true;
  me.gain = goal_.gain(report.score);
  if (!options_.synchronous) return decide(report.trial, report, out);
  me.held = true;
  me.saved = me.can_save;
  out.push_back({.trial = report.trial, .action = Decision::Action::hold, .save = me.can_save});
  try_barrier(out);
}

/// Ray's _checkpoint_or_exploit for one asynchronous reporter.
void PbtScheduler::decide(int trial, const Report& report, std::vector<Decision>& out) {
  Member& me = members_[trial];
  me.last_perturb = report.step;
  const Quantiles q = quantiles();
  Decision decision{.trial = trial};
  const bool top = std::find(q.top.begin(), q.top.end(), trial) != q.top.end();
  const bool bottom = std::find(q.bottom.begin(), q.bottom.end(), trial) != q.bottom.end();
  if (bottom && exploit(trial, q.top, decision)) {
    out.push_back(std::move(decision));
    return;
  }
  decision.save = me.can_save && (top || options_.save_all);
  me.saved = decision.save;
  if (report.others_wait && me.can_save) decision.action = Decision::Action::yield;
  out.push_back(std::move(decision));
}

/// The best and the worst q live members with a score, best first. q = ceil(n * f), or n / 2 when
/// that is more than half.
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

bool PbtScheduler::exploit(int trial, const std::vector<int>& top, Decision& decision) {
  const int donor = top[random_.below(top.size())];
  const Member& from = members_[donor];
  Member& me = members_[trial];
  if (!from.saved || !me.can_save || donor == trial) return false;
  decision.action = Decision::Action::exploit;
  decision.donor = donor;
  decision.donor_params = from.params;
  decision.params = explore(from.params);
  decision.why = "score " + number(goal_.gain(me.gain)) + " is in the bottom quantile, trial " +
                 std::to_string(donor) + " has " + number(goal_.gain(from.gain));
  me.params = decision.params;
  me.last_perturb = from.last_perturb;
  me.last_step = from.last_step;
  me.saved = false;
  return true;
}

Point PbtScheduler::explore(const Point& donor) {
  Point params = donor;
  for (std::size_t i = 0; i < space_.size(); ++i) {
    const Domain& domain = space_.parameters[i].domain;
    const bool anew = random_.chance(options_.resample);
    if (anew) {
      params[i] = sample(domain, random_);
    } else if (domain.kind == Domain::Kind::choice) {
      params[i] = clamp(domain, params[i] + (random_.chance(0.5) ? 1 : -1));
    } else {
      params[i] *= random_.chance(0.5) ? options_.grow : options_.shrink;
      if (domain.kind == Domain::Kind::integer) params[i] = std::trunc(params[i]);
      if (options_.clamp) params[i] = clamp(domain, params[i]);
    }
  }
  return params;
}

void PbtScheduler::finished(int trial, std::vector<Decision>& out) {
  leave(trial, out);
}
void PbtScheduler::failed(int trial, std::vector<Decision>& out) {
  leave(trial, out);
}

void PbtScheduler::leave(int trial, std::vector<Decision>& out) {
  Member& me = members_[trial];
  me.done = true;
  me.held = false;
  if (options_.synchronous) try_barrier(out);
}

/// Synchronous mode: everybody alive has come as far as next_sync_.
void PbtScheduler::try_barrier(std::vector<Decision>& out) {
  int present = 0;
  bool anybody = false;
  for (const auto& [trial, m] : members_) {
    present += m.done || m.held;
    anybody |= m.held;
  }
  if (anybody && present >= population_) pass_barrier(out);
}

/// Top, middle and bottom are processed in this order (Ray): donors exist before they are copied.
void PbtScheduler::pass_barrier(std::vector<Decision>& out) {
  const Quantiles q = quantiles();
  long furthest = 0;
  std::vector<int> held;
  for (auto& [trial, m] : members_) {
    if (!m.held) continue;
    m.held = false;
    m.last_perturb = m.last_step;
    furthest = std::max(furthest, m.last_step);
    held.push_back(trial);
  }
  std::vector<Decision> copies;
  for (const int trial : held) {
    Decision decision{.trial = trial, .action = Decision::Action::resume};
    const bool bottom = std::find(q.bottom.begin(), q.bottom.end(), trial) != q.bottom.end();
    if (bottom && exploit(trial, q.top, decision)) {
      copies.push_back(std::move(decision));
    } else {
      out.push_back(std::move(decision));
    }
  }
  out.insert(out.end(), copies.begin(), copies.end());
  next_sync_ = std::max(next_sync_ + options_.perturb_every, furthest);
}

/// The waiting member that has trained least.
int PbtScheduler::pick(const std::vector<int>& waiting) {
  return *std::min_element(waiting.begin(), waiting.end(), [this](int a, int b) {
    return members_[a].last_step < members_[b].last_step;
  });
}

}  // namespace troupe::tune
