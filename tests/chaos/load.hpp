/// The load: a driver that keeps tasks, actor calls and objects going on a running cluster, knows
/// every right answer, and tells the chaos program what became of them by lines on stdout.
///
/// stdin:  "mark K NS"   a fault was injected at that monotonic time; answered by "recovered K MS"
///                       when all that was under way has ended and every part works again
///         "risk" "calm" from here to there objects may be lost with their node
///         "full" "roomy" from here to there records may be refused, since the disk is full
///         "hog K NODE"  one task there takes all memory it can; answered by "hogged K CODE"
///         "finish"      ends all of it, and checks what was executed
/// stdout: ready; actor I PID; tick …; recovered …; bad WHAT TEXT; home MS; end …
#pragma once

#include <cstdint>
#include <string>

namespace chaos {

struct LoadOptions {
  std::string address;  ///< the cluster's file
  std::string ledger;
  std::uint64_t seed = 1;
  std::string canary;  ///< lost, wrong, hung, quiet: what this load does wrong on purpose
};

/// Ends as the process is to end; 42: its node has gone.
int run_load(int argc, char** argv, const LoadOptions& options);

}  // namespace chaos
