/// The Parzen estimator of one parameter for TPE, built as in Optuna
/// (samplers/_tpe/parzen_estimator.py).
#pragma once

#include "troupe/tune/domain.hpp"

namespace troupe::tune {

/// A mixture with one component for each observation and one for the prior. The components are
/// truncated normals, or for a choice categorical distributions ("rows").
class ParzenEstimator {
 public:
  /// `observations` are values of the domain in the order of their trials. From 25 of them on,
  /// older ones weigh less.
  ParzenEstimator(const Domain& domain, const std::vector<double>& observations);
  double draw(Random& random) const;
  /// Returns the log density at a value of the domain; for discrete domains the log mass.
  double log_pdf(double value) const;

  const std::vector<double>& weights() const noexcept { return weights_; }
  const std::vector<double>& centers() const noexcept { return centers_; }
  const std::vector<double>& sigmas() const noexcept { return sigmas_; }

 private:
  void build_kernels(const std::vector<double>& observations);
  void build_rows(const std::vector<double>& observations);
  double in_row(std::size_t k, std::size_t option) const;
  double inner(double value) const;  ///< value of the domain -> scale of the kernels (log or equal)
  double outer(double value) const;  ///< the inverse, clamped to the domain

  Domain domain_;
  double low_ = 0;  ///< bounds on the scale of the kernels, widened by half a step
  double high_ = 1;
  // One entry per component, the prior last:
  std::vector<double> weights_;
  std::vector<double> centers_;
  std::vector<double> sigmas_;
  /// Weights divided by the kernel's mass on [low_, high_] and, for continuous domains, by its
  /// height. The density is relative to the length of the range, so that no range makes it
  /// overflow.
  std::vector<double> factors_;
  // For a choice only:
  double prior_ = 0;                   ///< prior weight of each option in a row, not normalised
  std::vector<std::size_t> observed_;  ///< the option of each row
  std::vector<double> masses_;         ///< the probability of each option
};

}  // namespace troupe::tune
