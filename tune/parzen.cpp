#include "troupe/tune/internal/parzen.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace troupe::tune {
namespace {

constexpr double kEps = 1e-12;
/// A kernel this many of its deviations away is skipped: its density there, exp(-50) relative to
/// its height, is nothing beside the prior's.
constexpr double kFarAway = 10;

/// Returns P(a < Z <= b) of a standard normal variable, accurate in both tails.
double normal_mass(double a, double b) {
  constexpr double kRootHalf = 0.70710678118654752440;
  if (a > 0) return 0.5 * (std::erfc(a * kRootHalf) - std::erfc(b * kRootHalf));
  return 0.5 * (std::erfc(-b * kRootHalf) - std::erfc(-a * kRootHalf));
}

/// Returns weights by age: 1 for the latest 25, falling linearly to 1/n for the oldest.
std::vector<double> age_weights(std::size_t n) {
  std::vector<double> weights(n, 1.0);
  if (n < 25) return weights;
  const std::size_t ramp = n - 25;
  for (std::size_t i = 0; i < ramp; ++i) {
    const double at = ramp == 1 ? 0 : static_cast<double>(i) / static_cast<double>(ramp - 1);
    weights[i] = 1.0 / static_cast<double>(n) * (1 - at) + at;
  }
  return weights;
}

double standard_normal(Random& random) {
  const double u = 1 - random.uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * random.uniform());
}

/// Draws from N(mean, sigma) inside [low, high]: by rejection, and if 16 draws fall outside, by
/// bisection on the probability mass.
double truncated_normal(double mean, double sigma, double low, double high, Random& random) {
  for (int i = 0; i < 16; ++i) {
    const double x = mean + sigma * standard_normal(random);
    if (x >= low && x <= high) return x;
  }
  const double from = (low - mean) / sigma;
  const double target = random.uniform() * normal_mass(from, (high - mean) / sigma);
  double a = low;
  double b = high;
  for (int i = 0; i < 60; ++i) {
    const double mid = std::midpoint(a, b);
    (normal_mass(from, (mid - mean) / sigma) < target ? a : b) = mid;
  }
  return std::midpoint(a, b);
}

}  // namespace

ParzenEstimator::ParzenEstimator(const Domain& domain, const std::vector<double>& observations)
    : domain_(domain) {
  weights_ = age_weights(observations.size());
  weights_.push_back(1);  // the prior
  const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (double& w : weights_) w /= total;
  if (domain_.kind == Domain::Kind::choice) {
    build_rows(observations);
    return;
  }
  if (domain_.kind == Domain::Kind::normal) {  // truncated: 4 deviations hold 99.99 % of the mass
    low_ = domain_.mean - 4 * domain_.deviation;
    high_ = domain_.mean + 4 * domain_.deviation;
  } else {
    low_ = domain_.low - domain_.step / 2;
    high_ = domain_.high + domain_.step / 2;
    if (domain_.log) {
      low_ = std::log(low_ > 0 ? low_ : domain_.low);
      high_ = std::log(high_);
    }
  }
  build_kernels(observations);
}

double ParzenEstimator::inner(double value) const {
  return domain_.log ? std::log(value) : value;
}
double ParzenEstimator::outer(double value) const {
  return clamp(domain_, domain_.log ? std::exp(value) : value);
}

/// Builds one truncated normal per observation. Its sigma is the larger of the gaps to its sorted
/// neighbours. The outermost observations use their inner gap; a single one uses its gaps to the
/// bounds. The prior is not counted as a neighbour.
void ParzenEstimator::build_kernels(const std::vector<double>& observations) {
  const std::size_t n = observations.size();
  const double range = high_ - low_;
  for (const double value : observations) centers_.push_back(inner(value));
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return centers_[a] < centers_[b]; });
  sigmas_.assign(n + 1, range);
  const double floor_sigma = range / std::min(100.0, static_cast<double>(n) + 2);
  for (std::size_t i = 0; i < n; ++i) {
    double left = centers_[order[i]] - (i > 0 ? centers_[order[i - 1]] : low_);
    double right = (i + 1 < n ? centers_[order[i + 1]] : high_) - centers_[order[i]];
    if (n >= 2 && i == 0) left = right;
    if (n >= 2 && i + 1 == n) right = left;
    sigmas_[order[i]] = std::clamp(std::max(left, right), floor_sigma, range);
  }
  centers_.push_back(std::midpoint(low_, high_));  // the prior: centred, sigma the whole range
  constexpr double kRootTwoPi = 2.50662827463100050242;
  for (std::size_t k = 0; k <= n; ++k) {
    const double s = sigmas_[k];
    const double mass = normal_mass((low_ - centers_[k]) / s, (high_ - centers_[k]) / s);
    factors_.push_back(weights_[k] / std::max(mass, kEps) /
                       (domain_.step > 0 ? 1 : s / range * kRootTwoPi));
  }
}

/// Builds one categorical distribution ("row") per observation: weight 1/(n+1) on each option, 1
/// more on the observed one, normalised.
void ParzenEstimator::build_rows(const std::vector<double>& observations) {
  const auto options = static_cast<double>(domain_.options.size());
  prior_ = 1.0 / static_cast<double>(observations.size() + 1);
  const double total = prior_ * options + 1;
  masses_.assign(domain_.options.size(),
                 weights_.back() / options + (1 - weights_.back()) * prior_ / total);
  for (std::size_t k = 0; k < observations.size(); ++k) {
    observed_.push_back(static_cast<std::size_t>(observations[k]));
    masses_[observed_.back()] += weights_[k] / total;
  }
}

/// Returns the probability of an option in row k; the last row is the prior's.
double ParzenEstimator::in_row(std::size_t k, std::size_t option) const {
  const auto options = static_cast<double>(domain_.options.size());
  if (k == observed_.size()) return 1 / options;
  return (prior_ + (observed_[k] == option ? 1 : 0)) / (prior_ * options + 1);
}

double ParzenEstimator::draw(Random& random) const {
  double u = random.uniform();
  std::size_t k = 0;
  while (k + 1 < weights_.size() && u >= weights_[k]) u -= weights_[k++];
  if (domain_.kind != Domain::Kind::choice) {
    return outer(truncated_normal(centers_[k], sigmas_[k], low_, high_, random));
  }
  u = random.uniform();
  std::size_t option = 0;
  while (option + 1 < domain_.options.size() && u >= in_row(k, option)) u -= in_row(k, option++);
  return static_cast<double>(option);
}

double ParzenEstimator::log_pdf(double value) const {
  if (domain_.kind == Domain::Kind::choice)
    return std::log(masses_[static_cast<std::size_t>(value)]);
  const double from = value - domain_.step / 2;
  const bool discrete = domain_.step > 0;
  const double at = inner(value);
  const double a = domain_.log && from <= 0 ? low_ : std::max(inner(from), low_);
  const double b = std::min(inner(value + domain_.step / 2), high_);
  double sum = 0;
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    const double s = sigmas_[k];
    if (discrete) {
      const double from_z = (a - centers_[k]) / s;
      const double to_z = (b - centers_[k]) / s;
      if (from_z < kFarAway && to_z > -kFarAway)
        sum += factors_[k] * std::max(normal_mass(from_z, to_z), kEps * kEps);
    } else {
      const double z = (at - centers_[k]) / s;
      if (std::abs(z) < kFarAway) sum += factors_[k] * std::exp(-0.5 * z * z);
    }
  }
  return std::log(sum) - (discrete ? 0 : std::log(high_ - low_));
}

}  // namespace troupe::tune
