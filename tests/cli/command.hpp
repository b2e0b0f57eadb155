/// Runs the `troupe` command as a person would, and says what came of it.
///
///     Outcome o = troupe_command({"status", "--json"});   // o.code, o.out, o.err
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace troupe::cli {

struct Outcome {
  int code = -1;  ///< of exit; 128 + signal
  std::string out, err;
};

/// Any program; the environment gets `variables` on top. Waits at most 60 s, then kills it.
Outcome command(const std::vector<std::string>& arguments,
                const std::vector<std::pair<std::string, std::string>>& variables = {});
/// The command that was built with this test.
Outcome troupe_command(std::vector<std::string> arguments,
                       const std::vector<std::pair<std::string, std::string>>& variables = {});

}  // namespace troupe::cli
