/// The `troupe` command: starts, ends and shows clusters, and runs programs on them.
///
///     int main(int argc, char** argv) { return troupe::cli::run(argc, argv); }
///
/// The command is the library with another `main`: the agents and control of `troupe up` run the
/// same executable. With --json a verb writes one JSON document to stdout and nothing else there,
/// also when it fails: {"error": {"code", "message"}}. Everything else goes to stderr.
#pragma once

#include "troupe/runtime/base/assert.hpp"

namespace troupe::cli {

/// The exit code of the command. `run` becomes the program and ends as it does.
enum class Exit : int {
  ok = 0,
  failed = 1,       ///< the cluster ended by itself
  usage = 2,        ///< unknown verb or flag, bad value
  unreachable = 3,  ///< no cluster runs, or it does not answer
  refused = 4,      ///< the cluster's file is malformed, of another protocol, or open to others
  not_started = 5,  ///< a cluster or program could not be started
};

/// Runs the command line and returns the exit code. Blocks until the verb is done; `up` until a
/// signal or the cluster's end.
TROUPE_API int run(int argc, char** argv);

}  // namespace troupe::cli
