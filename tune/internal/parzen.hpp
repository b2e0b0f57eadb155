/// The Parzen estimator of one parameter, as Optuna builds it (samplers/_tpe/parzen_estimator.py).
#pragma once

#include "troupe/tune/domain.hpp"

namespace troupe::tune {

/// A mixture of truncated normals (or of categorical rows) around observations, plus the prior.
class ParzenEstimator {
 public:
  /// Observations are values of the domain, in the order of their trials: older ones weigh less
  /// from 25 on.
  ParzenEstimator(const Domain& domain, const std::vector<double>& observations);
  double draw(Random& random) const;
  /// Log density (log mass for discrete domains) at a value of the domain.
  double log_pdf(double value) const;

  const std::vector<double>& weights() const noexcept { return weights_; }
  const std::vector<double>& centers() const noexcept { return centers_; }
  const std::vector<double>& sigmas() const noexcept { return sigmas_; }

 private:
  void build_kernels(const std::vector<double>& observations);
  void build_rows(const std::vector<double>& observations);
  double in_row(std::size_t k, std::size_t option) const;
  double inner(double value) const;  ///< to the scale that kernels live on
  double outer(double value) const;

  Domain domain_;
  double low_ = 0;  ///< on the kernels' scale, widened by half a step
  double high_ = 1;
  std::vector<double> weights_;
  std::vector<double> centers_;
  std::vector<double> sigmas_;
  /// A kernel's weight, normalised on [low, high]. A density is per range and not per unit: it
  /// overflows for no range.
  std::vector<double> factors_;
  // Of a choice only:
  double prior_ = 0;                   ///< of an option in a row, before that is normalised
  std::vector<std::size_t> observed_;  ///< the option of each row
  std::vector<double> masses_;         ///< the probability of each option
};

}  // namespace troupe::tune
