#include "troupe/tune/internal/schedulers.hpp"
#include "troupe/tune/internal/streams.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::tune {
namespace {

constexpr long kDefaultHorizon = 100;
constexpr int kMostRungs = 1000;

Decision stop(int trial, std::string why) {
  Decision decision{.trial = trial, .action = Decision::Action::stop};
  decision.why = std::move(why);
  return decision;
}

/// Returns the number of rungs of the first bracket, with a fraction. Each further bracket has one
/// rung less.
double rungs_of(const AsyncHyperBand& o) {
  const double range =
      static_cast<double>(o.max_steps.value_or(kDefaultHorizon)) / static_cast<double>(o.grace);
  return std::log(range) / std::log(o.eta) + 1;
}

}  // namespace

std::optional<double> percentile(std::vector<double> values, double percent) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double v) { return std::isnan(v); }),
               values.end());
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(std::floor(at));
  const std::size_t high = std::min(low + 1, values.size() - 1);
  const double part = at - static_cast<double>(low);
  if (part <= 0 || values[low] == values[high]) return values[low];
  if (std::isinf(values[low])) return values[low];  // nothing to interpolate from -infinity
  if (std::isfinite(values[high] - values[low]))
    return values[low] + (values[high] - values[low]) * part;
  return values[low] * (1 - part) + values[high] * part;
}

std::vector<double> AsyncHyperBandScheduler::rung_steps(const AsyncHyperBand& o, int bracket) {
  const double grace = static_cast<double>(o.grace);
  const auto count = static_cast<int>(rungs_of(o) - bracket);
  std::vector<double> steps;
  for (int k = 0; k < count; ++k) steps.push_back(grace * std::pow(o.eta, k + bracket));
  return steps;
}

AsyncHyperBandScheduler::AsyncHyperBandScheduler(const AsyncHyperBand& options,
                                                 const SchedulerSetup& setup)
    : options_(options), goal_(setup.goal), seed_(setup.seed) {
  if (!options.max_steps)
    options_.max_steps = setup.max_steps > 0 ? setup.max_steps : kDefaultHorizon;
  if (*options_.max_steps < 1) refuse("AsyncHyperBand", "max_steps must be at least 1");
  if (options.grace < 1 || options.grace > *options_.max_steps) {
    refuse("AsyncHyperBand", "grace must be from 1 to max_steps");
  }
  if (!(options.eta > 1)) refuse("AsyncHyperBand", "eta must be above 1");
  if (rungs_of(options_) > kMostRungs)
    refuse("AsyncHyperBand",
           "eta " + number(options.eta) + " makes more than 1000 rungs; take a larger one");
  if (options.brackets < 1 || options.brackets > kMostRungs)
    refuse("AsyncHyperBand", "brackets must be from 1 to 1000");
  for (int b = 0; b < options.brackets; ++b) {
    std::vector<RungState> rungs;
    for (const double steps : rung_steps(options_, b)) rungs.push_back({steps, {}});
    brackets_.push_back(std::move(rungs));
  }
}

void AsyncHyperBandScheduler::created(int trial, const Point&) {
  const auto most = static_cast<double>(brackets_.front().size());
  const auto weight_of = [most](const std::vector<RungState>& rungs) {
    return std::exp(static_cast<double>(rungs.size()) - most);  // softmax; at most 1, no overflow
  };
  double total = 0;
  for (const auto& rungs : brackets_) total += weight_of(rungs);
  double u = stream(seed_, Purpose::bracket, static_cast<std::uint64_t>(trial)).uniform() * total;
  std::size_t bracket = 0;
  while (bracket + 1 < brackets_.size()) {
    const double weight = weight_of(brackets_[bracket]);
    if (u < weight) break;
    u -= weight;
    ++bracket;
  }
  places_[trial].bracket = bracket;
}

std::optional<double> AsyncHyperBandScheduler::record(Place& place) {
  std::vector<RungState>& rungs = brackets_[place.bracket];
  for (std::size_t k = rungs.size(); k-- > place.next_rung;) {
    if (static_cast<double>(place.step) < rungs[k].steps) continue;
    const auto cutoff = percentile(rungs[k].gains, 100 * (1 - 1 / options_.eta));
    rungs[k].gains.push_back(place.gain);
    place.next_rung = k + 1;
    return cutoff;
  }
  return std::nullopt;
}

void AsyncHyperBandScheduler::observe(const Report& report) {
  Place& place = places_[report.trial];
  place.step = report.step;
  place.gain = goal_.gain(report.score);
  place.reported = true;
  const bool at_end = options_.stop_at_max && report.step >= *options_.max_steps;
  place.cutoff = at_end ? std::nullopt : record(place);
}

void AsyncHyperBandScheduler::decide(const Report& report, std::vector<Decision>& out) const {
  const Place& place = places_.at(report.trial);
  if (options_.stop_at_max && report.step >= *options_.max_steps) {
    out.push_back({.trial = report.trial, .action = Decision::Action::complete});
    out.back().why = "reached max_steps";
    return;
  }
  const auto& cutoff = place.cutoff;
  if (cutoff && !(place.gain >= *cutoff)) {  // written so that a NaN gain stops the trial
    out.push_back(stop(report.trial, "worse than the cutoff " + number(goal_.gain(*cutoff))));
    return;
  }
  out.push_back({.trial = report.trial});
}

void AsyncHyperBandScheduler::observe(const TrialOver& end) {
  Place& place = places_[end.trial];
  if (place.reported && !end.failed) record(place);
  places_.erase(end.trial);
}

SuccessiveHalvingScheduler::SuccessiveHalvingScheduler(const SuccessiveHalving& options,
                                                       const SchedulerSetup& setup)
    : options_(options), goal_(setup.goal) {
  if (options.min_steps < 1) refuse("SuccessiveHalving", "min_steps must be at least 1");
  if (options.eta < 2) refuse("SuccessiveHalving", "eta must be at least 2");
  if (options.rate < 0 || options.bootstrap < 0) {
    refuse("SuccessiveHalving", "rate and bootstrap must not be negative");
  }
}

double SuccessiveHalvingScheduler::rung_step(std::size_t rung) const {
  return static_cast<double>(options_.min_steps) *
         std::pow(options_.eta, static_cast<double>(rung) + options_.rate);
}

void SuccessiveHalvingScheduler::observe(const Report& report) {
  Place& place = places_[report.trial];
  place.why = record(place, report);
}

void SuccessiveHalvingScheduler::observe(const TrialOver& end) {
  places_.erase(end.trial);
}

void SuccessiveHalvingScheduler::decide(const Report& report, std::vector<Decision>& out) const {
  const std::string& why = places_.at(report.trial).why;
  out.push_back(why.empty() ? Decision{.trial = report.trial} : stop(report.trial, why));
}

std::string SuccessiveHalvingScheduler::record(Place& place, const Report& report) {
  std::size_t& rung = place.next_rung;
  const double gain = goal_.gain(report.score);
  while (static_cast<double>(report.step) >= rung_step(rung)) {  // one report may pass several
    const std::string where = " at rung " + std::to_string(rung);
    if (std::isnan(gain)) return "not a number" + where;
    if (rungs_.size() <= rung) rungs_.resize(rung + 1);
    std::vector<double>& gains = rungs_[rung++];
    gains.insert(std::upper_bound(gains.begin(), gains.end(), gain), gain);
    const std::size_t n = gains.size();
    if (n <= static_cast<std::size_t>(options_.bootstrap)) return "one of the first few" + where;
    const std::size_t k = std::max<std::size_t>(n / static_cast<std::size_t>(options_.eta), 1);
    if (gain < gains[n - k])
      return "not among the best " + std::to_string(k) + " of " + std::to_string(n) + where;
  }
  return {};
}

std::vector<std::vector<Rung>> hyperband_brackets(long max_steps, int eta, HyperbandTable table) {
  if (max_steps < 1) refuse("hyperband_brackets", "max_steps must be at least 1");
  if (eta < 2) refuse("hyperband_brackets", "eta must be at least 2");
  std::vector<long> powers = {1};  // integers: a floating logarithm errs at exact powers
  while (powers.back() <= max_steps / eta) powers.push_back(powers.back() * eta);
  const auto smax = static_cast<long>(powers.size()) - 1;
  std::vector<std::vector<Rung>> brackets;
  for (long s = smax; s >= 0; --s) {
    const long power = powers[static_cast<std::size_t>(s)];
    const long n = table == HyperbandTable::formula ? ((smax + 1) * power + s) / (s + 1)
                                                    : (smax + 1) / (s + 1) * power;
    std::vector<Rung> bracket;
    for (long i = 0; i <= s; ++i) {
      bracket.push_back({static_cast<int>(n / powers[static_cast<std::size_t>(i)]),
                         max_steps * powers[static_cast<std::size_t>(i)] / power});
    }
    brackets.push_back(std::move(bracket));
  }
  return brackets;
}

}  // namespace troupe::tune
