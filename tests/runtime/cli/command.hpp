/// Runs the `troupe` command as a user would, and returns its output.
///
///     Outcome o = troupe_command({"status", "--json"});   // o.code, o.out, o.err
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace troupe::cli {

struct Outcome {
  int code = -1;  ///< exit code; 128 + signal
  std::string out, err;
};

/// Runs any program, with `variables` added to the environment. Waits at most 60 s, then kills
/// it.
Outcome command(const std::vector<std::string>& arguments,
                const std::vector<std::pair<std::string, std::string>>& variables = {});
/// Runs the command that was built with this test.
Outcome troupe_command(std::vector<std::string> arguments,
                       const std::vector<std::pair<std::string, std::string>>& variables = {});

}  // namespace troupe::cli
