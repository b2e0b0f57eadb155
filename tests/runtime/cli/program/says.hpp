/// Tasks and actors that write lines, for the tests of logs.
#pragma once

#include "troupe/troupe.hpp"

#include <optional>
#include <string>
#include <vector>

namespace says {

/// Runs the verb, if it is one of this file; returns the program's exit code.
std::optional<int> run(troupe::Context& ctx, const std::vector<std::string>& arguments);

/// Writes to standard error and ends the process if this is no driver and the program was asked to.
void before_run(int argc, char** argv);

}  // namespace says
