/// What a person types as name=value: a point of a space, and options of an experiment.
///
///     Result<Point> point = read_point(space, {{"lr", "1e-3"}, {"optimizer", "adam"}});
///     experiment.add(point.value(), now);
///     experiment.change(read_settings({{"trials", "500"}}).value(), now);
///
/// All functions are pure. Their errors are InvalidArgument: one sentence that says what is wrong
/// and what may be typed.
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/tune/domain.hpp"

#include <map>
#include <string>

namespace troupe::tune {

/// Texts by name.
using TypedValues = std::map<std::string, std::string>;

/// Returns the point with these values: a number, or an option of a choice as it is shown. Each
/// parameter of the space needs a value inside its domain.
TROUPE_API Result<Point> read_point(const SearchSpace& space, const TypedValues& values);

/// Returns the values for Experiment::change(). Times have a unit (10m), `target` may be none, and
/// `fail_fast` and `save_at_end` are true or false. Needs at least one option.
TROUPE_API Result<std::map<std::string, double>> read_settings(const TypedValues& values);

}  // namespace troupe::tune
