/// Metrics: what a training loop gives to Worker::report().
///
///     w.report({.step = w.step(), .loss = loss, .extra = {{"tokens_per_second", rate}}});
#pragma once

#include <map>
#include <string>

namespace troupe::train {

struct Metrics {
  long step = 0;
  double loss = 0;
  std::map<std::string, double> extra = {};
};

}  // namespace troupe::train
