/// The load: a driver that keeps tasks, actor calls and objects going on a running cluster and
/// knows every right answer. It reports results to the chaos program by lines on stdout.
///
/// stdin:  "mark K NS"   a fault was injected at that monotonic time. Answered by "recovered K MS"
///                       when all earlier operations have ended and every part works again
///         "risk" "calm" between these, objects may be lost with their node
///         "full" "roomy" between these, records may be refused, since the disk is full
///         "hog K NODE"  a task on that node takes all memory. Answered by "hogged K CODE"
///         "finish"      ends the load and checks which calls were executed
/// stdout: ready; actor I PID; tick …; recovered …; bad WHAT TEXT; home MS; end …
#pragma once

#include <cstdint>
#include <string>

namespace chaos {

struct LoadOptions {
  std::string address;  ///< the cluster's file
  std::string ledger;
  std::uint64_t seed = 1;
  std::string canary;  ///< lost, wrong, hung, quiet: an error made on purpose
};

/// Runs the load and returns the exit code of its process. 42 means that its node is gone.
int run_load(int argc, char** argv, const LoadOptions& options);

}  // namespace chaos
