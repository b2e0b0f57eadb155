/// Plants situations in which tasks and actors wait, for the tests of lists and explanations.
#pragma once

#include "troupe/troupe.hpp"

#include <optional>
#include <string>
#include <vector>

namespace plants {

/// Runs the verb, if it is one of this file; returns the program's exit code.
std::optional<int> run(troupe::Context& ctx, const std::vector<std::string>& arguments);

}  // namespace plants
