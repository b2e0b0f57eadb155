/// Plants one situation for each question that a person asks of a running cluster.
#pragma once

#include "troupe/troupe.hpp"

#include <optional>
#include <string>
#include <vector>

namespace situations {

/// Runs the verb, if it is one of this file; returns the program's exit code.
std::optional<int> run(troupe::Context& ctx, const std::vector<std::string>& arguments);

}  // namespace situations
