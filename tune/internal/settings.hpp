/// The options of an experiment that may change between two runs of it, by name.
///
///     Settings now = settings_of(options);          // {{"trials", 40}, {"time_limit", 60e6}, …}
///     adopt(changed(before, now), options);
#pragma once

#include "troupe/tune/experiment.hpp"

#include <map>
#include <string>

namespace troupe::tune {

/// Times are in microseconds. A target of NaN means none.
using Settings = std::map<std::string, double>;

Settings settings_of(const ExperimentOptions& options);
/// Returns the settings of `to` that differ from those of `from`.
Settings changed(const Settings& from, const Settings& to);
/// Sets the options that have these names. Others stay as they are.
void adopt(const Settings& settings, ExperimentOptions& options);

}  // namespace troupe::tune
